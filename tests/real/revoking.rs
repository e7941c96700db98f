//! Locks that are taken away on real nodes.

use quorate::operators::LockState;
use quorate_tests::{Nodes, RedisServer, Reply};

use crate::client::{all_have, close, with_each_client};
use crate::wire::commands;

/// When a key expires, in milliseconds since 1970. Redis 7 and later say it, and others how long it lives.
fn expires(node: &RedisServer, key: &str) -> i64 {
    match node.cli(&["PEXPIRETIME", key]) {
        Reply::Integer(end) => end,
        _ => 0,
    }
}

#[test]
fn v1_a_revoked_key_keeps_its_end_and_has_another_value() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let manager = client.manager(nodes);
        let guard = manager.lock("r").await.unwrap();
        all_have(nodes, "r").await;
        let of_each = |nodes: &Nodes| -> Vec<(i64, Option<Vec<u8>>)> {
            nodes.iter().map(|node| (expires(node, "r"), node.get("r"))).collect()
        };
        let (before, left) = (of_each(nodes), nodes[0].pttl("r"));
        let monitor = nodes[0].monitor();
        let found = manager.revoke("r").await.unwrap();
        let sent = commands(monitor);
        assert!(manager.revoke("r").await.unwrap().is_effective(), "{client:?}: once more");
        let after = of_each(nodes);
        assert!(found.is_effective() && found.found().nodes().len() == 3, "{client:?}: {found}");
        assert_eq!(found.found().state(), LockState::Held);
        for ((end, token), (new_end, value)) in before.iter().zip(&after) {
            assert_eq!(end, new_end, "{client:?}");
            assert_ne!(token, value, "{client:?}");
            let value = value.as_ref().unwrap();
            let is_mark = value.starts_with(b"revoked:") && value.ends_with(b" revoked");
            assert!(is_mark && value.len() == 56, "V6: {client:?}");
        }
        assert!(nodes[0].pttl("r") <= left, "{client:?}");
        let names: Vec<_> = sent.iter().map(|words| words[0].to_ascii_uppercase()).collect();
        let begin = names.iter().position(|name| name == "EVALSHA").unwrap();
        let (revoke, before) = (&names[begin..], &names[..begin]);
        assert_eq!(revoke[..4], ["EVALSHA", "GET", "PTTL", "SET"], "{client:?}: {sent:?}");
        // A clock that goes on between the two would move an end that is written anew, but seldom.
        let keeps_its_ttl = sent[begin + 3].iter().any(|word| word == "KEEPTTL");
        assert!(keeps_its_ttl, "{client:?}: {sent:?}");
        // What comes before and behind them are the holder's looks.
        let mut others = before.iter().chain(&revoke[4..]);
        assert!(others.all(|name| name == "GET"), "{client:?}: {sent:?}");
        // The holder can do nothing with it any more.
        assert!(guard.extend().await.is_err(), "{client:?}");
        assert!(manager.lock("r").no_wait().await.is_err(), "{client:?}");
        let found = manager.delete("r").await.unwrap();
        assert!(found.is_effective() && found.free_in().is_zero(), "{client:?}: {found}");
        close(&manager, nodes).await;
    });
}
