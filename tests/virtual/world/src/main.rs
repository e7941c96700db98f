//! Runs seeds on all cores, and reports. `cargo xtask sim` builds it and passes its options on.
//!
//! The seeded world: lock managers, unchanged, on nodes and networks that fail in every way.
//!
//! One seed is one run. [`plan`] draws what the world is like, [`nemesis`] breaks it, [`worker`]
//! uses locks in it, and [`run()`] puts them together and judges.

#![allow(clippy::print_stdout, reason = "a program that reports")]

mod ability;
mod agreement;
mod calm;
mod closing;
mod dice;
mod door;
mod history;
mod nemesis;
mod oracle;
mod plan;
mod process;
mod replay;
mod report;
mod run;
mod stage;
mod tidy;
mod waiting;
mod watch;
mod worker;

use std::process::ExitCode;

use crate::report::{Options, sweep};
use crate::run::run;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            println!("{wrong}\n{}", Options::USAGE);
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = options.replay {
        let outcome = run(seed, options.class);
        print!("{}", replay::tell(seed, &outcome));
        return ExitCode::from(u8::from(!outcome.violations.is_empty()));
    }
    let report = sweep(&options);
    print!("{report}");
    ExitCode::from(u8::from(!report.failures.is_empty()))
}
