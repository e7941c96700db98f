//! The holder of a lock on real nodes: a look at it, which is read only, and a refusal.

use quorate::{LockManager, operators::LockState};
use quorate_tests::Nodes;
use quorate_tests::wait::LONG_TTL;

use crate::client::{Client, all_have, assert_clean, close, on_tokio, with_each_client};
use crate::wire::commands;

/// A replica, or a node that may not write, reports what it has all the same.
#[test]
fn a_lock_is_looked_at_without_being_taken_also_where_nothing_can_be_written() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let manager = client.manager(nodes);
        let free = manager.inspect("r").await.unwrap();
        assert_eq!((free.state(), free.nodes_held()), (LockState::Free, 0), "{client:?}: {free}");
        assert_eq!(nodes.keys_left(), [], "nothing is taken");

        let guard = manager.lock("r").await.unwrap();
        all_have(nodes, "r").await;
        assert_eq!(nodes[1].cli(&["REPLICAOF", "127.0.0.1", "1"]).error(), None);
        assert_eq!(nodes[2].cli(&["CONFIG", "SET", "maxmemory", "1"]).error(), None);
        let monitor = nodes[0].monitor();
        let held = manager.inspect("r").await.unwrap();
        let commands = commands(monitor);
        assert_eq!((held.state(), held.nodes_held()), (LockState::Held, 3), "{client:?}: {held}");
        let left = held.time_left().unwrap();
        assert!(left <= LONG_TTL && left > LONG_TTL / 2, "{client:?}: {left:?}");
        let names: Vec<_> = commands.iter().map(|words| words[0].to_ascii_uppercase()).collect();
        let reads = ["EVALSHA", "EVAL", "GET", "PTTL"];
        assert!(names.iter().all(|name| reads.contains(&name.as_str())), "{commands:?}");
        // The second one is the holder's look.
        let gets = names.iter().filter(|name| *name == "GET").count();
        assert!((1..=2).contains(&gets), "{commands:?}");
        nodes[1].cli(&["REPLICAOF", "NO", "ONE"]);
        nodes[2].cli(&["CONFIG", "SET", "maxmemory", "0"]);
        guard.release().await.unwrap();
        close(&manager, nodes).await;
    });
}

/// For a plain lock, for several names, and with a fencing token: three commands that name the holder.
#[test]
fn l1_a_refusal_of_a_real_node_names_the_holder_by_its_label() {
    let nodes = &Nodes::start(3);
    on_tokio(async {
        for client in Client::WITH_POOL {
            let (holder, other) = (
                client.builder(nodes).label("web-3 nightly").build().unwrap(),
                client.manager(nodes),
            );
            for (names, fenced) in [(&["r"][..], false), (&["q", "r"], false), (&["r"], true)] {
                let ask = |locks: &LockManager| {
                    let request = locks.lock(names.to_vec()).no_wait();
                    if fenced { request.fenced() } else { request }
                };
                let guard = ask(&holder).await.unwrap();
                // On a pool, the release of the round before may reach a node behind this acquire.
                let stored = nodes.iter().find_map(|node| node.get("r"));
                let token = String::from_utf8(stored.unwrap()).unwrap();
                let error = ask(&other).await.unwrap_err();
                assert_eq!(error.held_by(), Some("web-3 nightly"), "{client:?}: {error}");
                assert!(error.to_string().contains(": held by \"web-3 nightly\" on "), "{error}");
                assert!(!format!("{error:?}").contains(&token[..40]), "{client:?}");
                let seen = other.inspect("r").await.unwrap();
                assert_eq!((seen.state(), seen.label()), (LockState::Held, Some("web-3 nightly")));
                assert!(other.try_lock("r").await.unwrap().is_none());
                guard.release().await.unwrap();
            }
            assert_clean(&holder).await;
            assert_clean(&other).await;
        }
    });
}
