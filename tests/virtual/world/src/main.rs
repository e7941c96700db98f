//! The seeded world: lock managers, unchanged, on nodes and networks that fail in every way.
//!
//! One seed is one run. [`plan`] draws what the world is like, [`nemesis`] breaks it, [`worker`]
//! uses locks in it, and [`run()`] puts them together and judges. `cargo xtask sim` builds the program and passes its
//! options on.

#![allow(clippy::print_stdout, reason = "a program that reports")]

mod bodies;
mod calm;
mod cut;
#[allow(dead_code, unreachable_pub, reason = "tests on real nodes use it, too")]
#[path = "../../../support/dice.rs"]
mod dice;
mod groups;
mod history;
mod jobs;
mod nemesis;
mod oracle;
mod permits;
mod plan;
mod process;
mod report;
mod run;
mod waiting;
mod watch;
mod worker;
mod world;

use std::process::ExitCode;

use crate::report::{Options, sweep, tell};
use crate::run::run;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            println!("{wrong}\n{}", Options::usage());
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = options.replay {
        let outcome = run(seed, options.class());
        print!("{}", tell(seed, &outcome));
        return ExitCode::from(u8::from(!outcome.violations.is_empty()));
    }
    let reports = sweep(&options);
    reports.iter().for_each(|report| println!("{report}"));
    ExitCode::from(u8::from(reports.iter().any(|report| !report.failures.is_empty())))
}
