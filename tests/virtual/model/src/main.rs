//! Explores all of it, near misses and proofs. `cargo xtask model` builds it and runs it.

#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::process::ExitCode;

use quorate_model::{Size, limits, near_misses, promises, tokens};

fn main() -> ExitCode {
    let mut cases = [near_misses(), limits()].concat();
    cases.extend([promises(Size::Large, true), promises(Size::Large, false)].concat());
    cases.extend(tokens(Size::Large));
    let mut is_good = true;
    for case in cases {
        let report = case.run();
        println!("{report}");
        if let Some((_, way)) = &report.violation {
            println!("{way}");
        }
        if !case.is_as_expected(&report) {
            println!("NOT AS EXPECTED");
            is_good = false;
        }
    }
    println!("{}", if is_good { "all as it should be" } else { "FAILED" });
    ExitCode::from(u8::from(!is_good))
}
