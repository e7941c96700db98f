//! Which crate may depend on which, and on what.

use crate::cmd::{Outcome, cargo};
use crate::metadata::{Metadata, Package};

/// Arrows point one way. A published crate that is not here may not be published.
const ARROWS: &[(&str, &[&str])] = &[
    ("quorate-core", &[]),
    ("quorate-memory", &["quorate-core"]),
    ("quorate-redis", &["quorate-core"]),
    ("quorate-fred", &["quorate-core"]),
    ("quorate", &["quorate-core", "quorate-memory", "quorate-redis", "quorate-fred"]),
];

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

pub(crate) fn breaches(metadata: &Metadata) -> Vec<String> {
    let mut breaches: Vec<_> = metadata.published().filter_map(wrong_arrow).collect();
    breaches.extend(metadata.shipped().into_iter().filter_map(|package| {
        let user = metadata.published().next()?.rust_version.as_deref()?;
        too_new(package, user)
    }));
    breaches
}

/// What the core pulls in when nobody asks for a feature.
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
        FOREIGN.iter().any(|known| {
            let rest = name.strip_prefix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    };
    let mut found: Vec<_> = names.filter(|name| is_foreign(name)).collect();
    found.sort_unstable();
    found.dedup();
    found.iter().map(|name| format!("quorate-core without features depends on {name}")).collect()
}

fn wrong_arrow(package: &Package) -> Option<String> {
    let name = &package.name;
    let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| from == name) else {
        return Some(format!("{name} is published, and the guards do not know it"));
    };
    let ours = package
        .dependencies
        .iter()
        .filter(|dependency| !dependency.is_dev && dependency.name.starts_with("quorate"));
    ours.map(|dependency| dependency.name.as_str())
        .find(|to| !allowed.contains(to))
        .map(|to| format!("{name} may not depend on {to}"))
}

fn too_new(package: &Package, msrv: &str) -> Option<String> {
    let needs = package.rust_version.as_deref()?;
    (version(needs) > version(msrv)).then(|| {
        let Package { name, version, .. } = package;
        format!("{name} {version} needs Rust {needs}, the workspace says {msrv}")
    })
}

fn version(text: &str) -> Vec<u64> {
    let mut parts: Vec<_> = text.split('.').map(|part| part.parse().unwrap_or(u64::MAX)).collect();
    parts.resize(3, 0);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn package(name: &str, needs: &[(&str, bool)]) -> Package {
        let dependency = |(name, is_dev): &(&str, bool)| Dependency {
            name: (*name).to_owned(),
            is_dev: *is_dev,
        };
        Package {
            name: name.to_owned(),
            is_published: true,
            dependencies: needs.iter().map(dependency).collect(),
            ..Package::default()
        }
    }

    #[test]
    fn arrows_that_point_back_or_sideways_are_found() {
        let dev = true;
        assert_eq!(
            wrong_arrow(&package("quorate-redis", &[("quorate-core", !dev), ("bb8", !dev)])),
            None
        );
        assert_eq!(wrong_arrow(&package("quorate-core", &[("quorate-memory", dev)])), None);
        assert!(wrong_arrow(&package("quorate-core", &[("quorate-memory", !dev)])).is_some());
        assert!(wrong_arrow(&package("quorate-fred", &[("quorate", !dev)])).is_some());
        assert!(wrong_arrow(&package("quorate-new", &[])).is_some());
    }

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
