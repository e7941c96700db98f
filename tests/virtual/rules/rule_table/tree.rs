//! The tests, planted bugs and codes of the repository, read from its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, mem};

/// The rules: one letter or two, and how many there are.
const RULES: &[(&str, u32)] = &[
    ("T", 5),
    ("Q", 6),
    ("C", 8),
    ("H", 7),
    ("A", 6),
    ("FT", 1),
    ("W", 4),
    ("L", 3),
    ("V", 10),
    ("P", 3),
    ("O", 9),
    ("E", 6),
    ("RW", 9),
    ("S", 6),
    ("N", 5),
    ("X", 9),
];

/// Kinds of files that people write. Data is full of what looks like a code.
const TEXTS: &[&str] = &["rs", "md", "toml", "txt", "yml", "yaml", "sh"];

/// Its own cases contain codes of no rule.
const THIS_FILE: &str = "tests/virtual/rules/rule_table";

/// What the repository has, as far as the rules are concerned.
#[derive(Default)]
pub(super) struct Tree {
    /// Each test as `file::function`, and where it stands.
    pub(super) tests: BTreeMap<String, Vec<Place>>,
    pub(super) planted: BTreeMap<String, Planted>,
    /// Each use of a code: the place, and the code in upper case.
    pub(super) codes: Vec<(String, String)>,
}

/// What the header of a planted bug says.
pub(super) struct Planted {
    pub(super) rules: Vec<String>,
    /// The words of its test runs.
    pub(super) runs: Vec<String>,
}

/// Where a test stands, and the rules that it shows.
pub(super) struct Place {
    pub(super) rules: BTreeSet<String>,
    pub(super) file: String,
    package: String,
    target: String,
    /// Its name in its target.
    pub(super) name: String,
}

impl Place {
    /// Of a test in this file: the first part of its name is that of its module.
    fn of(file: &str, function: &str, rules: BTreeSet<String>) -> Self {
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
        Self { rules, file: file.to_owned(), package, target: target.to_owned(), name }
    }

    /// Whether it runs with these words for `cargo test`.
    pub(super) fn is_run_by(&self, words: &str) -> bool {
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
    pub(super) fn of_the_repository() -> Self {
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
                let rules = text.lines().filter_map(|line| line.strip_prefix("# RULES: "));
                let rules = rules.flat_map(str::split_whitespace).map(str::to_owned).collect();
                let runs = text.lines().filter_map(|line| line.strip_prefix("# TESTS: "));
                let runs = runs.map(str::to_owned).collect();
                let bug = bug.trim_end_matches(".patch").to_owned();
                self.planted.insert(bug, Planted { rules, runs });
            }
        }
    }

    /// The tests of virtual time that are named for a rule, and stand in another file than others of its tests.
    pub(super) fn scattered(&self) -> Vec<String> {
        let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (test, place) in
            self.tests.iter().flat_map(|(test, at)| at.iter().map(move |at| (test, at)))
        {
            let function = test.rsplit("::").next().unwrap();
            let code = codes_of_name(function).next();
            if let Some(code) = code.filter(|_| place.file.starts_with("tests/virtual/rules/")) {
                files.entry(code).or_default().insert(&place.file);
            }
        }
        let scattered = files.into_iter().filter(|(_, files)| files.len() > 1);
        scattered.map(|(code, files)| format!("{code}: its tests stand in {files:?}")).collect()
    }

    pub(super) fn add_file(&mut self, name: &str, text: &str) {
        let module = name.trim_end_matches(".rs").trim_end_matches("/main").rsplit('/').next();
        let (mut is_test, mut rules) = (false, BTreeSet::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_start();
            let function = function_of(line).filter(|_| name.ends_with(".rs"));
            if line.starts_with("#[") {
                is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            } else if let Some(function) = function {
                if is_test {
                    let test = format!("{}::{function}", module.unwrap());
                    rules.extend(codes_of_name(function));
                    let place = Place::of(name, function, mem::take(&mut rules));
                    self.tests.entry(test).or_default().push(place);
                }
                (is_test, rules) = (false, BTreeSet::new());
            } else if line.starts_with("///") {
                rules.extend(codes_in(line));
            } else if !line.starts_with("//") {
                (is_test, rules) = (false, BTreeSet::new());
            }
            let mut codes = codes_in(line);
            codes.extend(function.into_iter().flat_map(|name| name.split('_')).filter_map(code_of));
            if name.ends_with(".md") {
                // A page may name a rule in lower case in square brackets.
                let rest = line.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
                codes.extend(rest.flat_map(|(inside, _)| words(inside)).filter_map(code_of));
            }
            self.codes.extend(codes.into_iter().map(|code| (format!("{name}:{number}"), code)));
        }
    }
}

/// The codes with which the name of a test begins.
fn codes_of_name(function: &str) -> impl Iterator<Item = String> {
    function.split('_').map_while(code_of)
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

/// Letters of the table and one digit or two, in either case.
pub(super) fn code_of(word: &str) -> Option<String> {
    let number = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let letters = word[..word.len() - number.len()].to_ascii_uppercase();
    let is_code = RULES.iter().any(|(known, _)| *known == letters)
        && (1..=2).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit());
    is_code.then(|| format!("{letters}{number}"))
}

pub(super) fn known_codes() -> Vec<String> {
    let numbered = RULES.iter().flat_map(|(letter, count)| (1..=*count).map(move |n| (letter, n)));
    numbered.map(|(letter, number)| format!("{letter}{number}")).collect()
}
