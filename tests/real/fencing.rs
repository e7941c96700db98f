//! Fencing tokens on real nodes: a holder that was stopped past its ttl is refused.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::thread;

use quorate::backend::{AcquireOptions, FenceHint, ReleaseOptions, Vote};
use quorate::{BackendErrorKind, FencedCell, FencingToken};
use quorate_tests::resource::Resource;
use quorate_tests::wait::times;
use quorate_tests::{Nodes, RedisServer};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::calls::claim;
use crate::client::{Client, assert_clean, on_tokio, with_each};

/// Processes are stopped while they hold a lock, wake after its keys have expired, know nothing, and write: several
/// times, to a cell in this process and to a store.
#[test]
fn holders_that_were_stopped_past_their_ttl_are_refused() {
    let (processes, times) = (times(4, 10), times(4, 10));
    for count in [3, 5] {
        let (nodes, store) = (&Nodes::start(count), &RedisServer::start());
        thread::scope(|scope| {
            for place in 0..processes {
                let [stale, later] = [Client::ALL[place % 2], Client::ALL[(place + 1) % 2]];
                scope.spawn(move || on_tokio(refuse(stale, later, place, times, store, nodes)));
            }
        });
        let left = nodes.keys_left().into_iter();
        assert!(left.map(|(_, key)| key).all(|key| key.starts_with("quorate:fence:")));
    }
}

/// Stops a process each time that it holds the lock, has the keys expire, takes the lock, writes, and lets the
/// process write after it.
async fn refuse(
    stale: Client,
    later: Client,
    place: usize,
    times: u32,
    store: &RedisServer,
    nodes: &Nodes,
) {
    let (resource, port) = (format!("r{place}"), store.port());
    let mut child = Command::new(env!("CARGO_BIN_EXE_program"))
        .args(["stale", stale.word(), &port.to_string(), &resource, &times.to_string()])
        .args(nodes.addresses())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (manager, cell) = (later.manager(nodes), FencedCell::new("nothing"));
    let mut store = Resource::open(port, &resource).unwrap();
    let mut orders = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pid = Pid::from_child(&child);
    for _ in 0..times {
        let line = lines.next().unwrap();
        let number = line.strip_prefix("holds ").expect(&line);
        let stale = FencingToken::new(number.parse().unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).unwrap();
        assert!(stopped.is_some_and(|status| status.stopped()));
        let early = manager.lock(&*resource).no_wait().fenced().await;
        assert!(early.as_ref().is_err_and(quorate::LockError::is_held), "{early:?}");
        nodes.iter().for_each(|node| drop(node.cli(&["PEXPIRE", &resource, "0"])));
        let guard = manager.lock(&*resource).fenced().await.unwrap();
        let token = guard.fencing_token().unwrap();
        assert!(token > stale, "{token} after {stale}");
        let seen = store.read(token.get()).unwrap();
        assert!(store.write(token.get(), seen).unwrap());
        cell.write(token, |value| *value = "ours").unwrap();
        orders.write_all(b"go\n").unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        assert_eq!(lines.next(), Some(format!("refused with {stale}")));
        let written = cell.write(stale, |value| *value = "theirs");
        assert_eq!(written.unwrap_err().token, stale);
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(cell.into_inner(), "ours");
    assert_clean(&manager).await;
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
