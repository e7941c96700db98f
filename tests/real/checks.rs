//! A check of real nodes: what each one is, and what is wrong with it.

use std::io::Write as _;

use quorate::backend::Capabilities;
use quorate::{BackendErrorKind, Check, LockManager, Problem};
use quorate_tests::peer::Peer;
use quorate_tests::wait::until_it_says;
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, on_tokio, unhurried, with_each_client};

fn problems(check: &Check) -> Vec<String> {
    check.problems().map(|(_, problem)| problem.to_string()).collect()
}

/// The check of the only node.
async fn check(manager: &LockManager) -> Check {
    manager.check().await
}

#[test]
fn a_healthy_node_has_no_problem() {
    let nodes = &Nodes::start(3);
    let log = RedisServer::builder().append_only().start();
    let log = &log;
    with_each_client(|client| async move {
        let seen = client.manager(nodes).check().await;
        assert_eq!(problems(&seen), [""; 0], "{client:?}: {seen}");
        assert!(seen.has_quorum());
        assert_eq!(seen.to_string().lines().count(), 3);
        for (report, node) in seen.nodes().iter().zip(nodes.iter()) {
            let told = report.description.as_ref().unwrap();
            assert_eq!(told.server_id.as_deref(), Some(&*node.run_id()));
            assert_eq!((told.is_replica, told.is_append_only), (Some(false), Some(false)));
            assert_eq!((told.max_memory, told.runs_scripts), (Some(0), Some(true)));
            assert!(told.eviction.is_some() && told.quarantine_left.is_none());
            let version = told.version.as_deref().unwrap();
            let is_known = version.starts_with("Redis ") || version.starts_with("Valkey ");
            assert!(is_known && version.contains('.'), "{version}");
            assert!(report.round_trip.is_some());
            let able = Capabilities::FENCING | Capabilities::GUARD | Capabilities::QUEUE;
            assert!(report.abilities.contains(able | Capabilities::REVOKE | Capabilities::WATCH));
            assert_eq!(node.keys(), [""; 0], "nothing was written");
        }
        let seen = client.manager_at(&log.address()).check().await;
        assert_eq!(seen.nodes()[0].description.as_ref().unwrap().is_append_only, Some(true));
    });
}

#[test]
fn a_check_says_what_is_wrong_with_a_node_and_what_to_do() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.port()).start();
    replica.wait_until_in_sync();
    let evicts = RedisServer::builder().config("maxmemory", &["100mb"]);
    let evicts = evicts.config("maxmemory-policy", &["allkeys-lru"]).start();
    let secret = RedisServer::builder().user("default", "on >secret ~* &* +@all").start();
    let quarantined = RedisServer::start();
    quarantined.cli(&["SET", "quorate:guard:quarantine", "x"]);
    on_tokio(async {
        for client in Client::WITH_POOL {
            for (address, expected) in [
                (
                    replica.address(),
                    "a replica: the node grants no locks; use the address of its primary",
                ),
                (
                    evicts.address(),
                    "maxmemory-policy allkeys-lru: the node may evict locks; set noeviction",
                ),
                (
                    quarantined.address(),
                    "quarantined: the node grants no locks until quorate:guard:quarantine is deleted",
                ),
            ] {
                let seen = check(&client.manager_at(&address)).await;
                assert_eq!(problems(&seen), [expected], "{client:?}: {seen}");
                assert!(seen.to_string().contains(expected) && seen.has_quorum(), "{seen}");
            }
            let stranger = secret.address().replace(":secret@", "");
            let seen = check(&client.manager_at(&stranger)).await;
            let [(_, Problem::Failed(error))] = &*seen.problems().collect::<Vec<_>>() else {
                panic!("{client:?}: {seen}")
            };
            assert_eq!(error.kind(), BackendErrorKind::Auth, "{client:?}: {seen}");
            assert!(!seen.has_quorum());
        }
    });
}

/// What a user may not read is missing in the report, which says so.
#[test]
fn a_user_without_a_permission_gets_a_report_that_says_so() {
    let node = &RedisServer::builder().user("app", "on >pw ~* +@all").start();
    let allow = |rules: &[&str]| {
        let words: Vec<_> =
            ["ACL", "SETUSER", "app", "resetkeys"].iter().chain(rules).copied().collect();
        assert_eq!(node.cli(&words).error(), None);
    };
    on_tokio(async {
        for client in Client::WITH_POOL {
            let report = async |rules: &[&str]| {
                allow(rules);
                check(&client.manager_at(&node.address_as("app", "pw"))).await
            };
            let seen = report(&["~*", "+@all", "-info"]).await;
            let told = problems(&seen);
            assert!(told[0].contains("allow +info") && told[1].contains("no server id"), "{seen}");
            assert_eq!(told.len(), 2, "{client:?}: {seen}");
            let node = &seen.nodes()[0];
            assert!(node.round_trip.is_some() && node.description.is_some());
            let able = |one| node.abilities.contains(one);
            assert!(able(Capabilities::FENCING | Capabilities::QUEUE), "{seen}");
            assert!(!able(Capabilities::GUARD), "{seen}");
            // The keys of the guard are forbidden: all else is known.
            let seen = report(&["~r", "+@all"]).await;
            assert_eq!(problems(&seen), [""; 0], "{client:?}: {seen}");
            assert!(!seen.nodes()[0].abilities.contains(Capabilities::GUARD), "{seen}");
            assert!(seen.nodes()[0].description.as_ref().unwrap().version.is_some());
        }
    });
}

#[test]
fn a_port_that_is_no_node_is_named() {
    let chatters = Peer::raw(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n"));
    let nowhere = format!("redis://{}", Peer::nowhere());
    let (live, chatters) = (&RedisServer::start(), &chatters);
    on_tokio(async {
        for client in Client::WITH_POOL {
            let addresses = [live.address(), chatters.url(), nowhere.clone()];
            let manager = unhurried(client.connect(&addresses)).build().unwrap();
            // A peer that ends its connections may be noticed by a later check.
            until_it_says("each is named", async || {
                let seen = check(&manager).await;
                assert!(!seen.has_quorum(), "{client:?}: {seen}");
                let failed =
                    |at: usize| matches!(&*seen.nodes()[at].problems, [Problem::Failed(_)]);
                seen.nodes()[0].problems.is_empty() && failed(1) && failed(2)
            })
            .await;
        }
    });
}

#[test]
fn q6_one_server_under_two_addresses_is_found() {
    let node = &RedisServer::start();
    with_each_client(|client| async move {
        let addresses = [node.address(), node.address().replace("127.0.0.1", "localhost")];
        let manager = unhurried(client.connect(&addresses)).build().unwrap();
        let seen = check(&manager).await;
        let is_same = |problem: &Problem| matches!(problem, Problem::SameServer { .. });
        assert_eq!(seen.problems().filter(|(_, problem)| is_same(problem)).count(), 2, "{seen}");
    });
}
