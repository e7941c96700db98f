//! Wrong versions of the core, which the seeded world must find.
//!
//! A copy of the core, of the fake and of the world is made below `target/planted`. Each bug is a
//! change of text there, switched on by its name in the environment. So the shipped crates have no
//! trace of them, and a change of the core that a bug no longer fits is an error here.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cmd::{Cmd, Outcome, root};

#[path = "planted/bugs.rs"]
mod bugs;
#[path = "planted/guarded.rs"]
mod guarded;

use bugs::{BUGS, Bug};
use guarded::GUARDED;

/// The environment variable that names the bug.
const SWITCH: &str = "QUORATE_PLANTED";

/// A bug is to be found within so many seeds.
const SEEDS: u64 = 40_000;

/// After so many finds, the next bug has its turn.
const FINDS: usize = 5;

/// The bugs, by the kind of world that must find them.
const ALL: [(&str, &[Bug]); 2] = [("promised", BUGS), ("guarded", GUARDED)];

/// What the copies are made of.
const PARTS: [&str; 3] = ["crates/quorate-core", "crates/quorate-memory", "tests/world"];

/// Lets the world look for each bug (or for one), and for none.
pub(crate) fn find_all(only: Option<&str>) -> Outcome {
    let program = build()?;
    let mut lost = Vec::new();
    for (class, _) in ALL {
        let none = failures(&program, class, "none", 2_000)?;
        println!("{:<32} {} of 2000 seeds fail, {class}", "(no bug)", none.len());
        if !none.is_empty() {
            return Err("the world fails without a planted bug".to_owned());
        }
    }
    println!("{:<32} {:>12} {:>12} {:>9}", "bug", "seeds to find", "median gap", "seconds");
    let mut medians = Vec::new();
    for (class, bug) in all().filter(|(_, bug)| only.is_none_or(|only| only == bug.name)) {
        let start = Instant::now();
        let found = failures(&program, class, bug.name, SEEDS)?;
        let seconds = start.elapsed().as_secs_f32();
        let Some(first) = found.first() else {
            lost.push(bug.name);
            println!("{:<32} {:>12} in {SEEDS} seeds, {seconds:.1} s", bug.name, "NOT FOUND");
            continue;
        };
        let median = median_gap(&found);
        medians.push(median);
        println!("{:<32} {first:>12} {median:>12} {seconds:>9.1}", bug.name);
    }
    medians.sort_unstable();
    if let Some(median) = medians.get(medians.len() / 2) {
        println!(
            "{} of {} found, median {median} seeds",
            medians.len(),
            medians.len() + lost.len()
        );
    }
    if only.is_some() && medians.is_empty() && lost.is_empty() {
        let names: Vec<_> = all().map(|(_, bug)| bug.name).collect();
        return Err(format!("no such bug; there are: {}", names.join(", ")));
    }
    if lost.is_empty() { Ok(()) } else { Err(format!("not found: {}", lost.join(", "))) }
}

fn all() -> impl Iterator<Item = (&'static str, &'static Bug)> {
    ALL.into_iter().flat_map(|(class, bugs)| bugs.iter().map(move |bug| (class, bug)))
}

/// Tells the history of a seed under a bug.
pub(crate) fn replay(bug: &str, seed: &str) -> Outcome {
    let program = build()?;
    // It fails, and that is the point.
    let class = all().find(|(_, known)| known.name == bug).map_or("promised", |(class, _)| class);
    let told = command(&program).args(&["--class", class, "--replay", seed]);
    let told = told.env(SWITCH, bug).run();
    match told {
        Err(why) if why.contains("exit status: 1") => Ok(()),
        told => told,
    }
}

/// The seeds that fail, as the world prints them.
fn failures(program: &Path, class: &str, bug: &str, seeds: u64) -> Outcome<Vec<u64>> {
    let seeds = seeds.to_string();
    let finds = FINDS.to_string();
    let run = command(program)
        .args(&["--class", class, "--seeds", &seeds, "--failures", &finds])
        .env(SWITCH, bug)
        .read_whatever_status()?;
    let mut found: Vec<u64> = run.lines().filter_map(failing_seed).collect();
    found.sort_unstable();
    Ok(found)
}

fn command(program: &Path) -> Cmd {
    Cmd::new(&program.display().to_string())
}

fn failing_seed(line: &str) -> Option<u64> {
    line.strip_prefix("  seed ")?.split(':').next()?.parse().ok()
}

/// The median of the seeds between one find and the next.
fn median_gap(found: &[u64]) -> u64 {
    let mut before = 0;
    let mut gaps: Vec<u64> = Vec::new();
    for seed in found {
        gaps.push(seed - before);
        before = *seed;
    }
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(0)
}

fn build() -> Outcome<PathBuf> {
    let root = root()?;
    let top = root.join("target/planted");
    for part in PARTS {
        copy(&root.join(part), &top.join(part))?;
    }
    let manifest = read(&root.join("Cargo.toml"))?;
    write(&top.join("Cargo.toml"), &workspace_of_parts(&manifest))?;
    let lock = read(&root.join("Cargo.lock"))?;
    write(&top.join("Cargo.lock"), &lock)?;
    write(&top.join("crates/quorate-core/src/planted.rs"), include_str!("planted/switch.rs.txt"))?;
    let lib = top.join("crates/quorate-core/src/lib.rs");
    write(&lib, &(read(&lib)? + "\n#[allow(missing_docs)]\npub mod planted;\n"))?;
    for (_, bug) in all() {
        plant(&top, bug)?;
    }
    let manifest = top.join("Cargo.toml").display().to_string();
    let target = top.join("target").display().to_string();
    Cmd::new("cargo")
        .args(&["build", "--quiet", "--release", "--package", "quorate-world"])
        .args(&["--manifest-path", &manifest, "--target-dir", &target])
        .env("RUSTFLAGS", "--cap-lints=allow")
        .run()?;
    Ok(top.join("target/release/quorate-world"))
}

/// The same workspace, of which only the copied parts are there.
fn workspace_of_parts(manifest: &str) -> String {
    let line = |line: &str| match line {
        line if line.starts_with("members = ") => format!("members = {PARTS:?}"),
        line if line.starts_with("default-members = ") => format!("default-members = {PARTS:?}"),
        line => line.to_owned(),
    };
    manifest.lines().map(|text| line(text) + "\n").collect()
}

/// Makes the changes of a bug. Each must fit exactly once.
fn plant(top: &Path, bug: &Bug) -> Outcome {
    for (file, find, replace) in bug.edits {
        let path = top.join(file);
        let text = read(&path)?;
        let switched = replace.replace("PLANTED", &format!("quorate_planted(\"{}\")", bug.name));
        let changed = substitute(&text, find, &switched)
            .map_err(|times| format!("bug {}: {times} places in {file} fit\n{find}", bug.name))?;
        write(&path, &changed)?;
    }
    Ok(())
}

/// Replaces the one place that fits, white space aside; else, how many places do.
fn substitute(text: &str, find: &str, replace: &str) -> Result<String, usize> {
    let places: Vec<(usize, usize)> = text
        .char_indices()
        .filter_map(|(start, _)| fits(&text[start..], find).map(|len| (start, start + len)))
        .collect();
    match places[..] {
        [(start, end)] => Ok(format!("{}{replace}{}", &text[..start], &text[end..])),
        _ => Err(places.len()),
    }
}

/// How much of `text` is `find`, if it begins with it. A run of white space equals any other.
fn fits(text: &str, find: &str) -> Option<usize> {
    if text.starts_with(char::is_whitespace) {
        return None;
    }
    let mut rest = text;
    for word in find.split_whitespace() {
        rest = rest.trim_start().strip_prefix(word)?;
    }
    Some(text.len() - rest.len())
}

fn copy(from: &Path, to: &Path) -> Outcome {
    if from.is_dir() {
        fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
        let entries = fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
        for entry in entries.flatten() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    write(to, &read(from)?)
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Leaves a file alone that is the same, so that nothing is built for it.
fn write(path: &Path, text: &str) -> Outcome {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_fits_one_place_whatever_the_white_space() {
        assert_eq!(substitute("a (b,\n  c) d", "(b, c)", "X"), Ok("a X d".to_owned()));
        assert_eq!(substitute("a b a b", "a b", "X"), Err(2));
        assert_eq!(substitute("a", "b", "X"), Err(0));
    }

    #[test]
    fn seeds_are_read_from_the_report() {
        assert_eq!(failing_seed("  seed 17: two holders of r"), Some(17));
        assert_eq!(failing_seed("    replay: cargo xtask sim --replay 17"), None);
        assert_eq!(median_gap(&[3, 4, 10]), 3);
    }

    /// Every bug still fits the sources, one at a time and all together.
    #[test]
    fn every_bug_fits_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut texts = std::collections::HashMap::new();
        assert!(BUGS.len() >= 20);
        for (_, bug) in all() {
            for (file, find, replace) in bug.edits {
                let text = texts
                    .entry(*file)
                    .or_insert_with(|| fs::read_to_string(root.join(file)).unwrap());
                let changed = substitute(text, find, replace);
                *text = changed.unwrap_or_else(|n| panic!("{}: {n} places: {find}", bug.name));
            }
        }
    }
}
