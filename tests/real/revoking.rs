//! Locks that are taken away on real nodes, from a holder that is stopped.

use std::time::Duration;

use futures_util::future::join_all;
use quorate::operators::LockState;
use quorate_tests::clock::now;
use quorate_tests::judge::{Hold, Verdict, judge};
use quorate_tests::wait::{until, within_limit};
use quorate_tests::{Nodes, RedisServer, Reply};

use crate::client::{
    Client, all_have, assert_clean, close, nothing_is_left, on_tokio, with_each_client,
};
use crate::wire::commands;
use crate::working::{holds, start};
use crate::workloads::HELD;

/// Revokes of a stopped holder, with each client.
const REVOKES: usize = 200;

/// Of the holder. All its locks are free that long after they were revoked.
const TTL: Duration = Duration::from_millis(1_500);

/// Takes all locks of a holder that is stopped, and holds each one as soon as it is free. Returns how many were
/// taken away, and what the judge of all holds says.
async fn take_from_a_stopped_holder(client: Client, nodes: &Nodes) -> (usize, Verdict) {
    let manager = client.manager(nodes);
    drop(within_limit("a connection", manager.lock("warm")).await.unwrap());
    let mut holder = start("held", client, TTL, &nodes.addresses());
    until("all locks are held", || holds([&holder]).len() >= HELD).await;
    holder.stop();
    let names: Vec<String> = (0..HELD).map(|lock| format!("held:{lock}")).collect();
    let taken =
        join_all(names.iter().map(async |name| manager.revoke(&**name).await.unwrap())).await;
    assert!(taken.iter().all(|found| found.free_in() <= TTL), "{client:?}: {taken:?}");
    let taken = taken.iter().filter(|found| found.is_effective()).count();
    let next = names.iter().enumerate().map(async |(lock, name)| {
        let guard = manager.lock(&**name).await.unwrap();
        let acquired = now();
        (lock, acquired, guard)
    });
    let next = join_all(next).await;
    holder.go_on();
    holder.end();
    let mut holds = holds([&holder]);
    holds.extend(next.into_iter().map(|(lock, acquired, guard)| {
        let end = now();
        drop(guard);
        Hold { lock, acquired, end, ..Hold::default() }
    }));
    assert_clean(&manager).await;
    // Where no connection of a pool was free for it, an entry in the wait queue has to expire.
    nothing_is_left(nodes).await;
    (taken, judge(&holds))
}

/// The process is stopped, and knows nothing: its leases end by the clock, and then the keys do.
#[test]
fn v2_no_lock_that_was_revoked_from_a_stopped_holder_is_held_twice() {
    on_tokio(join_all(Client::WITH_POOL.map(async |client| {
        let nodes = Nodes::start(3);
        let (mut revoked, mut rounds) = (0, 0);
        while revoked < REVOKES {
            let (taken, verdict) = take_from_a_stopped_holder(client, &nodes).await;
            assert_eq!(verdict.overlaps, 0, "{client:?}: {:?}", verdict.example);
            // Where the machine stops the holder for longer than its ttl, there is nothing to take away.
            (revoked, rounds) = (revoked + taken, rounds + 1);
            assert!(rounds < 50, "{client:?}: only {revoked} in {rounds} rounds");
        }
    })));
}

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
        assert!(found.is_effective() && found.nodes().len() == 3, "{client:?}: {found}");
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
