//! Well-kept tools, installed where they are missing.

use crate::cmd::{Cmd, Outcome, cargo};

/// Unused dependencies, licences and sources of dependencies, and spelling.
pub(crate) fn check() -> Outcome {
    need("machete", "cargo-machete")?;
    cargo(&["machete"]).run()?;
    need("deny", "cargo-deny")?;
    cargo(&["deny", "--workspace", "--all-features", "check", "bans", "licenses", "sources"])
        .run()?;
    if Cmd::new("typos").args(&["--version"]).run_quietly().is_err() {
        install("typos-cli")?;
    }
    Cmd::new("typos").run()
}

/// Installs the cargo command `name`, which the crate `from` contains, if it is missing.
pub(crate) fn need(name: &str, from: &str) -> Outcome {
    match cargo(&[name, "--version"]).run_quietly() {
        Ok(()) => Ok(()),
        Err(_) => install(from),
    }
}

fn install(package: &str) -> Outcome {
    println!("   {package} is missing: cargo install --locked {package}");
    cargo(&["install", "--locked", package]).run()
}
