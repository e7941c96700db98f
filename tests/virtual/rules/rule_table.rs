//! The table of rules in `tests/README.md` holds: its tests and planted bugs exist, and so do the codes in use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

mod wrong;

/// The rules: one letter or two, and how many there are.
const RULES: &[(&str, u32)] = &[
    ("T", 5),
    ("Q", 6),
    ("C", 8),
    ("H", 7),
    ("A", 6),
    ("W", 4),
    ("L", 3),
    ("V", 7),
    ("O", 8),
    ("E", 6),
    ("RW", 9),
    ("S", 5),
    ("X", 9),
];

/// Tests show these in part. The table says where the code does not follow them.
const IN_PART: &[&str] = &["T3"];

/// Kinds of files that people write. Data is full of what looks like a code.
const TEXTS: &[&str] = &["rs", "md", "toml", "txt", "yml", "yaml", "sh"];

/// Its own cases contain codes of no rule.
const THIS_FILE: &str = "tests/virtual/rules/rule_table";

/// What the repository has, as far as the table speaks of it.
#[derive(Default)]
struct Tree {
    files: BTreeSet<String>,
    /// Each test as `file::function`, and where it stands.
    tests: BTreeMap<String, Vec<Place>>,
    /// Each planted bug, and the words of its test runs.
    planted: BTreeMap<String, Vec<String>>,
    /// Each use of a code: the place, and the code in upper case.
    codes: Vec<(String, String)>,
}

/// Where a test stands.
struct Place {
    file: String,
    package: String,
    target: String,
    /// Its name in its target.
    name: String,
}

impl Place {
    /// Of a test in this file: the first part of its name is that of its module.
    fn of(file: &str, function: &str) -> Self {
        let stem = file.trim_end_matches(".rs");
        let parts: Vec<&str> = stem.split('/').filter(|part| *part != "main").collect();
        let (package, target, modules) = match parts[..] {
            ["crates", package, "src", ref modules @ ..] => (package.to_owned(), "lib", modules),
            ["crates", package, "tests", target, ref modules @ ..] => {
                (package.to_owned(), target, modules)
            }
            ["tests", "virtual", package, "src", ref modules @ ..] => {
                (format!("quorate-{package}"), "lib", modules)
            }
            ["tests", "virtual", target, ref modules @ ..]
            | ["tests", target, ref modules @ ..] => ("quorate-tests".to_owned(), target, modules),
            _ => (String::new(), "", &[][..]),
        };
        // Unit tests stand in a module at the end of their file, or in a file of that name.
        let is_inner = target == "lib" && modules.last() != Some(&"tests");
        let inner = if is_inner { "tests::" } else { "" };
        let name = format!("{}::{inner}{function}", modules.join("::"));
        Self { file: file.to_owned(), package, target: target.to_owned(), name }
    }

    /// Whether it runs with these words for `cargo test`.
    fn is_run_by(&self, words: &str) -> bool {
        let words: Vec<&str> = words.split_whitespace().filter(|word| *word != "--").collect();
        let ["-p", package, ref rest @ ..] = words[..] else { return false };
        let (is_target, filters) = match *rest {
            ["--lib", ref filters @ ..] => (self.target == "lib", filters),
            ["--test", target, ref filters @ ..] => (self.target == target, filters),
            ref filters => (true, filters),
        };
        let is_named = filters.is_empty() || filters.iter().any(|it| self.name.contains(*it));
        self.package == package && is_target && is_named
    }
}

impl Tree {
    fn of_the_repository() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut tree = Self::default();
        tree.add_folder(&root, &root);
        tree
    }

    fn add_folder(&mut self, root: &Path, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            // What git does not know: its own folder, and whatever cargo has built.
            if [".git", "target"].contains(&&*name) || path.join("CACHEDIR.TAG").exists() {
                continue;
            } else if path.is_dir() {
                self.add_folder(root, &path);
            } else if !name.starts_with(THIS_FILE)
                && TEXTS.iter().any(|end| name.ends_with(&format!(".{end}")))
            {
                self.add_file(&name, &fs::read_to_string(path).unwrap());
            } else if let Some(bug) = name.strip_prefix("tests/planted/") {
                let text = fs::read_to_string(path).unwrap();
                self.add_planted(bug.trim_end_matches(".patch"), &text);
            }
            self.files.insert(name);
        }
    }

    fn add_planted(&mut self, name: &str, text: &str) {
        let runs = text.lines().filter_map(|line| line.strip_prefix("# TESTS: "));
        self.planted.insert(name.to_owned(), runs.map(str::to_owned).collect());
    }

    /// The tests of virtual time that are named for a rule, and stand in another file than others of its tests.
    fn scattered(&self) -> Vec<String> {
        let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (test, place) in
            self.tests.iter().flat_map(|(test, at)| at.iter().map(move |at| (test, at)))
        {
            let function = test.rsplit("::").next().unwrap();
            let code = function.split_once('_').and_then(|(code, _)| code_of(code));
            if let Some(code) = code.filter(|_| place.file.starts_with("tests/virtual/rules/")) {
                files.entry(code).or_default().insert(&place.file);
            }
        }
        let scattered = files.into_iter().filter(|(_, files)| files.len() > 1);
        scattered.map(|(code, files)| format!("{code}: its tests stand in {files:?}")).collect()
    }

    fn add_file(&mut self, name: &str, text: &str) {
        let module = name.trim_end_matches(".rs").trim_end_matches("/main").rsplit('/').next();
        let mut is_test = false;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_start();
            let function = function_of(line).filter(|_| name.ends_with(".rs"));
            if line.starts_with("#[") {
                is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            } else if let Some(function) = function {
                if is_test {
                    let test = format!("{}::{function}", module.unwrap());
                    self.tests.entry(test).or_default().push(Place::of(name, function));
                }
                is_test = false;
            } else if !line.starts_with("//") {
                is_test = false;
            }
            let mut codes = codes_in(line);
            codes.extend(function.into_iter().flat_map(|name| name.split('_')).filter_map(code_of));
            if name.ends_with(".md") {
                codes.extend(bracketed(line).into_iter().flat_map(words).filter_map(code_of));
            }
            self.codes.extend(codes.into_iter().map(|code| (format!("{name}:{number}"), code)));
        }
    }
}

fn function_of(line: &str) -> Option<&str> {
    let (head, rest) = line.split_once("fn ")?;
    let is_function =
        head.split_whitespace().all(|word| word == "async" || word.starts_with("pub"));
    is_function.then(|| words(rest).next()).flatten()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Codes in upper case, as sentences have them.
fn codes_in(line: &str) -> Vec<String> {
    let upper = words(line).filter(|word| word.starts_with(char::is_uppercase));
    upper.filter_map(code_of).collect()
}

/// What is in square brackets: a page may name a rule in lower case there.
fn bracketed(line: &str) -> Vec<&str> {
    line.split('[').skip(1).filter_map(|rest| Some(rest.split_once(']')?.0)).collect()
}

/// Letters of the table and one digit or two, in either case.
fn code_of(word: &str) -> Option<String> {
    let number = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let letters = word[..word.len() - number.len()].to_ascii_uppercase();
    let is_code = RULES.iter().any(|(known, _)| *known == letters)
        && (1..=2).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit());
    is_code.then(|| format!("{letters}{number}"))
}

fn known_codes() -> Vec<String> {
    let numbered = RULES.iter().flat_map(|(letter, count)| (1..=*count).map(move |n| (letter, n)));
    numbered.map(|(letter, number)| format!("{letter}{number}")).collect()
}

/// What is wrong with the page, and with the codes that the repository uses.
fn breaches(page: &str, tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let mut codes = Vec::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(code) = cells.get(1).and_then(|cell| code_of(cell)) else { continue };
        let ["", _, rule, places, shown, planted, ""] = cells[..] else {
            found.push(format!("{code}: not a row of five cells"));
            continue;
        };
        found.extend(row_breaches(&code, rule, places, shown, tree));
        found.extend(planted_breaches(&code, shown, planted, tree));
        codes.push(code);
    }
    if codes != known_codes() {
        found.push(format!("not each rule once and in order: {codes:?}"));
    }
    for path in
        quoted(page).filter(|path| path.contains('/') && !path.contains(char::is_whitespace))
    {
        let is_there = |path: &str| tree.files.contains(path);
        if !is_there(path) && !is_there(&format!("crates/{path}")) {
            found.push(format!("no such file: {path}"));
        }
    }
    let unknown = tree.codes.iter().filter(|(_, code)| !codes.contains(code));
    found.extend(unknown.map(|(place, code)| format!("{place}: {code} is no rule")));
    found.extend(tree.scattered());
    for (bug, runs) in &tree.planted {
        let is_run = |run: &str| tree.tests.values().flatten().any(|place| place.is_run_by(run));
        let vain = runs.iter().filter(|run| !is_run(run));
        found.extend(vain.map(|run| format!("planted {bug}: no test runs with {run}")));
    }
    found
}

/// Planted bugs that are not there, or that run none of the tests of their rule.
fn planted_breaches(code: &str, shown: &str, planted: &str, tree: &Tree) -> Vec<String> {
    let places: Vec<&Place> =
        quoted(shown).filter_map(|test| tree.tests.get(test)).flatten().collect();
    let is_run = |run: &String| places.iter().any(|place| place.is_run_by(run));
    let mut found = Vec::new();
    if quoted(planted).next().is_none() {
        found.push(format!("{code}: no planted bug"));
    }
    for bug in quoted(planted) {
        match tree.planted.get(bug) {
            None => found.push(format!("{code}: no such planted bug: {bug}")),
            Some(runs) if runs.iter().any(is_run) => {}
            Some(_) => found.push(format!("{code}: {bug} runs none of its tests")),
        }
    }
    found
}

fn row_breaches(code: &str, rule: &str, places: &str, shown: &str, tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    if rule.is_empty() || quoted(places).next().is_none() {
        found.push(format!("{code}: no sentence, or no place in the code"));
    }
    let tests: Vec<&str> = quoted(shown).filter(|name| name.contains("::")).collect();
    let is_open = shown.split_once("open: ").is_some_and(|(_, why)| !why.is_empty());
    if tests.is_empty() {
        found.push(format!("{code}: no test"));
    }
    if is_open != IN_PART.contains(&code) {
        found.push(format!("{code}: open here or in this test, and not in both"));
    }
    let missing = tests.into_iter().filter(|test| !tree.tests.contains_key(*test));
    found.extend(missing.map(|test| format!("{code}: no such test: {test}")));
    found
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn each_rule_has_a_test_that_exists_or_says_that_it_is_open() {
    let tree = Tree::of_the_repository();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let found = breaches(&fs::read_to_string(page).unwrap(), &tree);
    assert!(found.is_empty(), "tests/README.md:\n  {}", found.join("\n  "));
    // Lest the reader be blind.
    assert!(tree.tests.len() > 500, "only {} tests", tree.tests.len());
    for known in ["T1", "Q4", "C5", "H6", "A2"] {
        assert!(tree.codes.iter().any(|(place, code)| code == known && place.contains("rs:")));
    }
}
