//! The tests, the benchmarks and the searches.

use std::{env, fs};

use crate::cmd::{Cmd, Outcome, cargo, list, root, stem};
use crate::packages::need;

/// Runs all tests that are programs of their own, and builds the examples, which some of them run.
pub(crate) fn tests() -> Outcome {
    count(&["--lib", "--bins", "--tests", "--examples", "--no-fail-fast"])
}

/// Runs the examples in the documentation.
pub(crate) fn doc_tests() -> Outcome {
    count(&["--doc"])
}

/// Counts the tests that ran: a suite that skips some or finds none has not passed.
fn count(targets: &[&str]) -> Outcome {
    // Most tests on real nodes wait.
    let threads = env::var("RUST_TEST_THREADS").unwrap_or_else(|_| "8".to_owned());
    let tests = cargo(&["test", "--workspace", "--all-features", "--locked"]).args(targets);
    let [passed, ignored] = counts(&tests.env("RUST_TEST_THREADS", &threads).read()?);
    println!("   {passed} tests passed");
    match (passed, ignored) {
        (0, _) => Err("no test ran".to_owned()),
        (_, 0) => Ok(()),
        _ => Err(format!("ignored tests: {ignored}")),
    }
}

/// The tests that passed and that were ignored, in `test result: ok. 5 passed; 0 failed; 0 ignored; …`.
fn counts(output: &str) -> [u64; 2] {
    let results = || output.lines().filter_map(|line| line.strip_prefix("test result: "));
    ["passed", "ignored"].map(|what| {
        let parts = results().flat_map(|line| line.split(['.', ';']));
        let counts =
            parts.filter_map(|part| part.trim().strip_suffix(what)?.trim().parse::<u64>().ok());
        counts.sum()
    })
}

/// Runs the tests that start servers of their own, once with each server named.
pub(crate) fn servers(paths: &[&str]) -> Outcome {
    for path in paths {
        println!("== {path}");
        // With TLS the server ends, since it is given no certificate.
        let (_, told, _) = Cmd::new(&[path, "--port", "0", "--tls-port", "1"]).run_silently()?;
        let has_tls = told.contains("tls-cert-file");
        let skipped = if has_tls { &[][..] } else { &["--", "--skip", "tls"] };
        let words = ["--all-features", "--locked", "--tests", "--no-fail-fast"];
        let tests = cargo(&["test", "--package", "quorate-tests"]).args(&words).args(skipped);
        tests.env("QUORATE_REDIS_SERVER", path).run()?;
    }
    if paths.is_empty() { Err("name the servers".to_owned()) } else { Ok(()) }
}

/// Runs the processes that contend while nodes lose their data, for a thousand losses.
pub(crate) fn restarts() -> Outcome {
    let words = ["--all-features", "--locked", "--test", "real", "restarts::", "--", "--nocapture"];
    cargo(&["test", "--package", "quorate-tests"]).args(&words).env("QUORATE_CYCLES", "1000").run()
}

/// Fuzzes each target for some seconds; all of them if none is named.
///
/// What the search finds out stays in `target`. An input that breaks a promise is put beside the corpus of its
/// target, where every test run replays it.
pub(crate) fn fuzz(seconds: &str, targets: &[&str]) -> Outcome {
    const PLACE: &str = "tests/fuzz/__fuzz__";
    need(&Cmd::new(&["cargo-bolero"]), "cargo-bolero")?;
    let is_chosen = |name: &String| targets.is_empty() || targets.contains(&name.as_str());
    for target in list(PLACE)?.iter().map(|path| stem(path)).filter(is_chosen) {
        let (corpus, time) = (format!("{PLACE}/{target}/corpus"), format!("{seconds}s"));
        let new = root()?.join("target/corpus").join(&target);
        fs::create_dir_all(&new).map_err(|error| error.to_string())?;
        let search =
            ["bolero", "test", &target, "--package", "quorate-fuzz", "--sanitizer", "NONE"];
        let bounds = ["-T", &time, "--max-input-length", "512"];
        let places = ["--corpus-dir", &new.to_string_lossy(), "--engine-args", &corpus];
        cargo(&search).args(&bounds).args(&places).run()?;
    }
    Ok(())
}

/// Runs each benchmark once, and a quick race. In the test profile: it is there already, and
/// nothing is timed.
pub(crate) fn benches() -> Outcome {
    cargo(&["test", "--package", "quorate-benches", "--benches", "--all-features", "--locked"])
        .run()?;
    let quick = ["--", "--quick", "--out", "target/race/quick"];
    cargo(&["run", "--quiet", "--locked", "--package", "quorate-race"]).args(&quick).run()
}

/// The part of the simulated world that belongs to every change.
pub(crate) fn seeds() -> Outcome {
    let all = "--seeds 10000, --seeds 500 --twice, --seeds 500 --class broken, \
               --seeds 1000 --class storm, --seeds 1000 --class guarded, --seeds 500 --class revoked";
    for words in all.split(", ") {
        release("quorate-world").args(&words.split(' ').collect::<Vec<_>>()).run()?;
    }
    Ok(())
}

/// Runs the program of a package, built for speed.
pub(crate) fn release(package: &str) -> Cmd {
    cargo(&["run", "--quiet", "--release", "--locked", "--package", package, "--"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up() {
        let result = |passed, ignored| {
            format!(
                "test a ... ok\ntest result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured\n"
            )
        };
        assert_eq!(counts(&format!("{}{}", result(5, 0), result(6, 1))), [11, 1]);
        assert_eq!(counts("running 5 tests\n"), [0, 0]);
    }
}
