//! The feature combinations, for the code and for the docs.

use crate::cmd::{Outcome, cargo};
use crate::metadata::Metadata;
use crate::tools;

/// Compiles each published crate without features, with each alone, and with all.
///
/// By clippy, where a warning is an error: code that only one combination uses is dead in the others.
pub(crate) fn check() -> Outcome {
    tools::need(&cargo(&["hack"]), "cargo-hack")?;
    cargo(&["hack", "clippy", "--each-feature", "--ignore-private", "--locked"])
        .args(&["--", "-D", "warnings"])
        .run()
}

/// Documents each published crate without features, and then everything with all of them.
pub(crate) fn docs() -> Outcome {
    let doc = |args: &[&str]| {
        cargo(&["doc", "--no-deps", "--locked"]).args(args).env("RUSTDOCFLAGS", "-D warnings").run()
    };
    for package in Metadata::read()?.published() {
        doc(&["--package", &package.name, "--no-default-features"])?;
    }
    doc(&["--workspace", "--all-features"])
}
