//! Planted bugs: wrong ideas, each kept as a patch that a test must find.
//!
//! A file `tests/planted/NAME.patch` is a diff behind a header:
//!
//! ```text
//! # IDEA: The clocks of the nodes run as fast as ours.
//! # TESTS: -p quorate-core --lib t2_
//! ```
//!
//! Each `TESTS` line holds words for `cargo test`. The patches are applied one at a time to a copy of the tree,
//! and one failing test is enough. A patch that does not apply or does not compile is an error.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::cmd::{Cmd, Outcome, cargo, root};

/// How long one run of tests may take, in seconds. The model needs a minute.
const LIMIT: &str = "300";

/// A planted bug.
#[derive(Debug, PartialEq, Eq)]
struct Bug {
    name: String,
    patch: PathBuf,
    idea: String,
    /// The words of each run of tests.
    tests: Vec<Vec<String>>,
}

/// `cargo xtask planted [--check] [--draw N] [NAME…]`.
pub(crate) fn run(words: &[&str]) -> Outcome {
    let bugs = read()?;
    let tree = Tree::copy()?;
    for bug in &bugs {
        tree.apply(bug, &["--check"])?;
    }
    println!("   {} patches apply", bugs.len());
    let chosen = match *words {
        ["--check"] => return Ok(()),
        [] => bugs,
        ["--draw", count] => {
            let count = count.parse().map_err(|_| format!("not a number: {count}"))?;
            draw(bugs, count, &Cmd::new("git").args(&["rev-parse", "HEAD"]).read()?)
        }
        ref names => named(bugs, names)?,
    };
    tree.test_unchanged(&chosen)?;
    let mut unfound = Vec::new();
    for bug in &chosen {
        let found = tree.finds(bug);
        let word = match &found {
            Ok(true) => "found  ",
            Ok(false) => "UNFOUND",
            Err(why) => why,
        };
        println!("   {word} {}: {}", bug.name, bug.idea);
        if found != Ok(true) {
            unfound.push(bug.name.as_str());
        }
    }
    if unfound.is_empty() { Ok(()) } else { Err(format!("not found: {}", unfound.join(", "))) }
}

/// Reads all patches, in the order of their names.
fn read() -> Outcome<Vec<Bug>> {
    let mut bugs = Vec::new();
    let folder = root()?.join("tests/planted");
    let why = |error: io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(&folder).map_err(why)? {
        let patch = entry.map_err(why)?.path();
        if patch.extension().is_some_and(|extension| extension == "patch") {
            let text = fs::read_to_string(&patch).map_err(why)?;
            bugs.push(Bug::parse(patch, &text)?);
        }
    }
    bugs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(bugs)
}

/// The bugs with these names.
fn named(bugs: Vec<Bug>, names: &[&str]) -> Outcome<Vec<Bug>> {
    if let Some(unknown) = names.iter().find(|name| bugs.iter().all(|bug| bug.name != **name)) {
        return Err(format!("no such planted bug: {unknown}"));
    }
    Ok(bugs.into_iter().filter(|bug| names.contains(&bug.name.as_str())).collect())
}

/// Draws some bugs by the hash of a commit.
fn draw(mut bugs: Vec<Bug>, count: usize, commit: &str) -> Vec<Bug> {
    bugs.sort_by_cached_key(|bug| {
        let mut hasher = DefaultHasher::new();
        (commit.trim(), &bug.name).hash(&mut hasher);
        hasher.finish()
    });
    bugs.truncate(count);
    bugs
}

impl Bug {
    fn parse(patch: PathBuf, text: &str) -> Outcome<Self> {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let header = || text.lines().take_while(|line| line.starts_with('#'));
        let idea = header().find_map(|line| line.strip_prefix("# IDEA: "));
        let tests = header().filter_map(|line| line.strip_prefix("# TESTS: "));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let tests: Vec<_> = tests.map(words).collect();
        match idea {
            Some(idea) if !tests.is_empty() => {
                Ok(Self { name, patch, idea: idea.to_owned(), tests })
            }
            _ => Err(format!("{name}: the header needs `# IDEA: ` and `# TESTS: `")),
        }
    }
}

/// The copy of the tree.
struct Tree {
    path: PathBuf,
    target: PathBuf,
}

impl Tree {
    /// Copies all files that git does not ignore. Files that have not changed keep their time, so that
    /// what was built from them is built no second time.
    fn copy() -> Outcome<Self> {
        let root = root()?;
        let path = root.join("target/planted/tree");
        let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let list = Cmd::new("git").args(&list).read()?;
        let files = list.trim_end().split('\0').filter(|file| root.join(file).is_file());
        let files: HashSet<PathBuf> = files.map(|file| path.join(file)).collect();
        let why = |error: io::Error| format!("{}: {error}", path.display());
        remove_others(&path, &files).map_err(why)?;
        for copy in &files {
            let file = copy.strip_prefix(&path).map_err(|error| error.to_string())?;
            let text = fs::read(root.join(file)).map_err(why)?;
            if fs::read(copy).ok().as_ref() != Some(&text) {
                fs::create_dir_all(copy.parent().unwrap_or(&path)).map_err(why)?;
                fs::write(copy, text).map_err(why)?;
            }
        }
        Ok(Self { path, target: root.join("target/planted/target") })
    }

    fn apply(&self, bug: &Bug, options: &[&str]) -> Outcome {
        let above = self.path.parent().unwrap_or(&self.path);
        let (tree, patch) = (self.path.to_string_lossy(), bug.patch.to_string_lossy());
        Cmd::new("git")
            .args(&["-C", &tree, "apply"])
            .args(options)
            .args(&[&patch])
            // Inside of a repository, `apply` skips paths that are not below the folder it runs in.
            .env("GIT_CEILING_DIRECTORIES", &above.to_string_lossy())
            .run_seeing(|_| {})
            .map_err(|why| format!("{} does not apply: {why}", bug.name))
    }

    /// Runs the tests of these bugs on the unchanged tree, where all of them must pass.
    fn test_unchanged(&self, bugs: &[Bug]) -> Outcome {
        let mut seen = HashSet::new();
        for tests in bugs.iter().flat_map(|bug| &bug.tests) {
            if seen.insert(tests) && self.fails(tests)? {
                return Err(format!("fails without a planted bug: {}", tests.join(" ")));
            }
        }
        Ok(())
    }

    fn finds(&self, bug: &Bug) -> Outcome<bool> {
        self.apply(bug, &[])?;
        let found = bug
            .tests
            .iter()
            .try_fold(false, |found, tests| Ok::<_, String>(found || self.fails(tests)?));
        self.apply(bug, &["--reverse"])?;
        found
    }

    /// Builds the tests and runs them. Returns whether one failed.
    fn fails(&self, tests: &[String]) -> Outcome<bool> {
        let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
        let manifest = self.path.join("Cargo.toml");
        let (manifest, target) = (manifest.to_string_lossy(), self.target.to_string_lossy());
        let place = ["--locked", "--manifest-path", &manifest, "--target-dir", &target];
        let build = cargo(&["test", "--no-run"]).args(&place).args(&tests);
        build.env("CARGO_INCREMENTAL", "1").run_seeing(|_| {})?;
        let (mut has_failed, mut has_run) = (false, false);
        let run = Cmd::new("timeout").args(&["--kill-after=5", LIMIT, "cargo", "test"]);
        let run = run.args(&place).args(&tests).env("CARGO_INCREMENTAL", "1");
        let result = run.run_seeing(|line| {
            has_failed |= line.starts_with("test result: FAILED");
            has_run |= line.starts_with("test ") && line.ends_with("... ok");
        });
        match result {
            Ok(()) if !has_run => Err(format!("no test ran: {run}")),
            Err(why) if !has_failed => Err(why),
            _ => Ok(has_failed),
        }
    }
}

/// Removes the files below `folder` that are not among `files`.
fn remove_others(folder: &Path, files: &HashSet<PathBuf>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, files)?;
        } else if !files.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bug(name: &str) -> Bug {
        let text = "# IDEA: Half is a quorum.\n# TESTS: -p a --lib q1_\n# TESTS: -p b\n--- a/x\n# TESTS: no\n";
        Bug::parse(PathBuf::from(format!("tests/planted/{name}.patch")), text).unwrap()
    }

    #[test]
    fn a_header_says_the_idea_and_the_tests() {
        let bug = bug("half");
        assert_eq!((bug.name.as_str(), bug.idea.as_str()), ("half", "Half is a quorum."));
        assert_eq!(bug.tests, [vec!["-p", "a", "--lib", "q1_"], vec!["-p", "b"]]);
        assert!(Bug::parse(PathBuf::from("x.patch"), "# IDEA: None.\n--- a/x\n").is_err());
    }

    #[test]
    fn a_commit_draws_the_same_bugs_each_time_and_another_commit_draws_others() {
        let drawn = |commit| {
            let bugs = (0..50).map(|n| bug(&n.to_string())).collect();
            draw(bugs, 5, commit).into_iter().map(|bug| bug.name).collect::<Vec<_>>()
        };
        assert_eq!(drawn("c0ffee\n"), drawn("c0ffee"));
        assert_eq!(drawn("c0ffee").len(), 5);
        assert_ne!(drawn("c0ffee"), drawn("decade"));
    }

    #[test]
    fn a_name_that_is_no_bug_is_an_error() {
        assert!(named(vec![bug("half")], &["half", "third"]).is_err());
        assert_eq!(named(vec![bug("half"), bug("third")], &["third"]).unwrap().len(), 1);
    }
}
