//! README.md and the manifests say the same.
//!
//! Its code is compiled elsewhere: the facade includes it as its documentation.

use std::path::Path;
use std::{fs, io};

use crate::cmd::{Outcome, root};
use crate::metadata::{Metadata, Package};

/// The defaults as the documentation of the core shows them. A test there compares them with the code.
const DEFAULTS: &str = "crates/quorate-core/src/config/defaults.md";

/// The pages of the guide. They name tests.
const GUIDE: &str = "crates/quorate/docs";

/// Fails if README.md leaves out a feature, names one that is not there, or is out of date, or if the
/// guide names a test that is not there.
pub(crate) fn check() -> Outcome {
    let root = root()?;
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let (text, defaults) = (read("README.md")?, read(DEFAULTS)?);
    let metadata = Metadata::read()?;
    let mut mistakes = mistakes(&text, metadata.package("quorate")?);
    mistakes.extend(other_defaults(&text, &defaults));
    let (guide, code) = (read_all(&root.join(GUIDE), "md")?, read_all(&root.join("tests"), "rs")?);
    let code = code + &read_all(&root.join("crates"), "rs")?;
    mistakes.extend(missing_tests(&guide, &code));
    if mistakes.is_empty() {
        Ok(())
    } else {
        Err(format!("README.md\n  {}", mistakes.join("\n  ")))
    }
}

fn mistakes(text: &str, facade: &Package) -> Vec<String> {
    let mut mistakes = Vec::new();
    for feature in facade.features.iter().filter(|name| *name != "default") {
        if !text.contains(&format!("`{feature}`")) {
            mistakes.push(format!("does not name the feature `{feature}`"));
        }
    }
    for row in feature_rows(text) {
        if !facade.features.iter().any(|feature| feature == row) {
            mistakes.push(format!("has a row for `{row}`, which is no feature"));
        }
    }
    if !text.lines().any(|line| line.starts_with("```rust")) {
        mistakes.push("has no ```rust block".to_owned());
    }
    mistakes.extend(wrong_version(text, &facade.version));
    mistakes.extend(wrong_msrv(text, facade.rust_version.as_deref().unwrap_or_default()));
    mistakes
}

/// The first row of the table of defaults that README.md does not repeat as it is.
fn other_defaults(text: &str, defaults: &str) -> Option<String> {
    let row = defaults.lines().find(|row| !text.lines().any(|line| line == *row));
    row.map(|row| format!("does not repeat this row of {DEFAULTS}: {row}"))
}

/// Names in code spans with two underscores or more: only tests have such names.
fn missing_tests(guide: &str, code: &str) -> Vec<String> {
    let is_test = |span: &&str| {
        span.matches('_').count() > 1
            && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let names = guide.split('`').filter(is_test);
    let missing = names.filter(|name| !code.contains(&format!("fn {name}(")));
    missing.map(|name| format!("the guide names the test `{name}`, which is not there")).collect()
}

/// All files below `folder` with this extension, one after the other.
fn read_all(folder: &Path, extension: &str) -> Outcome<String> {
    let fail = |error: io::Error| format!("{}: {error}", folder.display());
    let mut text = String::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_dir() {
            text += &read_all(&path, extension)?;
        } else if path.extension().is_some_and(|found| found == extension) {
            text += &fs::read_to_string(&path).map_err(fail)?;
        }
    }
    Ok(text)
}

/// The names in the first column of tables under a heading that speaks of features.
fn feature_rows(text: &str) -> Vec<&str> {
    let mut is_about_features = false;
    let mut rows = Vec::new();
    for line in text.lines() {
        if line.starts_with('#') {
            is_about_features = line.to_lowercase().contains("feature");
        } else if is_about_features && line.starts_with('|') {
            let cell = line.split('|').nth(1).unwrap_or_default().trim();
            rows.extend(cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')));
        }
    }
    rows
}

/// `quorate = "0.1"`, `quorate-redis = { version = "0.1", … }`: the version, less what may be left out.
fn wrong_version(text: &str, version: &str) -> Option<String> {
    let is_ours = |line: &&str| {
        let name = line.split(['=', ' ']).next().unwrap_or_default();
        (name == "quorate" || name.starts_with("quorate-"))
            && line[name.len()..].trim_start().starts_with('=')
    };
    let stale = text.lines().filter(is_ours).find(|line| {
        let told = line.split_once("version").map_or(*line, |(_, rest)| rest);
        let told = told.split('"').nth(1).unwrap_or_default();
        told != version && !version.starts_with(&format!("{told}."))
    });
    stale.map(|line| format!("says `{line}`, the version is {version}"))
}

fn wrong_msrv(text: &str, msrv: &str) -> Option<String> {
    let speaks_of_it = |line: &&str| {
        let line = line.to_lowercase();
        line.contains("msrv") || line.contains("minimum supported rust")
    };
    let mut lines = text.lines().filter(speaks_of_it).peekable();
    if lines.peek().is_none() {
        return Some(format!("does not name the MSRV, {msrv}"));
    }
    let names_it = |line: &str| {
        line.split(|c: char| !c.is_ascii_digit() && c != '.')
            .any(|number| number.trim_end_matches('.') == msrv)
    };
    let stale = lines.find(|line| line.contains("1.") && !names_it(line));
    stale.map(|line| format!("says `{line}`, the MSRV is {msrv}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
# quorate

MSRV: 1.88.

```toml
quorate = { version = \"0.1\", features = [\"redis\"] }
quorate-core = \"0.1.0\"
```

```rust
fn main() {}
```

## Features

| feature | what |
|---|---|
| `redis` | a backend |
| `tokio` | a runtime |

## More

| `other` | table |
";

    fn facade() -> Package {
        Package {
            version: "0.1.0".to_owned(),
            rust_version: Some("1.88".to_owned()),
            features: ["default", "redis", "tokio"].map(str::to_owned).to_vec(),
            ..Package::default()
        }
    }

    fn mistakes_after(from: &str, to: &str) -> Vec<String> {
        assert!(GOOD.contains(from));
        mistakes(&GOOD.replace(from, to), &facade())
    }

    #[test]
    fn a_true_readme_passes() {
        assert_eq!(mistakes(GOOD, &facade()), [""; 0]);
    }

    #[test]
    fn each_untruth_is_found() {
        for (from, to) in [
            ("| `redis` | a backend |\n", ""),
            ("\n## More", "| `fred` | a backend |\n\n## More"),
            ("MSRV: 1.88.", "MSRV: 1.87."),
            ("MSRV: 1.88.", "MSRV: 1.880."),
            ("MSRV: 1.88.", ""),
            ("version = \"0.1\"", "version = \"0.2\""),
            ("\"0.1.0\"", "\"0.1.1\""),
            ("```rust", "```text"),
        ] {
            assert_eq!(mistakes_after(from, to).len(), 1, "{from} -> {to}");
        }
    }
    #[test]
    fn another_default_is_found() {
        let table = "| setting | default |\n|---|---|\n| `ttl` | 10 s |\n";
        assert_eq!(other_defaults(&format!("# quorate\n\n{table}\nMore"), table), None);
        let other = other_defaults(&table.replace("10 s", "11 s"), table);
        assert!(other.is_some_and(|why| why.ends_with("| `ttl` | 10 s |")));
    }
    #[test]
    fn a_test_that_is_not_there_is_found() {
        let guide =
            "Rule Q1: `q1_a_quorum`, `max_ttl`, `five nodes_in_all`, `LockError::Held_by_us`.";
        assert_eq!(missing_tests(guide, "fn q1_a_quorum() {}"), [""; 0]);
        assert_eq!(missing_tests(guide, "fn q1_a_quorum_of_all() {}").len(), 1);
    }
}
