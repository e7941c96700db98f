//! A check of real nodes: what each one is, and what is wrong with it.

use quorate::backend::Capabilities;
use quorate::{Check, LockManager, Problem};
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
