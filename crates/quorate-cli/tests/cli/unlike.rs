//! Nodes that are not alike: each fails for a reason of its own, or has more than one problem.

use quorate_tests::peer::Peer;
use quorate_tests::{Nodes, RedisServer};

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
