//! Checks everything, near misses and proofs. `cargo xtask model` builds it and runs it.

#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::process::ExitCode;

use quorate_model::case::{Case, Hints};
use quorate_model::check::{Report, explore, search};

fn main() -> ExitCode {
    let mut is_good = true;
    for (case, properties) in Case::near_misses() {
        for property in properties {
            let report = search(&case, property);
            println!("{report}");
            match report.run(property) {
                Some(run) => println!("{property} is violated:\n{run}"),
                None => {
                    println!("NOT FOUND: {property}");
                    is_good = false;
                }
            }
        }
    }
    let proofs: [fn() -> Report; 7] = [
        || explore(&Case::two()),
        || explore(&Case::new("two attempts, extensions") as &Case<2>),
        || explore(&Case::two_extended()),
        || explore(&Case::two_resent()),
        || explore(&Case::two_lost("a loss, a hint with each sending", Hints::Send)),
        || explore(&Case::two_lost("a loss, quarantine", Hints::Quarantine)),
        || explore(&Case::three()),
    ];
    for proof in proofs {
        let report = proof();
        println!("{report}");
        for (property, run) in &report.violated {
            println!("{property} is violated:\n{run}");
        }
        is_good &= report.is_proof();
    }
    println!("{}", if is_good { "all as it should be" } else { "FAILED" });
    ExitCode::from(u8::from(!is_good))
}
