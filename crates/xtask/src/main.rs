//! What cargo alone cannot do. `cargo xtask` lists its commands.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for a terminal")]

use std::env;
use std::process::ExitCode;

mod cmd;
mod features;
mod guards;
mod metadata;
mod planted;
mod readme;
mod redis;
mod stage;
mod suite;
mod tools;
mod world;

use cmd::{Outcome, cargo};
use stage::{Stage, run};

/// `cargo xtask test`: what a newcomer runs.
const TEST: &[Stage] = &[
    Stage::new("redis", "install redis-server if it is missing", redis::install),
    Stage::new("tests", "unit tests and integration tests", suite::tests),
    Stage::new("doctests", "the examples in the documentation", suite::doc_tests),
];

/// `cargo xtask ci`: the deeper checks that belong to every change.
const CI: &[Stage] = &[
    Stage::new("fmt", "the format is rustfmt's", || {
        cargo(&["fmt", "--all", "--", "--check"]).run()
    }),
    Stage::new("clippy", "no warning in any target", || {
        let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked"];
        cargo(&clippy).args(&["--", "-D", "warnings"]).run()
    }),
    Stage::new("doc", "no warning from rustdoc", features::docs),
    Stage::new("features", "each published crate: no feature, each, all", features::check),
    Stage::new("guards", "what the core needs, the MSRV, what is packed", guards::check),
    Stage::new("tools", "dependencies and their licences, spelling", tools::check),
    Stage::new("readme", "README.md agrees with the manifests", readme::check),
    Stage::new("benches", "each benchmark runs once, untimed", suite::benches),
    Stage::new("seeds", "10,000 simulated worlds, some of each class", world::check),
    Stage::new("drawn", "all planted bugs apply, and five drawn ones are found", || {
        planted::run(&["--draw", "5"])
    }),
];

/// Commands that take words of their own, and what they are for.
const OTHERS: &[(&str, &str)] = &[
    ("sim", "the simulated world: --seeds N, --replay SEED, --class NAME"),
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
        ["sim", ref words @ ..] => world::sim(words),
        ["planted", ref words @ ..] => planted::run(words),
        ["model"] => cargo(&world::release("quorate-model")).run(),
        ["restarts"] => suite::restarts(),
        ["servers", ref paths @ ..] => suite::servers(paths),
        ["race", ref words @ ..] => cargo(&world::release("quorate-race")).args(words).run(),
        [name] => one(name),
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

/// Runs one stage by its name.
fn one(name: &str) -> Outcome {
    match TEST.iter().chain(CI).find(|stage| stage.name == name) {
        Some(stage) => run(std::slice::from_ref(stage)),
        None => Err(format!("no such command: {name}\n\n{}", help())),
    }
}

fn help() -> String {
    let line = |(name, about): (&str, &str)| format!("cargo xtask {name:9} {about}\n");
    let stages = |stages: &[Stage]| -> String {
        stages.iter().map(|stage| line((stage.name, stage.about))).collect()
    };
    let others: String = OTHERS.iter().copied().map(line).collect();
    let test = line(("test", "runs the tests: these stages"));
    let ci = line(("ci", "runs the deeper checks of every change: these stages"));
    format!("{test}{}\n{ci}{}\nLonger:\n{others}", stages(TEST), stages(CI))
}
