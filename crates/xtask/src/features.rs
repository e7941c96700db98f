//! The feature matrix, for the code and for the docs.

use crate::cmd::{Outcome, cargo};
use crate::metadata::Metadata;

/// Up to so many combinations are all tried; that is for the facade with its few features.
const POWERSET_LIMIT: u32 = 32;

/// Compiles each published crate without features, with each alone, and with all.
///
/// By clippy, where a warning is an error: what only one combination uses is dead code in the others.
pub(crate) fn check() -> Outcome {
    let metadata = Metadata::read()?;
    for package in metadata.published() {
        for combination in combinations(&package.features, package.name == "quorate") {
            let features = combination.join(",");
            let mut command = cargo(&["clippy", "--package", &package.name])
                .args(&["--no-default-features", "--locked"]);
            if !features.is_empty() {
                command = command.args(&["--features", &features]);
            }
            command.args(&["--", "-D", "warnings"]).run()?;
        }
    }
    Ok(())
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

/// None, each alone and all; or every combination, if asked for and not too many.
fn combinations(features: &[String], prefer_powerset: bool) -> Vec<Vec<&str>> {
    let features: Vec<&str> = features.iter().map(String::as_str).collect();
    let powerset = 1_u32.checked_shl(features.len() as u32);
    match powerset {
        Some(count) if prefer_powerset && count <= POWERSET_LIMIT => {
            let members = |set: u32| {
                let is_in = |at: &usize| set >> at & 1 == 1;
                (0..features.len()).filter(is_in).map(|at| features[at]).collect()
            };
            (0..count).map(members).collect()
        }
        _ => {
            let mut all = vec![Vec::new()];
            all.extend(features.iter().map(|feature| vec![*feature]));
            if features.len() > 1 {
                all.push(features);
            }
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: &[&str], prefer_powerset: bool) -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let combinations = combinations(&names, prefer_powerset);
        combinations.iter().map(|names| names.join("+")).collect()
    }

    #[test]
    fn a_crate_is_built_with_none_each_and_all() {
        assert_eq!(shown(&["a", "b", "c"], false), ["", "a", "b", "c", "a+b+c"]);
        assert_eq!(shown(&["a"], false), ["", "a"]);
        assert_eq!(shown(&[], false), [""]);
    }

    #[test]
    fn the_facade_is_built_with_every_combination_while_they_are_few() {
        let pairs = ["", "a", "b", "a+b"];
        assert_eq!(shown(&["a", "b"], true), pairs);
        assert_eq!(shown(&["a", "b", "c", "d", "e"], true).len(), 32);
        assert_eq!(shown(&["a", "b", "c", "d", "e", "f"], true).len(), 8);
        assert_eq!(shown(&[""; 40], true).len(), 42);
    }
}
