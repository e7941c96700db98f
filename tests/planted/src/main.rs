//! Switches each planted bug on, and fails unless the check that belongs to it finds it.
//!
//! The programs that check are built once, with `--cfg quorate_planted`. The environment names the bug.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]
#![expect(clippy::disallowed_methods, reason = "it tells how long each bug took")]

use std::env;
use std::process::{Command, ExitCode, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

mod list;

use list::{BUGS, Bug, Check, Target};

const USAGE: &str = "words: nothing, for all planted bugs; NAME, for one; NAME --replay SEED";

/// Where what is built with the bugs lies, apart from all other builds.
const TARGET_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/planted");

/// A bug is to be found within so many seeds.
const SEEDS: &str = "20000";

/// So many seeds are clean without a bug.
const CLEAN_SEEDS: &str = "2000";

type Outcome<T = ()> = Result<T, String>;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        [] => model().and_then(|()| find(&BUGS.iter().collect::<Vec<_>>())),
        [name] => named(name).and_then(|bug| find(&[bug])),
        [name, "--replay", seed] => named(name).and_then(|bug| replay(bug, seed)),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("planted: {why}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> Outcome<&'static Bug> {
    let known = || BUGS.iter().map(|bug| bug.name).collect::<Vec<_>>().join(", ");
    let bug = BUGS.iter().find(|bug| bug.name == name);
    bug.ok_or_else(|| format!("no such bug; there are: {}", known()))
}

/// Looks for each bug, after a look that finds nothing without one.
fn find(bugs: &[&Bug]) -> Outcome {
    let start = Instant::now();
    build(bugs)?;
    println!("built in {:.0} s", start.elapsed().as_secs_f32());
    let start = Instant::now();
    nothing_without_a_bug(bugs)?;
    println!("nothing is found without a bug, in {:.0} s", start.elapsed().as_secs_f32());
    println!("{:<8} {:<38} {:>8}  found by", "rule", "bug", "seconds");
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !is_found(bug)? {
                missed.lock().unwrap_or_else(PoisonError::into_inner).push(bug.name);
            }
        }
        Ok::<(), String>(())
    };
    // Most of a look is spent in one thread.
    thread::scope(|scope| {
        let other = scope.spawn(work);
        let own = work();
        own?;
        other.join().unwrap_or_else(|_| Err("a look panicked".to_owned()))
    })?;
    let missed = missed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} of {} found", bugs.len() - missed.len(), bugs.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", "))) }
}

/// Looks for a bug, and reports what found it.
fn is_found(bug: &Bug) -> Outcome<bool> {
    let start = Instant::now();
    let found = look_for(bug)?;
    let seconds = start.elapsed().as_secs_f32();
    println!(
        "{:<8} {:<38} {seconds:>8.1}  {}",
        bug.rule,
        bug.name,
        found.as_deref().unwrap_or("NOTHING"),
    );
    if found.is_none() {
        println!("         the idea: {}", bug.idea);
    }
    Ok(found.is_some())
}

/// Lets the model of the attempt look for the bugs that are planted there: each breaks a promise.
fn model() -> Outcome {
    let words = ["test", "--package", "quorate-model", "--test", "model", "planted::"];
    let run = output(&mut cargo(&words))?;
    if text_of(&run).contains("test result: ok. 1 passed;") {
        println!("the model finds each bug of the attempt");
        return Ok(());
    }
    Err(format!("the model of the attempt:\n{}", text_of(&run)))
}

/// What found the bug, if something did.
fn look_for(bug: &Bug) -> Outcome<Option<String>> {
    match bug.check {
        Check::World(class) => {
            let run = world(bug.name, &["--seeds", SEEDS, "--failures", "1", "--class", class])?;
            let seed = text_of(&run).lines().find_map(failing_seed);
            Ok(seed.map(|seed| format!("world {class}, seed {seed}")))
        }
        Check::Test(target, test) => {
            let run = tests(target, bug.name, &[test])?;
            let is_red = text_of(&run).contains("test result: FAILED. 0 passed; 1 failed;");
            Ok(is_red.then(|| format!("{} {test}", target.name())))
        }
    }
}

fn nothing_without_a_bug(bugs: &[&Bug]) -> Outcome {
    for class in ["promised", "storm", "guarded"] {
        if bugs.iter().any(|bug| bug.check == Check::World(class)) {
            let run = world("", &["--seeds", CLEAN_SEEDS, "--failures", "1", "--class", class])?;
            if !run.status.success() {
                return Err(format!("the world fails without a bug:\n{}", text_of(&run)));
            }
        }
    }
    for target in Target::ALL {
        let mut names = tests_of(bugs, target);
        names.sort_unstable();
        names.dedup();
        if !names.is_empty() {
            if target == Target::Core {
                names.push("planted::tests::a_bug_is_on_for_the_thread_that_switches_it_on");
            }
            let run = tests(target, "", &names)?;
            let all = format!("test result: ok. {} passed; 0 failed;", names.len());
            if !text_of(&run).contains(&all) {
                return Err(format!("without a bug, {names:?}:\n{}", text_of(&run)));
            }
        }
    }
    Ok(())
}

/// Prints the history of a seed under a bug.
fn replay(bug: &Bug, seed: &str) -> Outcome {
    let Check::World(class) = bug.check else {
        return Err(format!("{} is found by a test, which has no seed", bug.name));
    };
    build(&[bug])?;
    print!("{}", text_of(&world(bug.name, &["--replay", seed, "--class", class])?));
    Ok(())
}

fn build(bugs: &[&Bug]) -> Outcome {
    let mut builds = vec![cargo(&["build", "--release", "--package", "quorate-world"])];
    for target in Target::ALL {
        if !tests_of(bugs, target).is_empty() {
            let mut build = cargo(&["test", "--no-run"]);
            build.args(target.words());
            builds.push(build);
        }
    }
    for mut build in builds {
        let built = build.status().map_err(|error| format!("cargo: {error}"))?;
        if !built.success() {
            return Err(format!("{build:?}: {built}"));
        }
    }
    Ok(())
}

fn world(bug: &str, words: &[&str]) -> Outcome<Output> {
    let mut program = Command::new(format!("{TARGET_DIR}/release/quorate-world"));
    output(program.args(words).env("QUORATE_PLANTED", bug))
}

fn tests(target: Target, bug: &str, names: &[&str]) -> Outcome<Output> {
    let mut test = cargo(&["test"]);
    output(
        test.args(target.words()).args(["--", "--exact"]).args(names).env("QUORATE_PLANTED", bug),
    )
}

fn tests_of(bugs: &[&Bug], target: Target) -> Vec<&'static str> {
    let tests = bugs.iter().filter_map(|bug| match bug.check {
        Check::Test(of, test) if of == target => Some(test),
        _ => None,
    });
    tests.collect()
}

impl Target {
    const ALL: [Self; 7] = [
        Self::Core,
        Self::Quorum,
        Self::Attempt,
        Self::LocalQueue,
        Self::Rules,
        Self::Runtimes,
        Self::Protocol,
    ];

    /// What to call it.
    const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Quorum => "core's quorum",
            Self::Attempt => "core's attempt",
            Self::LocalQueue => "core's local queue",
            Self::Rules => "rules",
            Self::Runtimes => "runtimes",
            Self::Protocol => "protocol",
        }
    }

    /// What to call it in front of cargo.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Core => &["--package", "quorate-core", "--lib"],
            Self::Quorum => &["--package", "quorate-core", "--test", "quorum"],
            Self::Attempt => &["--package", "quorate-core", "--test", "attempt"],
            Self::LocalQueue => &["--package", "quorate-core", "--test", "local_queue"],
            Self::Rules => &["--package", "quorate-tests", "--test", "rules"],
            Self::Runtimes => &["--package", "quorate-tests", "--test", "runtimes"],
            Self::Protocol => &["--package", "quorate-protocol", "--test", "protocol"],
        }
    }
}

/// Cargo, for builds that have the bugs in them.
fn cargo(words: &[&str]) -> Command {
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(words)
        .args(["--quiet", "--locked", "--target-dir", TARGET_DIR])
        .env("RUSTFLAGS", format!("{flags} --cfg quorate_planted"));
    cargo
}

fn output(command: &mut Command) -> Outcome<Output> {
    command.output().map_err(|error| format!("{command:?}: {error}"))
}

fn text_of(run: &Output) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

fn failing_seed(line: &str) -> Option<u64> {
    line.strip_prefix("  seed ")?.split(':').next()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The names of all points below a folder.
    fn points_below(folder: &Path, points: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                points_below(&path, points);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                for line in code {
                    let after = line.split("planted!(\"").skip(1);
                    points
                        .extend(after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
                }
            }
        }
    }

    #[test]
    fn every_point_in_the_code_is_listed_and_every_bug_has_a_point() {
        let mut points = BTreeSet::new();
        points_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates"), &mut points);
        let listed: BTreeSet<String> = BUGS.iter().map(|bug| bug.name.to_owned()).collect();
        assert_eq!(listed.len(), BUGS.len(), "a bug is listed twice");
        assert_eq!(points, listed);
    }

    #[test]
    fn every_rule_outside_waiting_has_a_bug() {
        let rules = [('T', 1..=5), ('Q', 1..=6), ('C', 1..=8), ('H', 1..=7), ('A', 1..=6)];
        for (letter, numbers) in rules {
            for rule in numbers.map(|number| format!("{letter}{number}")) {
                let has_bug = BUGS.iter().any(|bug| bug.rule == rule);
                assert_eq!(has_bug, rule != "A2", "{rule}");
            }
        }
    }

    #[test]
    fn a_failing_seed_is_read_from_a_report() {
        assert_eq!(failing_seed("  seed 17: two holders of r"), Some(17));
        assert_eq!(failing_seed("    replay: cargo xtask sim --replay 17"), None);
    }
}
