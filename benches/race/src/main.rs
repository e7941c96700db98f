//! quorate against the bare clients and rslock, on real nodes, interleaved in one run.
//!
//! `cargo xtask race [--quick] [--only MEASURE,…] [--repetitions R] [--publish]`. The program starts the nodes, and
//! itself again for every sample: a contestant has a process of its own, so that its CPU time and its memory are its
//! own. `cargo xtask race sizing` measures what a lock costs instead, and `cargo xtask race instructions [--publish]
//! [CONTESTANT…]` counts the instructions of a cycle, by valgrind.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool for a terminal")]

use std::env;
use std::error::Error;
use std::process::ExitCode;

mod arena;
mod book;
mod contest;
mod instructions;
mod measure;
mod report;
mod sizing;
mod usage;
mod worker;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let result = match words.split_first() {
        Some((first, rest)) if first == "worker" => worker::main(rest),
        Some((first, [])) if first == "sizing" => sizing::main(),
        Some((first, only)) if first == "instructions" => instructions::main(only),
        _ => race(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("race: {why}");
            ExitCode::FAILURE
        }
    }
}

fn race(words: &[String]) -> Outcome {
    let plan = measure::Plan::parse(words)?;
    let book = measure::run(&plan)?;
    report::write(&plan, &book)?;
    match (&*book.failures, book.keys_left) {
        ([], 0) => Ok(()),
        ([], left) => Err(format!("quorate left {left} keys on the nodes").into()),
        (failures, _) => Err(failures.join("\n").into()),
    }
}
