//! Errors that no waiting cures end a lock long before its timeout (A4).

use std::future::IntoFuture;

use futures_util::future::join_all;
use quorate::BackendErrorKind as Kind;
use quorate::error::Answer;
use quorate_tests::RedisServer;
use quorate_tests::wait::{LIMIT, eventually, within_limit};

use crate::client::{Client, on_tokio, unhurried, unreachable};

/// A node in cluster mode that serves all slots.
fn cluster_of_one() -> RedisServer {
    let node = RedisServer::builder().config("cluster-enabled", &["yes"]).start();
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
    assert_eq!(node.cli(&words.collect::<Vec<_>>()).error(), None);
    let info = || node.cli(&["CLUSTER", "INFO"]).text();
    eventually("a cluster", || info().contains("cluster_state:ok"));
    node
}

#[test]
fn crossslot_readonly_and_a_wrong_database_are_permanent() {
    let (cluster, plain) = (cluster_of_one(), RedisServer::start());
    let replica = RedisServer::builder().replica_of(&plain).start();
    let cases = [
        (cluster.address(), Kind::CrossSlot, "CROSSSLOT"),
        (replica.address(), Kind::Replica, "READONLY"),
        (plain.address() + "/99", Kind::Database, "DB index"),
        (cluster.address() + "/1", Kind::Database, "SELECT is not allowed"),
    ];
    on_tokio(join_all(Client::ALL.into_iter().flat_map(|client| {
        cases.iter().map(move |(address, kind, text)| async move {
            let nodes = client.connect(std::slice::from_ref(address));
            let manager = unhurried(nodes).build().unwrap();
            let request = manager.lock(["r", "s"]).timeout(100 * LIMIT).into_future();
            let failure = unreachable(within_limit("the end of the wait", request).await);
            assert!(failure.is_permanent(), "{client:?}: {failure}");
            let Answer::Failed(error) = &failure.nodes()[0].answer else { panic!("{failure}") };
            assert_eq!(error.kind(), *kind, "{client:?}: {failure}");
            assert!(failure.to_string().contains(text), "{client:?}: {failure}");
        })
    })));
}
