//! What the core and all that is shipped with it may depend on. `deny.toml` has the rest.

use crate::cmd::{Outcome, cargo};
use crate::metadata::{Metadata, Package};

/// Runtimes and clients, which the core has only behind features or not at all.
const FOREIGN: &[&str] = &[
    "tokio",
    "smol",
    "async-io",
    "async-std",
    "async-executor",
    "redis",
    "fred",
    "bb8",
    "deadpool",
];

/// What needs a newer Rust than the published crates state.
pub(crate) fn breaches(metadata: &Metadata) -> Vec<String> {
    let msrv = metadata.published().find_map(|package| package.rust_version.as_deref());
    let msrv = msrv.unwrap_or("0");
    metadata.shipped().into_iter().filter_map(|package| too_new(package, msrv)).collect()
}

/// What the core pulls in when no feature is asked for.
pub(crate) fn tree_breaches() -> Outcome<Vec<String>> {
    let tree = cargo(&["tree", "--package", "quorate-core", "--no-default-features"])
        .args(&["--edges", "normal", "--target", "all", "--prefix", "none", "--locked"])
        .read()?;
    if !tree.starts_with("quorate-core ") {
        return Err(format!("not the tree of quorate-core:\n{tree}"));
    }
    Ok(foreign(&tree))
}

fn foreign(tree: &str) -> Vec<String> {
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let is_foreign = |name: &str| {
        FOREIGN.iter().any(|known| name == *known || name.starts_with(&format!("{known}-")))
    };
    let mut found: Vec<_> = names.filter(|name| is_foreign(name)).collect();
    found.sort_unstable();
    found.dedup();
    found.iter().map(|name| format!("quorate-core without features depends on {name}")).collect()
}

fn too_new(package: &Package, msrv: &str) -> Option<String> {
    let needs = package.rust_version.as_deref()?;
    let told = format!("{} {} needs Rust {needs}", package.name, package.version);
    (version(needs) > version(msrv)).then(|| format!("{told}, the workspace says {msrv}"))
}

fn version(text: &str) -> Vec<u64> {
    let mut parts: Vec<_> = text.split('.').map(|part| part.parse().unwrap_or(u64::MAX)).collect();
    parts.resize(3, 0);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_and_clients_in_the_core_are_found() {
        let clean = "quorate-core v0.1.0 (/path/tokio)\nfutures-util v0.3.31\nrediscover v1.0.0\n";
        assert_eq!(foreign(clean), [""; 0]);
        let tainted =
            format!("{clean}tokio v1.0.0\ntokio v1.0.0 (*)\nasync-io v2.0.0\nredis-test v1.0.0\n");
        assert_eq!(foreign(&tainted).len(), 3);
    }

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_found() {
        let needs =
            |rust: &str| Package { rust_version: Some(rust.to_owned()), ..Package::default() };
        assert_eq!(too_new(&needs("1.88"), "1.88"), None);
        assert_eq!(too_new(&needs("1.88.0"), "1.88"), None);
        assert_eq!(too_new(&needs("1.9"), "1.88"), None);
        assert_eq!(too_new(&Package::default(), "1.88"), None);
        assert!(too_new(&needs("1.88.1"), "1.88").is_some());
        assert!(too_new(&needs("1.100"), "1.88").is_some());
    }
}
