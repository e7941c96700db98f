//! The proofs of fencing tokens, all of them. The ordinary tests have the first.

use crate::cmd::{Outcome, cargo};

/// `cargo xtask model`.
pub(crate) fn check() -> Outcome {
    cargo(&["run", "--quiet", "--release", "--locked", "--package", "quorate-model"]).run()
}
