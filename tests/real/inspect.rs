//! A look at the holder of a lock on real nodes is read only.

use quorate::operators::LockState;
use quorate_tests::Nodes;
use quorate_tests::wait::LONG_TTL;

use crate::client::{all_have, close, with_each_client};
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
