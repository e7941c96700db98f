//! quorate against the bare clients and others, on real nodes.

use crate::cmd::{Outcome, cargo};

/// `cargo xtask race …`: builds the race for speed and passes the words on.
pub(crate) fn race(words: &[&str]) -> Outcome {
    let run = ["run", "--quiet", "--release", "--locked", "--package", "quorate-race", "--"];
    cargo(&run).args(words).run()
}

/// The part of it that belongs to the tests: everything runs, and no key is left. In the test
/// profile, as nothing is timed.
pub(crate) fn check() -> Outcome {
    let run = ["run", "--quiet", "--locked", "--package", "quorate-race", "--"];
    cargo(&run).args(&["--quick", "--out", "target/race/quick"]).run()
}
