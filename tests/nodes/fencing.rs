//! Fencing tokens on real nodes: in order between processes, and a stale holder is refused.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use quorate::protocol::RELEASE;
use quorate::protocol::fence::counter;
use quorate::{
    BackendErrorKind, Claim, FenceGate, FenceHint, FenceVote, FencingToken, Key, LockError,
    LockGuard, Resource, Token, Vote,
};
use quorate_tests::referee::write;
use quorate_tests::wait::{LONG_TTL, times};
use quorate_tests::{Connection, Nodes, RedisServer};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::client::{Client, LIMIT, on_tokio, with_each_client};
use crate::wire::commands;

fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

fn spawn(words: [&str; 3], referee: &RedisServer, times: u32, nodes: &Nodes) -> Child {
    let [mode, client, resource] = words;
    Command::new(env!("CARGO_BIN_EXE_fenced"))
        .args([mode, client, &referee.port().to_string(), resource, &times.to_string()])
        .args(nodes.addresses())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn lock_keys_left(nodes: &Nodes) -> Vec<(usize, String)> {
    let mut keys = nodes.keys_left();
    keys.retain(|(_, key)| !key.starts_with("quorate:fence:"));
    keys
}

fn claim(names: &[&str], holder: u8) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(holder);
        Ok(())
    });
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    Claim::new(keys, token.unwrap(), LONG_TTL.try_into().unwrap())
}

/// Two processes, one with each client, contend; the order is that in which they held the lock.
#[test]
fn tokens_of_two_processes_are_in_order() {
    let times = times(150, 500);
    for count in [3, 5] {
        let nodes = Nodes::start(count);
        let referee = RedisServer::start();
        let processes =
            ["redis", "fred"].map(|client| spawn(["order", client, "r"], &referee, times, &nodes));
        for process in processes {
            let output = process.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let tokens = referee.cli(&["LRANGE", "tokens", "0", "-1"]).array();
        let tokens: Vec<u64> = tokens.iter().map(|token| token.text().parse().unwrap()).collect();
        assert_eq!(tokens.len(), 2 * times as usize);
        assert!(tokens.windows(2).all(|two| two[0] < two[1]), "on {count} nodes");
        assert_eq!(lock_keys_left(&nodes), []);
    }
}

/// Clients are stopped while they hold a lock, wake after its keys have expired, know nothing, and
/// write: several processes, each several times, to a gate in this process and to a store.
#[test]
fn holders_that_were_stopped_past_their_ttl_are_refused() {
    let (processes, times) = (times(4, 10), times(4, 10));
    for count in [3, 5] {
        let nodes = Nodes::start(count);
        let referee = RedisServer::start();
        let refused = AtomicU32::new(0);
        thread::scope(|scope| {
            for place in 0..processes {
                let (nodes, referee, refused) = (&nodes, &referee, &refused);
                scope.spawn(move || {
                    let (stale, later) =
                        [("redis", Client::Fred), ("fred", Client::Redis)][place % 2];
                    let resource = format!("r{place}");
                    let child = spawn(["stale", stale, &resource], referee, times, nodes);
                    on_tokio(refuse(child, &resource, later, referee, nodes, refused));
                });
            }
        });
        assert_eq!(refused.into_inner(), processes as u32 * times);
        assert_eq!(lock_keys_left(&nodes), []);
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
    let manager = later.builder(nodes).build().unwrap();
    let gate = FenceGate::new("nothing");
    let mut store = Connection::to_port(referee.port()).unwrap();
    let mut orders = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pid = Pid::from_child(&child);
    let mut rounds = 0;
    let mut held: Option<(FencingToken, LockGuard)> = None;
    for line in lines.map(Result::unwrap) {
        let token = |number: &str| FencingToken::new(number.parse().unwrap()).unwrap();
        if let Some(number) = line.strip_prefix("holds ") {
            let stale = token(number);
            kill_process(pid, Signal::STOP).unwrap();
            let stopped = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).unwrap();
            assert!(stopped.is_some_and(|status| status.stopped()), "round {rounds}");
            let early = manager.try_lock(resource).fenced().await;
            assert!(matches!(early, Err(LockError::Held { .. })), "round {rounds}: {early:?}");
            for node in nodes {
                node.cli(&["PEXPIRE", resource, "0"]);
            }
            let guard = manager.lock(resource).fenced().await.unwrap();
            let token = guard.fencing_token().unwrap();
            assert!(token > stale, "round {rounds}: {token} after {stale}");
            assert!(write(&mut store, resource, token.get()).unwrap());
            gate.pass(token, |value| *value = "ours").unwrap();
            held = Some((stale, guard));
            orders.write_all(b"go\n").unwrap();
            kill_process(pid, Signal::CONT).unwrap();
            continue;
        }
        let stale = token(line.strip_prefix("refused with ").expect(&line));
        let (was, guard) = held.take().unwrap();
        assert_eq!(stale, was);
        let passed = gate.pass(stale, |value| *value = "theirs");
        assert_eq!(passed.unwrap_err().token, stale, "round {rounds}");
        assert!(guard.is_valid());
        let _ = guard.release().await.unwrap();
        rounds += 1;
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(gate.into_inner(), "ours");
    refused.fetch_add(rounds, Ordering::SeqCst);
    assert_eq!(manager.settle(LIMIT).await, 0);
}

#[test]
fn holders_with_and_without_a_token_exclude_each_other() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let one = client.builder(nodes).build().unwrap();
        let other = client.builder(nodes).build().unwrap();
        let fenced = one.try_lock("r").fenced().await.unwrap();
        assert!(matches!(other.try_lock("r").await, Err(LockError::Held { .. })));
        assert!(matches!(other.try_lock("r").fenced().await, Err(LockError::Held { .. })));
        fenced.extend().await.unwrap();
        let _ = fenced.release().await.unwrap();
        assert_eq!(other.settle(LIMIT).await + one.settle(LIMIT).await, 0);
        let plain = other.try_lock("r").await.unwrap();
        assert_eq!(plain.fencing_token(), None);
        assert!(matches!(one.try_lock("r").fenced().await, Err(LockError::Held { .. })));
        let _ = plain.release().await.unwrap();
        assert_eq!(other.settle(LIMIT).await + one.settle(LIMIT).await, 0);
        assert_eq!(lock_keys_left(nodes), []);
    });
}

#[test]
fn a_fenced_lock_is_one_command_with_key_and_counter_and_a_release_like_any_other() {
    let nodes = &Nodes::start(1);
    with_each_client(|client| async move {
        let manager = client.builder(nodes).key_prefix("p:").build().unwrap();
        let _ = manager.lock("warm").fenced().await.unwrap().release().await.unwrap();
        let monitor = nodes[0].monitor();
        let guard = manager.lock("orders:42").fenced().await.unwrap();
        let token = guard.fencing_token().unwrap();
        let _ = guard.release().await.unwrap();
        assert_eq!(manager.settle(LIMIT).await, 0);
        let seen = commands(&nodes[0], monitor);
        let calls: Vec<_> = seen.iter().filter(|command| command[0] == "EVALSHA").collect();
        assert_eq!(calls.len(), 2, "acquire and release: {seen:?}");
        let counter = counter(&key("p:orders:42"));
        let counter = std::str::from_utf8(counter.as_bytes()).unwrap();
        assert_eq!(calls[0][2..5], ["2", "p:orders:42", counter], "{client:?}");
        // The node does not lag, so there is nothing to bring forward.
        assert_eq!(calls[1][1..4], [RELEASE.sha1(), "1", "p:orders:42"], "{client:?}");
        assert_eq!(nodes[0].get(counter), Some(token.to_string().into_bytes()));
        assert_eq!(nodes[0].pttl(counter), -1, "it has no end");
        nodes[0].flushall();
        nodes[0].cli(&["SCRIPT", "FLUSH"]);
    });
}

#[test]
fn a_laggard_is_raised_and_all_agree_again() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let manager = client.builder(nodes).fence_hint(|| 0).build().unwrap();
        let counter = counter(&key("r"));
        for (node, number) in nodes.iter().zip(["7", "9007199254740000", "500"]) {
            node.set(counter.as_bytes(), number);
        }
        let guard = manager.lock("r").fenced().await.unwrap();
        let token = guard.fencing_token().unwrap().get();
        // The two that answered first are the quorum.
        assert!([501, 9_007_199_254_740_001].contains(&token), "{token}");
        manager.settle(LIMIT).await;
        let _ = guard.release().await.unwrap();
        assert_eq!(manager.settle(LIMIT).await, 0);
        for node in nodes.iter() {
            assert_eq!(node.get(counter.as_bytes()).unwrap(), b"9007199254740001");
        }
        nodes.iter().for_each(RedisServer::flushall);
    });
}

/// Lua counts in doubles, and prints 14 digits if it is not told otherwise.
#[test]
fn numbers_are_whole_up_to_the_last_and_then_end() {
    let nodes = &Nodes::start(1);
    with_each_client(|client| async move {
        let node = client.connect(&nodes.addresses()).remove(0);
        let fence = node.fencer().unwrap();
        let counter = counter(&key("r"));
        let none = FenceHint::default();
        for (before, granted) in [
            (9_007_199_254_740_989, Some(9_007_199_254_740_990)),
            (9_007_199_254_740_990, Some(9_007_199_254_740_991)),
            (9_007_199_254_740_991, None),
        ] {
            nodes[0].set(counter.as_bytes(), u64::to_string(&before));
            match (fence.acquire(&claim(&["r"], 1), none).await, granted) {
                (Ok(FenceVote::Granted(number)), Some(granted)) => {
                    assert_eq!(number.get(), granted);
                    let stored = nodes[0].get(counter.as_bytes()).unwrap();
                    assert_eq!(stored, granted.to_string().into_bytes());
                    assert_eq!(
                        fence.raise(&claim(&["r"], 1), number).await.unwrap(),
                        Vote::Granted
                    );
                    fence.release(&claim(&["r"], 1), FencingToken::MAX).await.unwrap();
                }
                (Err(error), None) => {
                    assert_eq!(error.kind(), BackendErrorKind::Fence, "{error}");
                    assert_eq!(nodes[0].get("r"), None, "nothing was taken");
                }
                other => panic!("{client:?} after {before}: {other:?}"),
            }
        }
        for garbage in ["", "x", "-1", "1.5", "1e3", "0x10", " 7", "9007199254740992", "\0"] {
            nodes[0].set(counter.as_bytes(), garbage);
            let failed = fence.acquire(&claim(&["r", "s"], 1), none).await.unwrap_err();
            assert_eq!(failed.kind(), BackendErrorKind::Fence, "{garbage:?}: {failed}");
            assert_eq!((nodes[0].get("r"), nodes[0].get("s")), (None, None));
            // A lock that is held all the same can be released.
            assert_eq!(node.acquire(&claim(&["r"], 1)).await.unwrap(), Vote::Granted);
            let released = fence.release(&claim(&["r"], 1), FencingToken::MAX).await;
            assert_eq!(released.unwrap(), Vote::Granted, "{garbage:?}");
            assert_eq!(nodes[0].get(counter.as_bytes()).unwrap(), garbage.as_bytes());
        }
        nodes[0].cli(&["DEL", std::str::from_utf8(counter.as_bytes()).unwrap()]);
        nodes[0].lpush(std::str::from_utf8(counter.as_bytes()).unwrap(), "x");
        let failed = fence.acquire(&claim(&["r"], 1), none).await.unwrap_err();
        assert_eq!(failed.kind(), BackendErrorKind::WrongType, "{failed}");
        assert_eq!(nodes[0].get("r"), None, "nothing was taken");
        nodes[0].flushall();
    });
}

/// A full node has no room for a number, and frees the lock all the same.
#[test]
fn a_full_node_releases_a_fenced_lock() {
    let node = RedisServer::start();
    let nodes = [node.address()];
    on_tokio(async {
        for client in Client::ALL {
            let backend = client.connect(&nodes).remove(0);
            let fence = backend.fencer().unwrap();
            let ours = claim(&["r"], 1);
            let hint = FenceHint::default();
            assert!(matches!(fence.acquire(&ours, hint).await, Ok(FenceVote::Granted(_))));
            node.cli(&["CONFIG", "SET", "maxmemory", "1"]);
            let released = fence.release(&ours, FencingToken::new(7).unwrap()).await;
            assert_eq!(released.unwrap(), Vote::Granted, "{client:?}");
            assert_eq!(node.get("r"), None);
            let failed = fence.acquire(&ours, hint).await.unwrap_err();
            assert_eq!(failed.kind(), BackendErrorKind::OutOfMemory, "{failed}");
            node.cli(&["CONFIG", "SET", "maxmemory", "0"]);
            node.flushall();
        }
    });
}
