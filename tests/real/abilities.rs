//! Nodes that are full, and what is done where nothing can be written.

use quorate::backend::{AcquireOptions, FenceHint, ReleaseOptions, Vote};
use quorate::operators::LockState;
use quorate::{BackendErrorKind, FencingToken};
use quorate_tests::{Nodes, RedisServer};

use crate::calls::claim;
use crate::client::{
    Client, all_have, assert_clean, close, only_error, unreachable, with_each, with_each_client,
};
use crate::wire::commands;

/// From Redis 7 on. It changes what is there, and stores nothing new; scripts that a person has flushed are loaded again.
#[test]
fn rw4_a_full_node_extends_readers_and_revokes() {
    let node = RedisServer::start();
    let set_memory = |bytes| node.cli(&["CONFIG", "SET", "maxmemory", bytes]);
    let scripts = || {
        let info = node.cli(&["INFO", "memory"]).text();
        let of_line = |line: &str| line.strip_prefix("number_of_cached_scripts:")?.parse().ok();
        info.lines().find_map(of_line).unwrap_or(0)
    };
    with_each(&Client::WITH_POOL, async |client| {
        let manager = client.manager_at(&node.address());
        let (reading, second) =
            (manager.read("r").await.unwrap(), manager.read("r").await.unwrap());
        let locked = manager.lock("l").await.unwrap();
        let loaded: usize = scripts();
        set_memory("1");
        node.cli(&["SCRIPT", "FLUSH"]);
        if RedisServer::version() >= (7, 0) {
            for _ in 0..3 {
                reading.extend().await.unwrap();
            }
            // All but the one that a handshake tries, which another connection may have loaded since.
            assert!(scripts() >= loaded - 1, "{client:?}: {} of {loaded}", scripts());
            second.release().await.unwrap();
            locked.extend().await.unwrap();
            for name in ["r", "l"] {
                let revoked = manager.revoke(name).await.unwrap();
                assert!(revoked.is_effective(), "{client:?}: {revoked}");
                let deleted = manager.delete(name).await.unwrap();
                assert!(deleted.is_effective(), "{client:?}: {deleted}");
            }
            assert_eq!(node.keys(), [""; 0], "{client:?}");
        }
        let failure = unreachable(manager.read("s").no_wait().await);
        assert_eq!(only_error(&failure).kind(), BackendErrorKind::OutOfMemory, "{failure}");
        set_memory("0");
        drop((reading, locked));
        assert_clean(&manager).await;
        node.flushall();
    });
}

/// A full node has no room for a number, and frees the lock all the same.
#[test]
fn a_full_node_releases_a_fenced_lock() {
    let node = RedisServer::start();
    with_each(&Client::WITH_POOL, async |client| {
        let (backend, ours) = (client.connect_one(&node.address()), claim("r"));
        let mut fenced = AcquireOptions::default();
        fenced.fencing = Some(FenceHint::default());
        backend.acquire(&ours, fenced).await.unwrap();
        node.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let mut raising = ReleaseOptions::default();
        raising.raise_to = FencingToken::new(7);
        let released = backend.release(&ours, raising).await.unwrap();
        assert_eq!((released.vote, node.get("r")), (Vote::Granted, None), "{client:?}");
        let failed = backend.acquire(&ours, fenced).await.unwrap_err();
        assert_eq!(failed.kind(), BackendErrorKind::OutOfMemory, "{failed}");
        node.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        node.flushall();
    });
}

/// A replica, or a node that may not write, reports what it has all the same: it is only read.
#[test]
fn a_lock_is_looked_at_where_nothing_can_be_written() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let manager = client.manager(nodes);
        let guard = manager.lock("r").await.unwrap();
        all_have(nodes, "r").await;
        assert_eq!(nodes[1].cli(&["REPLICAOF", "127.0.0.1", "1"]).error(), None);
        assert_eq!(nodes[2].cli(&["CONFIG", "SET", "maxmemory", "1"]).error(), None);
        let monitor = nodes[0].monitor();
        let held = manager.inspect("r").await.unwrap();
        let commands = commands(monitor);
        assert_eq!((held.state(), held.nodes_held()), (LockState::Held, 3), "{client:?}: {held}");
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
