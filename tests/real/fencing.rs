//! Fencing tokens on real nodes: in order between processes, and a stale holder is refused.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use quorate::backend::{AcquireOptions, ReleaseOptions};
use quorate::error::Answer;
use quorate::{
    BackendError, BackendErrorKind, Claim, FenceHint, FencedCell, FencingToken, Key, LockBackend,
    LockGuard, Resource, Token, Vote,
};
use quorate_tests::keys::counter;
use quorate_tests::referee::write;
use quorate_tests::wait::{LIMIT, LONG_TTL, eventually, times, until, until_it_says, within_limit};
use quorate_tests::{Connection, Nodes, RedisServer};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::client::{Client, assert_clean, on_tokio, unreachable, warm_up, with_each_client};
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

/// An acquire with a number, for the lowest that the node can give.
async fn acquire(node: &dyn LockBackend, claim: &Claim) -> Result<FencingToken, BackendError> {
    let mut options = AcquireOptions::default();
    options.fencing = Some(FenceHint::default());
    let acquired = node.acquire(claim, options).await?;
    assert_eq!(acquired.vote, Vote::Granted);
    Ok(acquired.number.expect("a granted lock has its number"))
}

/// A release that brings the number forward to this one.
async fn release(node: &dyn LockBackend, claim: &Claim, number: FencingToken) -> Vote {
    let mut options = ReleaseOptions::default();
    options.raise_to = Some(number);
    node.release(claim, options).await.unwrap().vote
}

fn is_held<T>(outcome: &Result<T, quorate::LockError>) -> bool {
    outcome.as_ref().is_err_and(quorate::LockError::is_held)
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
    let cell = FencedCell::new("nothing");
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
            let early = manager.lock(resource).no_wait().fenced().await;
            assert!(is_held(&early), "round {rounds}: {early:?}");
            for node in nodes {
                node.cli(&["PEXPIRE", resource, "0"]);
            }
            let guard = manager.lock(resource).fenced().await.unwrap();
            let token = guard.fencing_token().unwrap();
            assert!(token > stale, "round {rounds}: {token} after {stale}");
            assert!(write(&mut store, resource, token.get()).unwrap());
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
        assert_eq!(written.unwrap_err().token, stale, "round {rounds}");
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        rounds += 1;
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(cell.into_inner(), "ours");
    refused.fetch_add(rounds, Ordering::SeqCst);
    assert_clean(&manager).await;
}

#[test]
fn holders_with_and_without_a_token_exclude_each_other() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let one = client.builder(nodes).build().unwrap();
        let other = client.builder(nodes).build().unwrap();
        let fenced = one.lock("r").no_wait().fenced().await.unwrap();
        assert!(is_held(&other.lock("r").no_wait().await));
        assert!(is_held(&other.lock("r").no_wait().fenced().await));
        fenced.extend().await.unwrap();
        fenced.release().await.unwrap();
        no_lock_is_left(nodes).await;
        let plain = other.lock("r").no_wait().await.unwrap();
        assert_eq!(plain.fencing_token(), None);
        assert!(is_held(&one.lock("r").no_wait().fenced().await));
        plain.release().await.unwrap();
        for manager in [one, other] {
            assert_clean(&manager).await;
        }
        assert_eq!(lock_keys_left(nodes), []);
    });
}

async fn no_lock_is_left(nodes: &Nodes) {
    until("no lock is left", || lock_keys_left(nodes).is_empty()).await;
}

#[test]
fn a_fenced_lock_is_one_command_with_key_and_counter_and_so_is_its_release() {
    let nodes = &Nodes::start(1);
    with_each_client(|client| async move {
        let manager = client.builder(nodes).key_prefix("p:").build().unwrap();
        manager.lock("warm").fenced().await.unwrap().release().await.unwrap();
        let monitor = nodes[0].monitor();
        let guard = manager.lock("orders:42").fenced().await.unwrap();
        let token = guard.fencing_token().unwrap();
        guard.release().await.unwrap();
        assert_clean(&manager).await;
        let seen = commands(monitor);
        let calls: Vec<_> = seen.iter().filter(|command| command[0].starts_with("EVAL")).collect();
        assert_eq!(calls.len(), 2, "acquire and release: {seen:?}");
        let counter = counter("p:orders:42");
        for call in calls {
            assert_eq!(call[2..5], ["2", "p:orders:42", &counter], "{client:?}");
        }
        assert_eq!(nodes[0].get(&counter), Some(token.to_string().into_bytes()));
        assert_eq!(nodes[0].pttl(&counter), -1, "it has no end");
        nodes[0].flushall();
        nodes[0].cli(&["SCRIPT", "FLUSH"]);
    });
}

#[test]
fn a_laggard_is_raised_and_all_agree_again() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let manager = client.builder(nodes).fencing_hint(|| 0).build().unwrap();
        let counter = counter("r");
        for (node, number) in nodes.iter().zip(["7", "9007199254740000", "500"]) {
            node.set(&counter, number);
        }
        let guard = manager.lock("r").fenced().await.unwrap();
        let token = guard.fencing_token().unwrap().get();
        // The two that answered first are the quorum.
        assert!([501, 9_007_199_254_740_001].contains(&token), "{token}");
        crate::client::all_have(nodes, "r").await;
        guard.release().await.unwrap();
        // A release raises to the highest number that was heard by then. If that was not yet the one of
        // the second node, the next release does.
        until_it_says("all agree", async || {
            let guard = manager.lock("r").fenced().await.unwrap();
            // Goes behind the acquires on each connection, so their replies have been read.
            manager.inspect("r").await.unwrap();
            guard.release().await.unwrap();
            let numbers = nodes.iter().map(|node| node.get(&counter).unwrap());
            let numbers: BTreeSet<Vec<u8>> = numbers.collect();
            let is_high = |number: &Vec<u8>| number.starts_with(b"90071992547400");
            numbers.len() == 1 && numbers.iter().all(is_high)
        })
        .await;
        assert_clean(&manager).await;
        nodes.iter().for_each(RedisServer::flushall);
    });
}

/// Lua counts in doubles, and prints 14 digits if no format is given.
#[test]
fn numbers_are_whole_up_to_the_last_and_then_end() {
    let nodes = &Nodes::start(1);
    with_each_client(|client| async move {
        let node = client.connect_one(&nodes[0].address());
        let counter = counter("r");
        for (before, granted) in [
            (9_007_199_254_740_989, Some(9_007_199_254_740_990)),
            (9_007_199_254_740_990, Some(9_007_199_254_740_991)),
            (9_007_199_254_740_991, None),
        ] {
            nodes[0].set(&counter, u64::to_string(&before));
            match (acquire(&node, &claim(&["r"], 1)).await, granted) {
                (Ok(number), Some(granted)) => {
                    assert_eq!(number.get(), granted);
                    let stored = nodes[0].get(&counter).unwrap();
                    assert_eq!(stored, granted.to_string().into_bytes());
                    let raised = node.raise(&claim(&["r"], 1), number).await;
                    assert_eq!(raised.unwrap().vote, Vote::Granted);
                    release(&node, &claim(&["r"], 1), FencingToken::MAX).await;
                }
                (Err(error), None) => {
                    assert_eq!(error.kind(), BackendErrorKind::Fence, "{error}");
                    assert_eq!(nodes[0].get("r"), None, "nothing was taken");
                }
                other => panic!("{client:?} after {before}: {other:?}"),
            }
        }
        for garbage in ["", "x", "-1", "1.5", "1e3", "0x10", " 7", "9007199254740992", "\0"] {
            nodes[0].set(&counter, garbage);
            let failed = acquire(&node, &claim(&["r", "s"], 1)).await.unwrap_err();
            assert_eq!(failed.kind(), BackendErrorKind::Fence, "{garbage:?}: {failed}");
            assert_eq!((nodes[0].get("r"), nodes[0].get("s")), (None, None));
            // A lock that is held all the same can be released.
            let plain = node.acquire(&claim(&["r"], 1), AcquireOptions::default()).await;
            assert_eq!(plain.unwrap().vote, Vote::Granted);
            let released = release(&node, &claim(&["r"], 1), FencingToken::MAX).await;
            assert_eq!(released, Vote::Granted, "{garbage:?}");
            assert_eq!(nodes[0].get(&counter).unwrap(), garbage.as_bytes());
        }
        nodes[0].cli(&["DEL", &counter]);
        nodes[0].lpush(&counter, "x");
        let failed = acquire(&node, &claim(&["r"], 1)).await.unwrap_err();
        assert_eq!(failed.kind(), BackendErrorKind::WrongType, "{failed}");
        assert_eq!(nodes[0].get("r"), None, "nothing was taken");
        nodes[0].flushall();
    });
}

/// A full node has no room for a number, and frees the lock all the same.
#[test]
fn a_full_node_releases_a_fenced_lock() {
    let node = RedisServer::start();
    on_tokio(async {
        for client in Client::ALL {
            let backend = client.connect_one(&node.address());
            let ours = claim(&["r"], 1);
            acquire(&backend, &ours).await.unwrap();
            node.cli(&["CONFIG", "SET", "maxmemory", "1"]);
            let released = release(&backend, &ours, FencingToken::new(7).unwrap()).await;
            assert_eq!(released, Vote::Granted, "{client:?}");
            assert_eq!(node.get("r"), None);
            let failed = acquire(&backend, &ours).await.unwrap_err();
            assert_eq!(failed.kind(), BackendErrorKind::OutOfMemory, "{failed}");
            node.cli(&["CONFIG", "SET", "maxmemory", "0"]);
            node.flushall();
        }
    });
}

/// A cluster of one node takes locks of one key; the number has a key of its own in another slot.
#[test]
fn fenced_on_a_cluster_of_one_says_why() {
    let builder = RedisServer::builder().config("cluster-enabled", &["yes"]);
    let nodes = &Nodes::start_with(1, &builder);
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    let mut words = vec!["CLUSTER", "ADDSLOTS"];
    words.extend(slots.iter().map(String::as_str));
    assert_eq!(nodes[0].cli(&words).error(), None);
    eventually("a cluster", || {
        nodes[0].cli(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
    });
    with_each_client(|client| async move {
        // A release that failed is sent again after a node timeout.
        let manager = client.builder(nodes).node_timeout(Duration::from_secs(1)).build().unwrap();
        // The first connection may take longer than a node timeout.
        warm_up(&manager).await;
        for request in [manager.lock("r").fenced(), manager.lock(["r", "s"])] {
            let failure = unreachable(request.no_wait().await);
            let Answer::Failed(error) = &failure.nodes()[0].answer else { panic!("{failure}") };
            assert_eq!(error.kind(), BackendErrorKind::CrossSlot, "{client:?}: {failure}");
            for part in ["CROSSSLOT", "one resource at a time", "without a fencing token"] {
                assert!(failure.to_string().contains(part), "{client:?}: {failure}");
            }
        }
        manager.lock("r").await.unwrap().release().await.unwrap();
        let report = within_limit("the end of close", manager.close(100 * LIMIT)).await.to_string();
        assert!(report.contains("failed: CROSSSLOT"), "{client:?}: {report}");
        assert_eq!(nodes.keys_left(), [], "{client:?}");
    });
}
