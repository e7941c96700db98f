//! The published crates: their features, documentation, dependencies and packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::cmd::{Cmd, Outcome, cargo, list, root, stem};

/// Runtimes and clients, which the core has only behind features or not at all.
const FOREIGN: &[&str] =
    &["tokio", "smol", "async-io", "async-executor", "redis", "fred", "bb8", "deadpool"];

/// Compiles each published crate without features, with each alone, and with all, by clippy: code
/// that only one combination uses is dead in the others.
pub(crate) fn features() -> Outcome {
    need(&cargo(&["hack"]), "cargo-hack")?;
    let clippy =
        ["hack", "clippy", "--workspace", "--each-feature", "--ignore-private", "--locked"];
    cargo(&clippy).args(&["--", "-D", "warnings"]).run()
}

/// Documents each published crate without features, and then everything with all of them. The guide
/// is there in both.
pub(crate) fn docs() -> Outcome {
    need(&cargo(&["hack"]), "cargo-hack")?;
    let doc = |words: &[&str]| cargo(words).env("RUSTDOCFLAGS", "-D warnings").run();
    doc(&[
        "hack",
        "doc",
        "--workspace",
        "--no-deps",
        "--locked",
        "--no-default-features",
        "--ignore-private",
    ])?;
    guide_is_there()?;
    doc(&["doc", "--no-deps", "--locked", "--workspace", "--all-features"])
}

/// Each page of the guide is in the documentation, with all of its headings.
fn guide_is_there() -> Outcome {
    let read =
        |path: &Path| fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()));
    let pages = list("crates/quorate/docs")?;
    for page in pages.iter().filter(|path| path.extension().is_some_and(|kind| kind == "md")) {
        let module = stem(page).replace('-', "_");
        let place = root()?.join("target/doc/quorate/guide").join(module).join("index.html");
        let (text, html) = (read(page)?, read(&place)?);
        let headings = text.lines().filter(|line| line.starts_with("## ")).count();
        if html.matches("class=\"doc-anchor\"").count() < headings {
            return Err(format!("{} is not all of the page", place.display()));
        }
    }
    Ok(())
}

/// Unused dependencies; arrows, licences and sources of dependencies; spelling.
pub(crate) fn tools() -> Outcome {
    let deny = ["deny", "--workspace", "--all-features", "check", "bans", "licenses", "sources"];
    need(&cargo(&["machete"]), "cargo-machete")?;
    need(&cargo(&["deny"]), "cargo-deny")?;
    need(&Cmd::new(&["typos"]), "typos-cli")?;
    [cargo(&["machete"]), cargo(&deny), Cmd::new(&["typos"])].iter().try_for_each(Cmd::run)
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
        .env("CARGO_TARGET_DIR", "target/tools")
        .run()
}

/// How many packages the first command of the README may build.
const MOST_PACKAGES: usize = 60;

/// Checks that the core without features needs no runtime and no client, that `quickstart` needs
/// few packages, that each crate is packed with its README and licences, and that docs.rs is told
/// the features of each library.
pub(crate) fn check() -> Outcome {
    let first =
        cargo(&["tree", "--locked", "--edges", "normal,build", "--prefix", "none"]).read()?;
    let packages: BTreeSet<_> = first.lines().filter_map(|line| line.split(' ').next()).collect();
    if packages.len() > MOST_PACKAGES {
        return Err(format!("`cargo run --example quickstart` builds {} packages", packages.len()));
    }
    let tree = cargo(&["tree", "--package", "quorate-core", "--no-default-features", "--locked"])
        .args(&["--edges", "normal", "--target", "all", "--prefix", "none"])
        .read()?;
    if let Some(name) = foreign(&tree) {
        return Err(format!("quorate-core without features depends on {name}"));
    }
    for folder in list("crates")?.iter().filter(|path| stem(path) != "xtask") {
        let name = stem(folder);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        let is_library = folder.join("src/lib.rs").exists();
        if is_library && !manifest.contains("\n[package.metadata.docs.rs]\n") {
            return Err(format!("{name} says nothing to docs.rs"));
        }
        let pack = ["package", "--list", "--allow-dirty", "--offline", "--package", &name];
        let packed = cargo(&pack).read()?;
        for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            if !packed.lines().any(|path| path == file) {
                return Err(format!("{name} is packed without {file}"));
            }
            let read = |path| fs::read(root()?.join(path)).map_err(|why| format!("{file}: {why}"));
            // Where symbolic links are checked out as files, those have a path for their text.
            let is_own = file == "README.md" && name != "quorate";
            if !is_own && read(format!("crates/{name}/{file}"))? != read(file.to_owned())? {
                return Err(format!("crates/{name}/{file} is not the {file} at the top"));
            }
        }
    }
    Ok(())
}

fn foreign(tree: &str) -> Option<&str> {
    let mut names = tree.lines().filter_map(|line| line.split(' ').next());
    let is_of = |name: &str, known: &str| {
        name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    names.find(|name| FOREIGN.iter().any(|known| is_of(name, known)))
}
