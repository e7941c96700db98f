//! The places of node addresses, and the errors for texts that are none.

use quorate_tests::{Nodes, RedisServer};

use crate::support::{Dir, ask};

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
