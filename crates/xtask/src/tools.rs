//! Well-kept tools, installed where they are missing.

use crate::cmd::{Cmd, Outcome, cargo};

/// Unused dependencies; arrows, licences and sources of dependencies; spelling.
pub(crate) fn check() -> Outcome {
    need(&cargo(&["machete"]), "cargo-machete")?;
    cargo(&["machete"]).run()?;
    need(&cargo(&["deny"]), "cargo-deny")?;
    cargo(&["deny", "--workspace", "--all-features", "check", "bans", "licenses", "sources"])
        .run()?;
    need(&Cmd::new("typos"), "typos-cli")?;
    Cmd::new("typos").run()
}

/// Installs the crate `package`, which contains the program `tool`, if it is missing.
pub(crate) fn need(tool: &Cmd, package: &str) -> Outcome {
    if tool.clone().args(&["--version"]).read().is_ok() {
        return Ok(());
    }
    println!("   {package} is missing: cargo install --locked {package}");
    // They run for a second, so an optimized build would take longer than it saves. What they have
    // in common is compiled once.
    cargo(&["install", "--locked", package])
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_TARGET_DIR", "target/tools")
        .run()
}
