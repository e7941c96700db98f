//! The tests, the benchmarks and the searches.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::{env, fs, thread};

use crate::cmd::{Cmd, Outcome, cargo, list, root, stem};
use crate::packages::need;

/// All tests but those on PostgreSQL, a server that only the scheduled job installs.
const ALL: &[&str] =
    &["test", "--workspace", "--all-features", "--locked", "--exclude", "quorate-postgres"];

/// The test of the soak, which is a program of its own.
const SOAK: &str = "after_a_soak";

/// Runs all tests that are programs of their own, and builds the examples, which some of them run.
/// The soak, which mostly waits, runs beside the others.
pub(crate) fn tests() -> Outcome {
    // Most tests on real nodes wait.
    let threads = env::var("RUST_TEST_THREADS").unwrap_or_else(|_| "8".to_owned());
    let all = cargo(ALL).args(&["--lib", "--bins", "--tests", "--examples", "--no-fail-fast"]);
    all.clone().args(&["--no-run"]).run()?;
    thread::scope(|scope| {
        let soak = scope.spawn(|| cargo(ALL).args(&["--test", "soak"]).run());
        let others = all.args(&["--", "--skip", SOAK]).env("RUST_TEST_THREADS", &threads).run();
        let soak = soak.join().unwrap_or_else(|_| Err("the soak was not run".to_owned()));
        others.and(soak)
    })
}

pub(crate) fn doc_tests() -> Outcome {
    cargo(ALL).args(&["--doc"]).run()
}

/// Runs the tests that start servers of their own, once with each server named.
pub(crate) fn servers(paths: &[&str]) -> Outcome {
    for path in paths {
        println!("== {path}");
        // With TLS the server ends, since it is given no certificate.
        let (_, told, _) = Cmd::new(&[path, "--port", "0", "--tls-port", "1"]).run_silently()?;
        let has_tls = told.contains("tls-cert-file");
        let skipped = if has_tls { &[][..] } else { &["--", "--skip", "tls"] };
        let words = ["--all-features", "--locked", "--tests", "--examples", "--no-fail-fast"];
        let packages = ["test", "--package", "quorate-tests", "--package", "quorate-examples"];
        let tests = cargo(&packages).args(&words).args(skipped);
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
/// What the search finds out stays in `target`. An input that breaks a promise is put beside the
/// corpus of its target, where every test run replays it.
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
    let quick = ["--", "--quick"];
    cargo(&["run", "--quiet", "--locked", "--package", "quorate-race"]).args(&quick).run()
}

/// The part of the simulated world that belongs to every change: other seeds each time. One that
/// fails prints how to replay it.
pub(crate) fn seeds() -> Outcome {
    // Of forty bits, which can be typed.
    let from = (RandomState::new().hash_one(()) >> 24).to_string();
    release("quorate-world")
        .args(&["--class", "all", "--seeds", "10000", "--from", &from])
        .run()?;
    release("quorate-world").args(&["--seeds", "500", "--twice", "--from", &from]).run()
}

pub(crate) fn release(package: &str) -> Cmd {
    cargo(&["run", "--quiet", "--release", "--locked", "--package", package, "--"])
}
