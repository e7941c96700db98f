//! Each way in which the table can be wrong is found.

use super::*;

/// A page with all rules, and the tree in which it is right.
fn right() -> (String, Tree) {
    let mut tree = Tree::default();
    for code in known_codes() {
        let test = format!("/// It works. {code}\n#[test]\nfn it_works_{code}() {{}}\n");
        tree.add_file("tests/virtual/rules/good.rs", &test);
    }
    tree.add_file("tests/virtual/a/src/b.rs", "#[test]\nfn it_is_b() {}\n");
    let all = known_codes().join(" ");
    tree.add_planted("bad", &format!("# RULES: {all}\n# TESTS: {RULES_TEST} good::\n"));
    let rule = |code: &String| format!("- **{code}** It\n  holds.\n");
    (known_codes().iter().map(rule).collect(), tree)
}

const RULES_TEST: &str = "-p quorate-tests --test rules";

#[test]
fn each_way_to_be_wrong_is_found() {
    let rule = "- **T1** It\n  holds.\n";
    for (from, to, expected) in [
        (rule, rule, "nothing is wrong"),
        (rule, "", "not each rule once and in order"),
        (rule, &format!("{rule}{rule}"), "not each rule once and in order"),
        (rule, &rule.replace("- ", ""), "not each rule once and in order"),
        (rule, &format!("{rule}  More.\n"), "T1: more than two lines"),
        (rule, &format!("{rule}\n  More.\n"), "nothing is wrong"),
    ] {
        let (page, tree) = right();
        let found = breaches(&page.replacen(from, to, 1), &tree);
        let is_found = found.iter().any(|why| why.starts_with(expected));
        let is_right = expected == "nothing is wrong";
        assert_eq!((is_found, found.is_empty()), (!is_right, is_right), "{to}: {found:?}");
    }
}

#[test]
fn a_rule_without_a_test_or_without_a_planted_bug_is_found() {
    let (page, mut tree) = right();
    tree.tests.remove("good::it_works_T1");
    assert_eq!(breaches(&page, &tree), ["T1: no test", "planted bad: it runs no test of T1"]);
    let (page, mut tree) = right();
    tree.planted.get_mut("bad").unwrap().rules.remove(0);
    assert_eq!(breaches(&page, &tree), ["T1: no planted bug"]);
    tree.add_planted("b", &format!("# RULES: T1\n# TESTS: {RULES_TEST} good::it_works_T2\n"));
    assert_eq!(breaches(&page, &tree), ["planted b: it runs no test of T1"]);
}

#[test]
fn what_shows_a_rule_is_written_down_by_file() {
    let (_, mut tree) = right();
    tree.add_file("tests/real/a.rs", "#[test]\nfn t1_t2_it_is_real() {}\n");
    let page = shown(&tree);
    let tests = "tests/real/a.rs\n  t1_t2_it_is_real\ntests/virtual/rules/good.rs\n  it_works_";
    for code in ["T1", "T2"] {
        let part = format!("\n## {code}\n\n```text\n{tests}{code}\nplanted\n  bad\n```\n");
        assert!(page.contains(&part), "{page}");
    }
    assert_eq!(page.matches("it_is_real").count(), 2);
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
        ("a.rs", "// As rule T96 says.", Some("a.rs:1: T96 is no rule")),
        ("a.rs", "//! C1–C99.", Some("a.rs:1: C99 is no rule")),
        ("a.rs", "fn q97_it_works() {}", Some("a.rs:1: Q97 is no rule")),
        ("a.rs", "    pub async fn it_works_and_a0_too() {}", Some("a.rs:1: A0 is no rule")),
        ("a.md", "It holds. [q1, t99]", Some("a.md:1: T99 is no rule")),
        ("a.md", "It holds (W95).", Some("a.md:1: W95 is no rule")),
        ("a.toml", "# H90", Some("a.toml:1: H90 is no rule")),
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
