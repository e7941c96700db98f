//! Processes of 0.1 and of this version on the same nodes, as during an upgrade.
//!
//! 0.1 has a wait queue with the same keys, at a gate that depends on the order of the nodes. Its entries are
//! sixteen random bytes. Its records of detached locks and its counters of fencing are those of this version, and
//! its epoch of the restart guard has a key of its own.

use quorate::DetachedLock;
use quorate_tests::keys::waiters;
use quorate_tests::wait::{eventually, times, until, within_limit};
use quorate_tests::{Nodes, Program, RedisServer, Reply};

use crate::client::{Client, all_have, close, close_all, nothing_is_left, with_each};
use crate::working::{assert_right, holds, start_each};

/// A process of 0.1.
fn start_earlier(words: &[&str], nodes: &Nodes) -> Program {
    let ports = nodes.iter().map(|node| node.port().to_string());
    let words = words.iter().map(|word| (*word).to_owned()).chain(ports);
    Program::start(env!("CARGO_BIN_EXE_version_0_1"), words)
}

/// The entries in the wait queue at a node.
fn entries(node: &RedisServer) -> Vec<Vec<u8>> {
    let bytes = |entry| match entry {
        Reply::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    node.cli(&["ZRANGE", &waiters("r"), "0", "-1"]).array().into_iter().map(bytes).collect()
}

/// Each process gets the lock as often as it wants, beside the others.
#[test]
fn two_versions_share_their_nodes() {
    let each = times(50, 1_000);
    let nodes = Nodes::start(3);
    let words = ["contend", "r", &each.to_string()];
    let mut earlier = [(); 2].map(|()| start_earlier(&words, &nodes));
    let mut ours = start_each("blocking", &Client::ALL, &nodes);
    eventually("enough holds", || ours.iter().all(|process| holds([process]).len() >= each));
    earlier.iter_mut().chain(&mut ours).for_each(|process| drop(process.end()));
    let of_earlier = holds(&earlier);
    assert_eq!(of_earlier.len(), 2 * each);
    assert_right("blocking", &[of_earlier, holds(&ours)].concat());
    assert_eq!(nodes.keys_left(), []);
}

/// With one node there is one gate: the entries of both versions are in one queue.
#[test]
fn two_versions_wait_for_each_other_and_leave_the_entries_of_the_other() {
    with_each(&Client::ALL, async |client| {
        let nodes = Nodes::start(1);
        let [ours, second] = [(); 2].map(|()| client.manager(&nodes));
        let guard = ours.lock("r").await.unwrap();
        let mut earlier = start_earlier(&["hold", "r"], &nodes);
        assert_eq!(earlier.line(), "waits");
        let its_entry = entries(&nodes[0]);
        assert_eq!(its_entry.len(), 1);
        let waiting = tokio::spawn(second.lock("r").into_future());
        until("two waiters", || entries(&nodes[0]).len() == 2).await;
        assert_eq!(entries(&nodes[0])[0], its_entry[0], "{client:?}: it keeps its place");
        waiting.abort();
        until("one waiter", || entries(&nodes[0]).len() == 1).await;
        assert_eq!(entries(&nodes[0]), its_entry, "{client:?}");

        guard.release().await.unwrap();
        assert_eq!(earlier.line(), "holds");
        let refused = ours.lock("r").no_wait().await;
        assert!(refused.unwrap_err().is_held(), "{client:?}");
        let waiting = tokio::spawn(second.lock("r").into_future());
        until("one waiter", || entries(&nodes[0]).len() == 1).await;
        earlier.end();
        let next = within_limit("the lock", waiting).await.unwrap().unwrap();
        next.release().await.unwrap();
        close_all([&ours, &second], &nodes).await;
    });
}

#[test]
fn two_versions_read_the_records_of_the_other() {
    with_each(&Client::ALL, async |client| {
        let nodes = Nodes::start(3);
        let ours = client.manager(&nodes);
        let guard = ours.lock("r").await.unwrap();
        all_have(&nodes, "r").await;
        let record = guard.detach().unwrap().encode();
        let mut earlier = start_earlier(&["adopt", &record], &nodes);
        assert_eq!(earlier.line(), "holds");
        assert!(ours.lock("r").no_wait().await.unwrap_err().is_held(), "{client:?}");
        earlier.end();
        nothing_is_left(&nodes).await;

        let mut earlier = start_earlier(&["detach", "r"], &nodes);
        let record: DetachedLock = earlier.line().parse().unwrap();
        earlier.end();
        let guard = ours.adopt(&record).await.unwrap();
        assert!(ours.lock("r").no_wait().await.unwrap_err().is_held(), "{client:?}");
        guard.release().await.unwrap();
        close(&ours, &nodes).await;
    });
}
