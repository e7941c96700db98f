//! Runs seeds on all cores, and reports. `cargo xtask sim` builds it and passes its options on.

#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::process::ExitCode;

use quorate_world::report::{Options, sweep};
use quorate_world::{keeping, replay, run};

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
    if let Some(renewals) = options.keep {
        let figures = keeping::keep(renewals);
        print!("{figures}");
        return ExitCode::from(u8::from(!figures.are_right()));
    }
    let report = sweep(&options);
    print!("{report}");
    ExitCode::from(u8::from(!report.failures.is_empty()))
}
