//! Nodes that are not alike: each fails for a reason of its own, or has more than one problem.

use quorate_tests::peer::Peer;
use quorate_tests::{Nodes, RedisServer};
use serde_json::Value;

use crate::support::{Dir, ask};

/// Only as many nodes with a lasting error as a quorum cannot spare are why a lock cannot be had or seen: 78, else 69.
#[test]
fn nodes_that_fail_for_different_reasons_are_why_if_they_are_enough() {
    let (good, dir) = (&Nodes::start(3), &Dir::new());
    let closed = &Nodes::start_with(3, &RedisServer::builder().user("default", "on >pw ~* +@all"));
    let (good, closed) = (good.addresses(), closed.addresses());
    for (kinds, code) in [
        ("+w-", 69),
        ("w-+", 69),
        ("-+w", 69),
        ("w--", 69),
        ("ww+", 78),
        ("w+w", 78),
        ("-ww", 78),
        ("++w-", 69),
        ("w++w", 78),
        ("w+-w", 78),
        ("+ww--", 69),
        ("-w+-w", 69),
        ("w-w+w", 78),
    ] {
        let (mut good, mut closed) = (good.iter(), closed.iter());
        let address = |kind| match kind {
            '+' => good.next().unwrap().clone(),
            'w' => closed.next().unwrap().replace("redis://", "redis://:no@"),
            _ => format!("redis://{}", Peer::nowhere()),
        };
        let addresses: Vec<String> = kinds.chars().map(address).collect();
        for words in [
            &["inspect", "NAME"][..],
            &["run", "--no-wait", "NAME", "--", "true"],
            &["free", "--yes", "NAME"],
        ] {
            let done = ask(dir, &addresses, words);
            assert_eq!(done.code(), Some(code), "{kinds}, {words:?}: {done:?}");
        }
    }
}

/// One problem passes with time, the other one does not: the node is waited for, for the first one.
#[test]
fn a_node_with_a_lasting_problem_and_one_that_passes_passes() {
    let (nodes, dir) = (&Nodes::start(1), &Dir::new());
    let seen = |longest: &str| -> Value {
        let words = ["nodes", "--json", "--max-ttl", longest];
        serde_json::from_str(&ask(dir, &nodes.addresses(), &words).out).unwrap()
    };
    let both = &seen("1h")["nodes"][0];
    let problems = both["problems"].as_array().unwrap();
    let has = |text: &str| problems.iter().any(|one| one.as_str().unwrap().contains(text));
    assert!(has("forgets its locks") && has("restarted and kept nothing"), "{both}");
    assert_eq!(both["passes"], true, "{both}");
    let waits = ask(dir, &nodes.addresses(), &["nodes", "--max-ttl", "1h", "--wait", "1ms"]);
    assert!(waits.err.contains("a problem is left that passes by itself"), "{waits:?}");
    let words = ["nodes", "--max-ttl", "1s", "--wait", "1h", "--json"];
    let one: Value = serde_json::from_str(&ask(dir, &nodes.addresses(), &words).out).unwrap();
    assert_eq!(one["nodes"][0]["problems"].as_array().unwrap().len(), 1, "{one}");
    assert_eq!(one["nodes"][0]["passes"], false, "{one}");
}
