//! What `cargo metadata` says about the workspace and all that it depends on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cmd::{Outcome, cargo};

pub(crate) struct Metadata {
    packages: BTreeMap<String, Package>,
    members: Vec<String>,
    /// Package → what it needs at build or run time, on any platform.
    needs: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) rust_version: Option<String>,
    pub(crate) is_published: bool,
    /// From the folder of the package.
    pub(crate) readme: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) features: Vec<String>,
}

impl Metadata {
    /// With all features, for all platforms.
    pub(crate) fn read() -> Outcome<Self> {
        let text = cargo(&["metadata", "--format-version", "1"])
            .args(&["--all-features", "--locked"])
            .read()?;
        let json: Value = serde_json::from_str(&text)
            .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
        Ok(Self::parse(&json))
    }

    pub(crate) fn parse(json: &Value) -> Self {
        let packages = list(&json["packages"])
            .map(|package| (text(&package["id"]), Package::parse(package)))
            .collect();
        let needs = list(&json["resolve"]["nodes"])
            .map(|node| (text(&node["id"]), needed_by(node)))
            .collect();
        Self { packages, members: list(&json["workspace_members"]).map(text).collect(), needs }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.members.iter().filter_map(|id| self.packages.get(id))
    }

    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        self.members().filter(|package| package.is_published)
    }

    pub(crate) fn package(&self, name: &str) -> Outcome<&Package> {
        self.members()
            .find(|package| package.name == name)
            .ok_or_else(|| format!("the workspace has no package {name}"))
    }

    /// The published crates and all packages that a user of them compiles.
    pub(crate) fn shipped(&self) -> Vec<&Package> {
        let is_published = |id: &&String| self.packages.get(*id).is_some_and(|p| p.is_published);
        let mut open: Vec<&String> = self.members.iter().filter(is_published).collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                open.extend(self.needs.get(id).into_iter().flatten());
            }
        }
        seen.into_iter().filter_map(|id| self.packages.get(id)).collect()
    }
}

impl Package {
    fn parse(json: &Value) -> Self {
        Self {
            name: text(&json["name"]),
            version: text(&json["version"]),
            rust_version: json["rust_version"].as_str().map(str::to_owned),
            // `publish = false` is an empty list of registries.
            is_published: json["publish"].as_array().is_none_or(|list| !list.is_empty()),
            readme: json["readme"].as_str().map(str::to_owned),
            repository: json["repository"].as_str().map(str::to_owned),
            features: keys(&json["features"]),
        }
    }
}

fn needed_by(node: &Value) -> Vec<String> {
    let is_needed = |dep: &&Value| list(&dep["dep_kinds"]).any(|kind| kind["kind"] != "dev");
    list(&node["deps"]).filter(is_needed).map(|dep| text(&dep["pkg"])).collect()
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

fn keys(json: &Value) -> Vec<String> {
    json.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default()
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A published crate that needs `old`, and `new` for its tests; and a tool.
    pub(crate) fn sample() -> Metadata {
        Metadata::parse(&json!({
            "packages": [
                {
                    "id": "0", "name": "quorate", "version": "0.1.0", "publish": null,
                    "rust_version": "1.88", "readme": "README.md",
                    "repository": "https://example.com", "features": {"redis": [], "default": []},
                },
                {"id": "1", "name": "tool", "version": "0.0.0", "publish": []},
                {"id": "2", "name": "old", "version": "1.0.0", "rust_version": "1.60"},
                {"id": "3", "name": "new", "version": "1.0.0", "rust_version": "1.99"},
            ],
            "workspace_members": ["0", "1"],
            "resolve": {"nodes": [
                {"id": "0", "deps": [
                    {"pkg": "2", "dep_kinds": [{"kind": "dev"}, {"kind": null}]},
                    {"pkg": "3", "dep_kinds": [{"kind": "dev"}]},
                ]},
                {"id": "1", "deps": [{"pkg": "3", "dep_kinds": [{"kind": null}]}]},
            ]},
        }))
    }

    #[test]
    fn only_what_is_published_and_its_needs_are_shipped() {
        let sample = sample();
        let names: Vec<_> = sample.shipped().iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["quorate", "old"]);
        assert_eq!(sample.members().count(), 2);
        assert_eq!(sample.published().count(), 1);
    }

    #[test]
    fn a_package_has_its_features_and_addresses() {
        let sample = sample();
        let package = sample.package("quorate").expect("a member");
        assert_eq!(package.features, ["default", "redis"]);
        assert_eq!(package.readme.as_deref(), Some("README.md"));
        assert_eq!(package.repository.as_deref(), Some("https://example.com"));
        assert!(sample.package("old").is_err());
    }
}
