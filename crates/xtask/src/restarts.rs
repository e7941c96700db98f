//! Contended locks on real nodes that lose their data, at length. The ordinary tests have it short.

use crate::cmd::{Outcome, cargo};

/// `cargo xtask restarts …`: builds it and passes the words on.
pub(crate) fn restarts(words: &[&str]) -> Outcome {
    let run = ["run", "--quiet", "--locked", "--package", "quorate-restarts", "--"];
    cargo(&run).args(words).run()
}
