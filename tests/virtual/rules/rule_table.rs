//! `tests/RULES.md` holds: each rule has tests and a planted bug, and codes in use are rules. `SHOWN.md` is written here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

mod tree;

use tree::{Planted, Tree, code_of, known_codes};

/// The head of `SHOWN.md`.
const SHOWN: &str = "\
# What shows the rules

The rules are in [`RULES.md`](RULES.md). This page is written by a test, from the names and the
comments of tests and from the headers of planted bugs:

```console
$ QUORATE_BLESS=1 cargo test -p quorate-tests --test rules rule_table
```
";

/// The rules of the page: each code, and how many lines it has.
fn rules_of(page: &str) -> Vec<(String, usize)> {
    let mut rules: Vec<(String, usize)> = Vec::new();
    let mut is_rule = false;
    for line in page.lines() {
        let code = line.strip_prefix("- **").and_then(|rest| rest.split_once("** "));
        match code.and_then(|(code, _)| code_of(code)) {
            Some(code) => rules.push((code, 1)),
            None if is_rule && line.starts_with("  ") => rules.last_mut().unwrap().1 += 1,
            None => {
                is_rule = false;
                continue;
            }
        }
        is_rule = true;
    }
    rules
}

/// What is wrong with the page of rules, and with the codes that the repository uses.
fn breaches(page: &str, tree: &Tree) -> Vec<String> {
    let rules = rules_of(page);
    let codes: Vec<&String> = rules.iter().map(|(code, _)| code).collect();
    let mut found = Vec::new();
    if !codes.iter().copied().eq(&known_codes()) {
        found.push(format!("not each rule once and in order: {codes:?}"));
    }
    let long = rules.iter().filter(|(_, lines)| *lines > 2);
    found.extend(long.map(|(code, _)| format!("{code}: more than two lines")));
    for code in known_codes() {
        if !tree.tests.values().flatten().any(|place| place.rules.contains(&code)) {
            found.push(format!("{code}: no test"));
        }
        if !tree.planted.values().any(|bug| bug.rules.contains(&code)) {
            found.push(format!("{code}: no planted bug"));
        }
    }
    let unknown = tree.codes.iter().filter(|(_, code)| !codes.contains(&code));
    found.extend(unknown.map(|(place, code)| format!("{place}: {code} is no rule")));
    found.extend(tree.scattered());
    for (bug, Planted { rules, runs }) in &tree.planted {
        let places = || tree.tests.values().flatten();
        let vain = runs.iter().filter(|run| !places().any(|place| place.is_run_by(run)));
        found.extend(vain.map(|run| format!("planted {bug}: no test runs with {run}")));
        let is_shown = |rule: &&String| {
            let mut places = places().filter(|place| place.rules.contains(*rule));
            places.any(|place| runs.iter().any(|run| place.is_run_by(run)))
        };
        let other = rules.iter().filter(|rule| !is_shown(rule));
        found.extend(other.map(|rule| format!("planted {bug}: it runs no test of {rule}")));
    }
    found
}

/// The text of `SHOWN.md`.
fn shown(tree: &Tree) -> String {
    let mut page = SHOWN.to_owned();
    for code in known_codes() {
        let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for place in tree.tests.values().flatten().filter(|place| place.rules.contains(&code)) {
            let function = place.name.rsplit("::").next().unwrap();
            files.entry(&place.file).or_default().push(function);
        }
        let bugs = tree.planted.iter().filter(|(_, bug)| bug.rules.contains(&code));
        let bugs = bugs.map(|(name, _)| name.as_str()).collect();
        page += &format!("\n## {code}\n\n```text\n");
        for (head, names) in files.into_iter().chain([("planted", bugs)]) {
            page += &format!("{head}\n");
            page.extend(names.iter().map(|name| format!("  {name}\n")));
        }
        page += "```\n";
    }
    page
}

#[test]
fn each_rule_has_a_test_and_a_planted_bug() {
    let tree = Tree::of_the_repository();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = breaches(&fs::read_to_string(folder.join("RULES.md")).unwrap(), &tree);
    assert!(found.is_empty(), "tests/RULES.md:\n  {}", found.join("\n  "));
    // Lest the reader be blind.
    assert!(tree.tests.len() > 500, "only {} tests", tree.tests.len());
    assert!(tree.planted.len() <= 260, "{} planted bugs: keep the sharper", tree.planted.len());
    for known in ["T1", "Q4", "C5", "H6", "A2"] {
        assert!(tree.codes.iter().any(|(place, code)| code == known && place.contains("rs:")));
    }
    let (page, shown) = (folder.join("SHOWN.md"), shown(&tree));
    if std::env::var_os("QUORATE_BLESS").is_some() {
        fs::write(&page, &shown).unwrap();
    }
    let is_new = fs::read_to_string(&page).is_ok_and(|text| text == shown);
    assert!(is_new, "tests/SHOWN.md is old. Write it again:\n{}", SHOWN.lines().nth(6).unwrap());
}
