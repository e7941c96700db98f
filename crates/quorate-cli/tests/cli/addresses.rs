//! The places of node addresses, and the errors for texts that are none.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use quorate_tests::{Nodes, RedisServer};

use crate::support::{Dir, Started, VARIABLES, ask, quorate, run};

#[test]
fn a_file_of_addresses_has_empty_lines_and_comments() {
    let rules = RedisServer::builder().user("ann", "on >hash#tag ~* +@all");
    let (nodes, dir) = (&Nodes::start_with(3, &rules), &Dir::new());
    let [a, b, c] = [0, 1, 2].map(|at| nodes[at].address_as("ann", "hash%23tag"));
    for text in [
        format!("{a}\n{b}\n{c}\n"),
        format!("\u{feff}# our nodes\r\n\r\n{a} # the first\r\n\t{b}\t#second\r\n  # {a}\r\n{c}"),
        format!("{a} {b}#\n{c}").replace('#', " #"),
    ] {
        dir.write("nodes", &text);
        let done = ask(dir, &[], &["--nodes-file", "nodes", "inspect", "a"]);
        assert!(done.out.contains("free on 3 of 3 nodes"), "{text:?}: {done:?}");
    }
    // A variable may have lines, too.
    let done = ask(dir, &[format!("{a} # the first\n{b}\n\n{c}")], &["inspect", "a"]);
    assert!(done.out.contains("free on 3 of 3 nodes"), "{done:?}");
}

#[test]
fn an_error_names_the_line_and_what_is_wrong_with_it() {
    let dir = &Dir::new();
    let good = "redis://ann:hunter2@127.0.0.1:1";
    for (line, reason) in [
        ("redis://ann:hunter2@127.0.0.1:99999", "redis://…@127.0.0.1:99999"),
        ("10.0.0.1:6379", "it has no scheme"),
        ("redis://a:1,redis://:hunter2@b:2", "spaces between them, and no commas"),
        ("redis://:hunter2@a,b,c", "spaces between them, and no commas"),
        ("\"redis://ann:hunter2@a redis://b\"", "leave the quotation marks out"),
        ("'redis://ann:hunter2@a'", "leave the quotation marks out"),
        ("redis+sentinel://:hunter2@a", "GROUP[/database]"),
        ("redis://ann:hunter2#x@a", "%23"),
    ] {
        dir.write("nodes", &format!("# nodes\n{good}\n\n{line}\n"));
        let of_file = run(dir, &[], &["--nodes-file", "nodes", "run", "a", "--", "true"]);
        let of_variable = run(dir, &[good.to_owned(), line.to_owned()], &["inspect", "a"]);
        for (done, place) in
            [(of_file, "quorate: nodes:4: "), (of_variable, "quorate: QUORATE_NODES:1: ")]
        {
            assert_eq!(done.code(), Some(78), "{line}: {done:?}");
            assert!(done.err.starts_with(place) && done.err.contains(reason), "{line}: {done:?}");
            assert!(!done.err.contains("hunter2") && done.err.lines().count() == 1, "{done:?}");
        }
    }
    dir.write("nodes", "# none\n");
    for (file, text) in
        [("nodes", "quorate: nodes: no nodes\n"), ("no-such-file", "quorate: no-such-file: ")]
    {
        let done = run(dir, &[], &["--nodes-file", file, "inspect", "a"]);
        assert!(done.code() == Some(64) && done.err.starts_with(text), "{done:?}");
    }
    let mut command = quorate(dir, &[]);
    command.args(["inspect", "a"]).env("QUORATE_NODES", OsStr::from_bytes(b"redis://\xff"));
    let done = Started::spawn(command, dir).done();
    assert_eq!((done.code(), &*done.err), (Some(64), "quorate: QUORATE_NODES: it is not UTF-8\n"));
}

#[test]
fn a_variable_that_is_empty_counts_as_unset() {
    let (nodes, dir) = (&Nodes::start(1), &Dir::new());
    let with = |name, text| {
        let mut command = quorate(dir, &nodes.addresses());
        command.args(["run", "a", "--", "true"]).env(name, text);
        Started::spawn(command, dir).done()
    };
    for name in VARIABLES {
        with(name, "").assert_silent();
        let is_text = matches!(name, "QUORATE_PREFIX" | "QUORATE_GROUP");
        assert_eq!(with(name, "no").code(), Some(if is_text { 0 } else { 64 }), "{name}");
    }
    let none = with("QUORATE_NODES", "");
    assert!(none.code() == Some(64) && none.err.contains("no nodes"), "{none:?}");
}
