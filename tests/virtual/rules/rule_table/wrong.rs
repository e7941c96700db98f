//! Each way in which the table can be wrong is found.

use super::*;

/// A page with all rules, and the tree in which it is right.
fn right() -> (String, Tree) {
    let mut tree = Tree::default();
    tree.add_file("tests/virtual/rules/good.rs", "/// It works.\n#[test]\nfn it_works() {}\n");
    tree.files.insert("crates/a/src/b.rs".to_owned());
    tree.add_planted("bad", "# TESTS: -p quorate-tests --test rules good::\n");
    tree.add_planted("lib", "# TESTS: -p quorate-a --lib\n");
    tree.add_file("tests/virtual/a/src/b.rs", "#[test]\nfn it_is_b() {}\n");
    let row = |code: &String| {
        let shown = match &**code {
            code if IN_PART.contains(&code) => "`good::it_works`<br>open: in part",
            _ => "`good::it_works`",
        };
        format!("| {code} | It holds. | `a/src/b.rs` | {shown} | `bad` |\n")
    };
    (known_codes().iter().map(row).collect(), tree)
}

#[test]
fn each_way_to_be_wrong_is_found() {
    let row = "| T1 | It holds. | `a/src/b.rs` | `good::it_works` | `bad` |";
    for (from, to, expected) in [
        (row, row, "nothing is wrong"),
        (row, "", "not each rule once and in order"),
        (row, &format!("{row}\n{row}"), "not each rule once and in order"),
        (row, &row.replace(" | `bad`", ""), "T1: not a row of five cells"),
        (row, &row.replace("It holds.", ""), "T1: no sentence"),
        (row, &row.replace("`a/src/b.rs`", ""), "T1: no sentence"),
        (row, &row.replace("`good::it_works`", ""), "T1: no test"),
        (row, &row.replace("good::", ""), "T1: no test"),
        (row, &row.replace("b.rs", "gone.rs"), "no such file: a/src/gone"),
        (row, &row.replace("it_works", "it_is_gone"), "T1: no such test: good::it_is_gone"),
        (row, &row.replace("good", "bad"), "T1: no such test: bad::it_works"),
        (row, &row.replace("works`", "works`<br>open: not here"), "T1: open here or"),
        (row, &row.replace("`good::it_works`", "open: not here"), "T1: no test"),
        (row, &row.replace("`bad`", ""), "T1: no planted bug"),
        (row, &row.replace("`bad`", "`worse`"), "T1: no such planted bug: worse"),
        (row, &row.replace("`bad`", "`lib`"), "T1: lib runs none of its tests"),
        ("<br>open: in part", "", "T3: open here or"),
        ("open: in part", "open: ", "T3: open here or"),
    ] {
        let (page, tree) = right();
        assert!(page.contains(from));
        let found = breaches(&page.replacen(from, to, 1), &tree);
        let is_found = found.iter().any(|why| why.starts_with(expected));
        assert_eq!((is_found, found.is_empty()), (to != row, to == row), "{to}: {found:?}");
    }
}

/// Tests of one rule in two files, runs of no test, and codes of no rule.
#[test]
fn each_wrong_file_is_found() {
    let test = "#[test]\nfn t1_it_works() {}\n";
    for (file, text, expected) in [
        ("tests/virtual/rules/a.rs", test, None),
        ("tests/virtual/rules/good.rs", test, Some("T1: its tests stand in ")),
        ("tests/virtual/rules/a/b.rs", test, Some("T1: its tests stand in ")),
        ("tests/virtual/b.rs", test, None),
        ("worse.patch", "-p quorate-tests --test rules", None),
        ("worse.patch", "-p quorate-tests --test rules -- no good::it_", None),
        (
            "worse.patch",
            "-p quorate-tests --test rules gone::",
            Some("planted worse: no test runs"),
        ),
        ("worse.patch", "-p quorate-tests --test real", Some("planted worse: no test runs")),
        ("worse.patch", "-p quorate-tests --lib", Some("planted worse: no test runs")),
        ("worse.patch", "-p quorate-a --lib b::tests::it", None),
        ("worse.patch", "-p quorate-a", None),
        ("worse.patch", "-p a", Some("planted worse: no test runs")),
        ("a.rs", "// As rule T6 says.", Some("a.rs:1: T6 is no rule")),
        ("a.rs", "//! C1–C9.", Some("a.rs:1: C9 is no rule")),
        ("a.rs", "fn q7_it_works() {}", Some("a.rs:1: Q7 is no rule")),
        ("a.rs", "    pub async fn it_works_and_a0_too() {}", Some("a.rs:1: A0 is no rule")),
        ("a.md", "It holds. [q1, t9]", Some("a.md:1: T9 is no rule")),
        ("a.md", "It holds (W5).", Some("a.md:1: W5 is no rule")),
        ("a.toml", "# H10", Some("a.toml:1: H10 is no rule")),
        ("a.rs", "// As rules T1 and C1–C8 say.", None),
        ("a.rs", "fn h2_resp3_and_sha1() {}", None),
        ("a.rs", "let q7 = [a9, b3];", None),
        ("a.md", "It holds. [q1, c2–c5, with]; see [v2], t9 and Y9.", None),
    ] {
        let (page, mut tree) = right();
        tree.add_file("tests/virtual/rules/a.rs", test);
        match file.strip_suffix(".patch") {
            Some(bug) => tree.add_planted(bug, &format!("# TESTS: {text}\n")),
            None => tree.add_file(file, text),
        }
        let found = breaches(&page, &tree);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{file}, {text}: {found:?}");
        assert!(found.iter().all(|why| why.starts_with(expected.unwrap())), "{text}: {found:?}");
    }
}

#[test]
fn only_a_function_with_the_attribute_is_a_test() {
    for (text, is_test) in [
        ("#[test]\nfn f() {}", true),
        ("#[tokio::test]\nasync fn f() {}", true),
        ("#[test]\n#[should_panic(expected = \"x\")]\n// Why.\nfn f() {}", true),
        ("mod tests {\n    #[test]\n    fn f() {}", true),
        ("fn f() {}", false),
        ("#[test]\nfn g() {}\nfn f() {}", false),
        ("#[inline]\nfn f() {}", false),
        ("// #[test]\n// fn f() {}", false),
    ] {
        let mut tree = Tree::default();
        tree.add_file("tests/a/main.rs", text);
        assert_eq!(tree.tests.contains_key("a::f"), is_test, "{text}");
    }
}
