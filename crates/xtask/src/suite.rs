//! The tests and benchmarks.

use std::env;
use std::process::Command;

use crate::cmd::{Outcome, cargo};
use crate::world::debug;

/// Runs all tests that are programs of their own, and builds the examples, which some of them run.
pub(crate) fn tests() -> Outcome {
    count(&["--lib", "--bins", "--tests", "--examples", "--no-fail-fast"])
}

/// Runs the examples in the documentation.
pub(crate) fn doc_tests() -> Outcome {
    count(&["--doc"])
}

/// Counts the tests that ran: a suite that skips or finds none has not passed.
fn count(targets: &[&str]) -> Outcome {
    let mut tally = Tally::default();
    // Most tests on real nodes wait.
    let threads = env::var("RUST_TEST_THREADS").unwrap_or_else(|_| "8".to_owned());
    cargo(&["test", "--workspace", "--all-features", "--locked"])
        .env("RUST_TEST_THREADS", &threads)
        .args(targets)
        .run_seeing(|line| tally.add(line))?;
    println!("   {} tests passed", tally.passed);
    tally.judge()
}

/// Runs the tests that start servers of their own, once with each server named.
pub(crate) fn servers(paths: &[&str]) -> Outcome {
    if paths.is_empty() {
        return Err("name the servers: cargo xtask servers PATH…".to_owned());
    }
    for path in paths {
        println!("== {path}");
        let has_tls = has_tls(path)?;
        if !has_tls {
            println!("   built without TLS: the tests over TLS are left out");
        }
        let tests = cargo(&["test", "--all-features", "--locked", "--tests", "--no-fail-fast"]);
        let tests = tests.args(&["--package", "quorate-tests"]);
        let skipped: &[&str] = if has_tls { &[] } else { &["--", "--skip", "tls"] };
        tests.env("QUORATE_REDIS_SERVER", path).args(skipped).run()?;
    }
    Ok(())
}

/// Runs the processes that contend while nodes lose their data, for a thousand losses.
pub(crate) fn restarts() -> Outcome {
    cargo(&["test", "--package", "quorate-tests", "--all-features", "--locked", "--test", "real"])
        .args(&["restarts::", "--", "--nocapture"])
        .env("QUORATE_CYCLES", "1000")
        .run()
}

/// Whether a server has TLS: then it ends, since it is given no certificate.
fn has_tls(path: &str) -> Result<bool, String> {
    let why = |error| format!("{path}: {error}");
    let told = Command::new(path).args(["--port", "0", "--tls-port", "1"]).output().map_err(why)?;
    Ok(String::from_utf8_lossy(&told.stdout).contains("tls-cert-file"))
}

/// Runs each benchmark once, and a quick race. In the test profile: it is there already, and
/// nothing is timed.
pub(crate) fn benches() -> Outcome {
    cargo(&["test", "--package", "quorate-benches", "--benches", "--all-features", "--locked"])
        .args(&["--", "--test"])
        .run()?;
    cargo(&debug("quorate-race")).args(&["--quick", "--out", "target/race/quick"]).run()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    ignored: u64,
}

impl Tally {
    /// Counts `test result: ok. 5 passed; 0 failed; 0 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        for part in result.split(['.', ';']) {
            if let Some((count, what)) = part.trim().split_once(' ')
                && let Ok(count) = count.parse::<u64>()
            {
                match what {
                    "passed" => self.passed += count,
                    "ignored" => self.ignored += count,
                    _ => {}
                }
            }
        }
    }

    fn judge(&self) -> Outcome {
        match self {
            Self { passed: 0, .. } => Err("no test ran".to_owned()),
            Self { ignored: 1.., .. } => Err(format!("ignored tests: {}", self.ignored)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add(line));
        tally
    }

    const FIVE: &str = "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.20s";
    const IGNORED: &str = "test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.20s";
    const NONE: &str = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";

    #[test]
    fn results_add_up() {
        let tally = tally(&["running 5 tests", FIVE, "test a ... ok", FIVE, NONE]);
        assert_eq!((tally.passed, tally.ignored), (10, 0));
        assert_eq!(tally.judge(), Ok(()));
    }

    #[test]
    fn a_suite_without_tests_or_with_ignored_ones_has_not_passed() {
        assert!(tally(&[NONE]).judge().is_err());
        assert!(tally(&[FIVE, IGNORED]).judge().is_err());
    }
}
