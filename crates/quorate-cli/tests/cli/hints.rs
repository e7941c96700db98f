//! What the command says of a mistake that it cannot know to be one.

use quorate_tests::Nodes;

use crate::support::{Dir, run};

#[test]
fn a_lock_inside_the_same_lock_is_named() {
    let (servers, dir) = (Nodes::start(1), &Dir::new());
    let nodes = &servers.addresses();
    let hint = "a: the lock of the command that this one runs in (QUORATE_LOCK)";
    let quorate = env!("CARGO_BIN_EXE_quorate");
    for (options, name, code, is_named) in [
        ("--no-wait", "a", 75, true),
        ("-q --no-wait", "a", 75, false),
        ("--no-wait", "b", 0, false),
        ("--no-wait --permits 2", "a", 0, false),
    ] {
        let inner = format!("{quorate} run {options} {name} -- true");
        let done = run(dir, nodes, &["run", "a", "c", "-c", &inner]);
        assert_eq!(done.code(), Some(code), "{inner}: {done:?}");
        assert_eq!(done.err.contains(hint), is_named, "{inner}: {done:?}");
    }
}

/// As the one name of a headless service, which stands for all of its servers.
#[test]
fn one_name_for_several_nodes_is_refused_with_what_to_write() {
    let (dir, name) = (&Dir::new(), "redis://redis.example.svc:6379".to_owned());
    let done = run(dir, &vec![name; 3], &["run", "a", "--", "true"]);
    assert_eq!(done.code(), Some(78), "{done:?}");
    assert!(done.err.contains("give each server by a name of its own"), "{done:?}");
}
