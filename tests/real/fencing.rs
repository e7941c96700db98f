//! Fencing tokens on real nodes: a holder that was stopped past its ttl is refused.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use quorate::backend::{AcquireOptions, FenceHint, ReleaseOptions, Vote};
use quorate::{BackendErrorKind, FencedCell, FencingToken, LockGuard};
use quorate_tests::resource::Resource;
use quorate_tests::wait::times;
use quorate_tests::{Nodes, RedisServer};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::calls::claim;
use crate::client::{Client, assert_clean, on_tokio};

/// Clients are stopped while they hold a lock, wake after its keys have expired, know nothing, and
/// write: several processes, each several times, to a cell in this process and to a store.
#[test]
fn holders_that_were_stopped_past_their_ttl_are_refused() {
    let (processes, times) = (times(4, 10), times(4, 10));
    for count in [3, 5] {
        let (nodes, referee) = (&Nodes::start(count), &RedisServer::start());
        let refused = &AtomicU32::new(0);
        thread::scope(|scope| {
            for place in 0..processes {
                scope.spawn(move || {
                    let [stale, later] = [Client::ALL[place % 2], Client::ALL[(place + 1) % 2]];
                    let (resource, port) = (format!("r{place}"), referee.port().to_string());
                    let child = Command::new(env!("CARGO_BIN_EXE_program"))
                        .args(["stale", stale.word(), &port, &resource, &times.to_string()])
                        .args(nodes.addresses())
                        .stdin(Stdio::piped())
                        .stdout(Stdio::piped())
                        .stderr(Stdio::piped())
                        .spawn();
                    on_tokio(refuse(child.unwrap(), &resource, later, referee, nodes, refused));
                });
            }
        });
        assert_eq!(refused.load(Ordering::SeqCst), processes as u32 * times);
        let left = nodes.keys_left().into_iter();
        assert!(left.map(|(_, key)| key).all(|key| key.starts_with("quorate:fence:")));
    }
}

/// Stops the process each time that it holds the lock, has the keys expire, takes the lock, writes,
/// and lets the process write after it.
async fn refuse(
    mut child: Child,
    resource: &str,
    later: Client,
    referee: &RedisServer,
    nodes: &Nodes,
    refused: &AtomicU32,
) {
    let manager = later.manager(nodes);
    let cell = FencedCell::new("nothing");
    let mut store = Resource::open(referee.port(), resource).unwrap();
    let mut orders = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pid = Pid::from_child(&child);
    let mut held: Option<(FencingToken, LockGuard)> = None;
    for line in lines.map(Result::unwrap) {
        let token = |number: &str| FencingToken::new(number.parse().unwrap()).unwrap();
        if let Some(number) = line.strip_prefix("holds ") {
            let stale = token(number);
            kill_process(pid, Signal::STOP).unwrap();
            let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).unwrap();
            assert!(stopped.is_some_and(|status| status.stopped()));
            let early = manager.lock(resource).no_wait().fenced().await;
            assert!(early.as_ref().is_err_and(quorate::LockError::is_held), "{early:?}");
            for node in nodes {
                node.cli(&["PEXPIRE", resource, "0"]);
            }
            let guard = manager.lock(resource).fenced().await.unwrap();
            let token = guard.fencing_token().unwrap();
            assert!(token > stale, "{token} after {stale}");
            let seen = store.read(token.get()).unwrap();
            assert!(store.write(token.get(), seen).unwrap());
            cell.write(token, |value| *value = "ours").unwrap();
            held = Some((stale, guard));
            orders.write_all(b"go\n").unwrap();
            kill_process(pid, Signal::CONT).unwrap();
            continue;
        }
        let stale = token(line.strip_prefix("refused with ").expect(&line));
        let (was, guard) = held.take().unwrap();
        assert_eq!(stale, was);
        let written = cell.write(stale, |value| *value = "theirs");
        assert_eq!(written.unwrap_err().token, stale);
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        refused.fetch_add(1, Ordering::SeqCst);
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(cell.into_inner(), "ours");
    assert_clean(&manager).await;
}

/// A full node has no room for a number, and frees the lock all the same.
#[test]
fn a_full_node_releases_a_fenced_lock() {
    let node = RedisServer::start();
    on_tokio(async {
        for client in Client::WITH_POOL {
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
        }
    });
}
