//! The seeded world: many seeds, one seed again, or the bugs that it must find.

use crate::cmd::{Outcome, cargo};

/// What the ordinary test run does.
const SEEDS: &str = "10000";

/// And so many renewals with one node in trouble.
const RENEWALS: &str = "100000";

/// `cargo xtask sim …`: builds the world and passes the words on.
pub(crate) fn sim(words: &[&str]) -> Outcome {
    match words {
        ["--planted", words @ ..] => planted().args(words).run(),
        words => world().args(words).run(),
    }
}

/// The part of it that belongs to the tests.
pub(crate) fn check() -> Outcome {
    world().args(&["--seeds", SEEDS]).run()?;
    world().args(&["--seeds", "500", "--twice"]).run()?;
    world().args(&["--keep", RENEWALS]).run()?;
    world().args(&["--seeds", "500", "--class", "broken"]).run()?;
    world().args(&["--seeds", "1000", "--class", "storm"]).run()?;
    world().args(&["--seeds", "1000", "--class", "guarded"]).run()
}

/// Every planted bug is found.
pub(crate) fn find_planted() -> Outcome {
    planted().run()
}

fn planted() -> crate::cmd::Cmd {
    cargo(&["run", "--quiet", "--locked", "--package", "quorate-planted", "--"])
}

fn world() -> crate::cmd::Cmd {
    cargo(&["run", "--quiet", "--release", "--locked", "--package", "quorate-world", "--"])
}
