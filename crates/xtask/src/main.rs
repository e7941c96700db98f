//! What cargo alone cannot do: `cargo xtask help`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for a terminal")]
#![allow(clippy::disallowed_methods, reason = "it tells how long a step took")]

use std::env;
use std::process::ExitCode;
use std::time::Instant;

mod cmd;
mod features;
mod guards;
mod metadata;
mod model;
mod race;
mod readme;
mod redis;
mod restarts;
mod sim;
mod suite;

use cmd::{Outcome, cargo};

/// One check, also a subcommand.
struct Step {
    name: &'static str,
    about: &'static str,
    run: fn() -> Outcome,
}

/// What `cargo xtask test` does, in this order. The test suite is last: its result closes the output.
const STEPS: &[Step] = &[
    Step { name: "redis", about: "install redis-server, where there is none", run: redis::install },
    Step {
        name: "fmt",
        about: "the format is rustfmt's",
        run: || cargo(&["fmt", "--all", "--", "--check"]).run(),
    },
    Step {
        name: "clippy",
        about: "no warning in any target",
        run: || {
            cargo(&["clippy", "--workspace", "--all-targets", "--all-features"])
                .args(&["--locked", "--", "-D", "warnings"])
                .run()
        },
    },
    Step { name: "doc", about: "no warning from rustdoc", run: features::docs },
    Step {
        name: "features",
        about: "each published crate with no feature, with each alone, with all",
        run: features::check,
    },
    Step {
        name: "guards",
        about: "what may depend on what, who may read a clock, the MSRV, what is packed",
        run: guards::check,
    },
    Step { name: "readme", about: "README.md agrees with the manifests", run: readme::check },
    Step { name: "benches", about: "each benchmark runs, once and untimed", run: suite::benches },
    Step { name: "sim", about: "the seeded world, and bugs planted in it", run: sim::check },
    Step { name: "planted", about: "every planted bug is found", run: sim::find_planted },
    Step { name: "suite", about: "all tests and doc tests", run: suite::tests },
];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["test"] => run(STEPS),
        [] | ["help" | "--help" | "-h"] => {
            print!("{}", help());
            Ok(())
        }
        ["race", ref words @ ..] => race::race(words),
        ["model"] => model::check(),
        ["restarts", ref words @ ..] => restarts::restarts(words),
        ["sim", ref words @ ..] if !words.is_empty() => sim::sim(words),
        [name] if let Some(at) = STEPS.iter().position(|step| step.name == name) => {
            run(&STEPS[at..=at])
        }
        _ => Err(format!("no such task: {}\n\n{}", words.join(" "), help())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(steps: &[Step]) -> Outcome {
    let start = Instant::now();
    for step in steps {
        println!("== {}: {}", step.name, step.about);
        let start = Instant::now();
        (step.run)().map_err(|why| {
            format!("{} FAILED: {why}\nonly this step: cargo xtask {0}", step.name)
        })?;
        println!("== {}: passed in {:.1} s", step.name, start.elapsed().as_secs_f32());
    }
    let total = start.elapsed().as_secs_f32();
    println!("== {} of {} steps passed in {total:.1} s", steps.len(), STEPS.len());
    Ok(())
}

fn help() -> String {
    let mut text = String::from("cargo xtask test\n    all of these, in this order:\n\n");
    for step in STEPS {
        text += &format!("cargo xtask {:10} {}\n", step.name, step.about);
    }
    text +=
        "\ncargo xtask race\n    measures quorate beside the bare clients, on nodes of its own\n";
    text += "\ncargo xtask model\n    all proofs of fencing tokens: minutes, and gigabytes\n";
    text += "\ncargo xtask restarts\n    contended locks while nodes lose their data a thousand times\n";
    text
}
