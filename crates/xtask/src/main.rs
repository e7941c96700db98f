//! What cargo alone cannot do. `cargo xtask` lists its commands.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for a terminal")]
#![allow(clippy::disallowed_methods, reason = "it tells how long a stage took")]

use std::env;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

mod cmd;
mod packages;
mod planted;
mod redis;
mod suite;
mod texts;

use cmd::{IS_QUIET, Outcome, cargo};
use suite::release;

/// A check: its name, its subject, and how it runs.
type Stage = (&'static str, &'static str, fn() -> Outcome);

/// `cargo xtask test`: what a newcomer runs.
const TEST: &[Stage] = &[
    ("redis", "install redis-server if it is missing", redis::install),
    ("tests", "unit tests and integration tests", suite::tests),
    ("doctests", "the examples in the documentation", suite::doc_tests),
];

/// `cargo xtask ci`: the deeper checks that belong to every change.
const CI: &[Stage] = &[
    ("fmt", "the format is rustfmt's", || cargo(&["fmt", "--all", "--", "--check"]).run()),
    ("clippy", "no warning in any target", || {
        let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked"];
        cargo(&clippy).args(&["--", "-D", "warnings"]).run()
    }),
    ("doc", "no warning from rustdoc", packages::docs),
    ("features", "each published crate: no feature, each, all", packages::features),
    ("guards", "what the core needs, what is packed", packages::check),
    ("tools", "dependencies and their licences, spelling", packages::tools),
    (
        "readme",
        "README.md agrees with the manifests, links, paths and test names hold",
        texts::check,
    ),
    ("benches", "each benchmark runs once, untimed", suite::benches),
    ("seeds", "10,000 simulated worlds, some of each class", suite::seeds),
    ("drawn", "all planted bugs apply, and five drawn ones are found", || {
        planted::run(&["--draw", "5"])
    }),
];

/// Commands that take words of their own, and their purpose.
const OTHERS: &[(&str, &str)] = &[
    ("sim", "the simulated world: --seeds N, --replay SEED, --class NAME|all"),
    ("fuzz", "searches for inputs that break a promise: SECONDS [TARGET…]"),
    ("planted", "planted bugs, each of which a test finds: --check, --draw N, NAME…"),
    ("model", "all proofs by model checking: minutes, and gigabytes of memory"),
    ("restarts", "contended locks while real nodes lose their data a thousand times"),
    ("servers", "the tests on real nodes, with each server program that is named: PATH…"),
    ("race", "measures quorate beside other clients, on nodes of its own"),
];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        [] | ["help" | "--help" | "-h"] => {
            print!("{}", help());
            Ok(())
        }
        ["test"] => run(TEST),
        ["ci"] => run(CI),
        ["sim", ref words @ ..] => release("quorate-world").args(words).run(),
        ["fuzz", seconds, ref targets @ ..] => suite::fuzz(seconds, targets),
        ["planted", ref words @ ..] => planted::run(words),
        ["model"] => release("quorate-model").run(),
        ["restarts"] => suite::restarts(),
        ["servers", ref paths @ ..] => suite::servers(paths),
        ["race", ref words @ ..] => release("quorate-race").args(words).run(),
        [name] if stage(name).is_some() => run(stage(name).as_slice()),
        _ => Err(format!("no such command: {}\n\n{}", words.join(" "), help())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn stage(name: &str) -> Option<Stage> {
    TEST.iter().chain(CI).copied().find(|stage| stage.0 == name)
}

/// Runs the stages until one fails. What their commands print is shown only of one that fails.
fn run(stages: &[Stage]) -> Outcome {
    IS_QUIET.store(true, Ordering::Relaxed);
    for (name, about, run) in stages {
        println!("== {name}: {about}");
        let start = Instant::now();
        run()
            .map_err(|why| format!("{name} FAILED: {why}\nonly this stage: cargo xtask {name}"))?;
        println!("== {name}: passed in {:.1} s", start.elapsed().as_secs_f32());
    }
    Ok(())
}

fn help() -> String {
    let line = |name: &str, about: &str| format!("cargo xtask {name:9} {about}\n");
    let stages = |stages: &[Stage]| stages.iter().map(|stage| line(stage.0, stage.1)).collect();
    let test = line("test", "runs the tests: these stages");
    let ci = line("ci", "runs the deeper checks of every change: these stages");
    let others = OTHERS.iter().map(|(name, about)| line(name, about)).collect();
    [test, stages(TEST), "\n".to_owned(), ci, stages(CI), "\nLonger:\n".to_owned(), others].concat()
}
