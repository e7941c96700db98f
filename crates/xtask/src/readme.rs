//! README.md and the manifests say the same.
//!
//! Its code is compiled elsewhere: the facade includes it as its documentation.

use std::fs;

use crate::cmd::{Outcome, root};
use crate::metadata::{Metadata, Package};

/// Fails if README.md leaves out a feature, names one that is not there, or is out of date.
pub(crate) fn check() -> Outcome {
    let path = root()?.join("README.md");
    let text = fs::read_to_string(&path).map_err(|error| format!("README.md: {error}"))?;
    let metadata = Metadata::read()?;
    let mistakes = mistakes(&text, metadata.package("quorate")?);
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
}
