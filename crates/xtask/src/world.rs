//! The simulated world.

use crate::cmd::{Outcome, cargo};

/// The part that belongs to every change.
pub(crate) fn check() -> Outcome {
    sim(&["--seeds", "10000"])?;
    sim(&["--seeds", "500", "--twice"])?;
    sim(&["--keep", "100000"])?;
    sim(&["--seeds", "500", "--class", "broken"])?;
    sim(&["--seeds", "1000", "--class", "storm"])?;
    sim(&["--seeds", "1000", "--class", "guarded"])
}

/// `cargo xtask sim …`: builds the world, and passes the words on.
pub(crate) fn sim(words: &[&str]) -> Outcome {
    cargo(&release("quorate-world")).args(words).run()
}

/// Runs the program of a package, built for speed.
pub(crate) const fn release(package: &str) -> [&str; 7] {
    ["run", "--quiet", "--release", "--locked", "--package", package, "--"]
}

/// Runs the program of a package.
pub(crate) const fn debug(package: &str) -> [&str; 6] {
    ["run", "--quiet", "--locked", "--package", package, "--"]
}
