//! Planted bugs: wrong ideas, each kept as a patch that a test must find.
//!
//! `tests/planted/NAME.patch` begins with a line `# IDEA: …` and lines `# TESTS: …`, which hold
//! words for `cargo test`. The patches are applied one at a time to a copy of the tree, and one
//! failing test is enough. A patch that does not apply or does not compile is an error.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::{fs, io};

use crate::cmd::{Cmd, Outcome, cargo, list, root, stem};

/// How long one run of tests may take, in seconds. The model needs a minute.
const LIMIT: &str = "300";

#[derive(Debug, PartialEq, Eq)]
struct Bug {
    name: String,
    patch: PathBuf,
    idea: String,
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
            draw(bugs, count, &Cmd::new(&["git", "rev-parse", "HEAD"]).read()?)
        }
        ref names => named(bugs, names)?,
    };
    // Before some are drawn, the stage `tests` has run all tests.
    let is_run = matches!(words, ["--draw", _]);
    let tests = chosen.iter().flat_map(|bug| &bug.tests).filter(|_| !is_run);
    for tests in tests.collect::<BTreeSet<_>>() {
        if tree.fails(tests)? {
            return Err(format!("fails without a planted bug: {}", tests.join(" ")));
        }
    }
    let mut unfound = Vec::new();
    for bug in &chosen {
        let word = match tree.finds(bug) {
            Ok(true) => "found".to_owned(),
            Ok(false) => "UNFOUND".to_owned(),
            Err(why) => why,
        };
        println!("   {word:7} {}: {}", bug.name, bug.idea);
        if word != "found" {
            unfound.push(bug.name.as_str());
        }
    }
    if unfound.is_empty() { Ok(()) } else { Err(format!("not found: {}", unfound.join(", "))) }
}

fn read() -> Outcome<Vec<Bug>> {
    let is_patch = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "patch");
    let patches = list("tests/planted")?.into_iter().filter(is_patch);
    let bugs = patches.map(|patch| {
        let text = fs::read_to_string(&patch).map_err(|error| error.to_string())?;
        Bug::parse(patch, &text)
    });
    bugs.collect()
}

fn named(mut bugs: Vec<Bug>, names: &[&str]) -> Outcome<Vec<Bug>> {
    bugs.retain(|bug| names.contains(&bug.name.as_str()));
    if bugs.len() == names.len() { Ok(bugs) } else { Err("no such planted bug".to_owned()) }
}

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
        let name = stem(&patch);
        let header = || text.lines().take_while(|line| line.starts_with('#'));
        let idea = header().find_map(|line| line.strip_prefix("# IDEA: "));
        let tests = header().filter_map(|line| line.strip_prefix("# TESTS: "));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let tests: Vec<_> = tests.map(words).collect();
        let idea = idea.filter(|_| !tests.is_empty()).map(str::to_owned);
        let idea = idea.ok_or_else(|| format!("{name}: a header is `# IDEA: ` and `# TESTS: `"))?;
        Ok(Self { name, patch, idea, tests })
    }
}

/// The copy of the tree.
struct Tree {
    path: PathBuf,
    target: PathBuf,
}

impl Tree {
    /// Copies all files that git does not ignore. Files that have not changed keep their time, so
    /// that the same code is built no second time.
    fn copy() -> Outcome<Self> {
        let root = root()?;
        let path = root.join("target/planted/tree");
        let files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let files = Cmd::new(&files).read()?;
        let copy_all = || -> io::Result<()> {
            let known = path.with_file_name("files");
            if fs::read_to_string(&known).ok().as_ref() != Some(&files) && path.exists() {
                fs::remove_dir_all(&path)?;
            }
            for file in files.trim_end().split('\0').filter(|file| root.join(file).is_file()) {
                let (copy, text) = (path.join(file), fs::read(root.join(file))?);
                if fs::read(&copy).ok().as_ref() != Some(&text) {
                    fs::create_dir_all(copy.parent().unwrap_or(&path))?;
                    fs::write(copy, text)?;
                }
            }
            fs::write(known, &files)
        };
        copy_all().map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, target: root.join("target/planted/target") })
    }

    fn apply(&self, bug: &Bug, options: &[&str]) -> Outcome {
        let above = self.path.parent().unwrap_or(&self.path);
        let (tree, patch) = (self.path.to_string_lossy(), bug.patch.to_string_lossy());
        Cmd::new(&["git", "-C", &tree, "apply"])
            .args(options)
            .args(&[&patch])
            // Inside of a repository, `apply` skips paths that are not below the folder it runs in.
            .env("GIT_CEILING_DIRECTORIES", &above.to_string_lossy())
            .read()
            .map(drop)
            .map_err(|why| format!("{} does not apply: {why}", bug.name))
    }

    fn finds(&self, bug: &Bug) -> Outcome<bool> {
        self.apply(bug, &[])?;
        let mut runs = bug.tests.iter().map(|tests| self.fails(tests));
        let found = runs.find(|run| *run != Ok(false)).unwrap_or(Ok(false));
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
        // A cache of an incremental build has broken the compiler, and gains no time here.
        build.env("CARGO_INCREMENTAL", "0").read()?;
        let run = Cmd::new(&["timeout", "--kill-after=5", LIMIT, "cargo", "test"]).args(&place);
        let run = run.args(&tests).env("CARGO_INCREMENTAL", "0");
        let (status, out, _) = run.run_silently()?;
        if out.lines().any(|line| line.starts_with("test result: FAILED")) {
            return Ok(true);
        }
        let has_run = out.lines().any(|line| line.starts_with("test ") && line.ends_with("... ok"));
        let why = || format!("no test failed, and not all ran: `{run}`: {status}\n{out}");
        if status.success() && has_run { Ok(false) } else { Err(why()) }
    }
}
