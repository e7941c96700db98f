//! The simulated world, and the bugs planted in the code that it has to find.

use crate::cmd::{Outcome, cargo};

/// `cargo xtask sim …`: builds the world, or the planted bugs, and passes the words on.
pub(crate) fn sim(words: &[&str]) -> Outcome {
    match words {
        ["--planted", words @ ..] => cargo(&debug("quorate-planted")).args(words).run(),
        words => world(words),
    }
}

/// The part that belongs to every change.
pub(crate) fn check() -> Outcome {
    world(&["--seeds", "10000"])?;
    world(&["--seeds", "500", "--twice"])?;
    world(&["--keep", "100000"])?;
    world(&["--seeds", "500", "--class", "broken"])?;
    world(&["--seeds", "1000", "--class", "storm"])?;
    world(&["--seeds", "1000", "--class", "guarded"])
}

fn world(words: &[&str]) -> Outcome {
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
