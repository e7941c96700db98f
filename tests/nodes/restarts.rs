//! The restart guard on real nodes: killed, flushed, rolled back, promoted; and those that cannot be
//! guarded.

use std::time::{Duration, Instant};

use quorate::protocol::quarantine::{EPOCH, KEY};
use quorate::{
    BackendErrorKind, LockError, LockGuard, LockManager, Released, RestartGuard, Said, Votes,
};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{BACKSTOP, Client, on_tokio, with_each_client};
use crate::wire::commands;

/// As long as the ttl of the locks here.
const MAX_TTL: Duration = Duration::from_millis(1_500);

/// For a node to be connected to, and to answer, on a busy machine: what it says is looked at.
const PATIENCE: Duration = Duration::from_millis(700);

fn manager(client: Client, addresses: &[String], guard: impl Into<RestartGuard>) -> LockManager {
    let runtime = quorate::runtime::TokioRuntime::new();
    let builder = LockManager::builder(runtime, client.connect(addresses)).ttl(MAX_TTL);
    builder.node_timeout(PATIENCE).wait(BACKSTOP).restart_guard(guard).build().unwrap()
}

fn votes_of(failed: Result<LockGuard, LockError>) -> Votes {
    match failed {
        Err(LockError::NoQuorum { votes }) => votes,
        other => panic!("{other:?}"),
    }
}

fn kind(votes: &Votes, node: usize) -> BackendErrorKind {
    match &votes.iter().nth(node).unwrap().said {
        Said::Failed(error) => error.kind(),
        other => panic!("{other:?} in {votes}"),
    }
}

/// Fails if a quorum votes. Gives what the nodes say that were heard, which has to be the same.
async fn failure(manager: &LockManager) -> (BackendErrorKind, String) {
    let votes = votes_of(manager.try_lock("r").await);
    (only_kind(&votes), votes.to_string())
}

fn only_kind(votes: &Votes) -> BackendErrorKind {
    let mut kinds = votes.iter().filter_map(|node| match &node.said {
        Said::Failed(error) => Some(error.kind()),
        _ => None,
    });
    let first = kinds.next().unwrap();
    assert!(kinds.all(|kind| kind == first), "{votes}");
    first
}

#[test]
fn nodes_that_are_new_grant_nothing_for_max_ttl_once() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        let start = Instant::now();
        let manager = manager(client, &nodes.addresses(), MAX_TTL);
        let (kind, text) = failure(&manager).await;
        assert_eq!(kind, BackendErrorKind::Quarantined);
        assert!(text.contains("quarantined for another 1."), "{text}");
        let guard = manager.lock("r").await.unwrap();
        assert!(start.elapsed() >= MAX_TTL);
        assert_eq!(guard.release().await.unwrap(), Released::Held);
        assert_eq!(manager.settle(BACKSTOP).await, 0);
        for node in &nodes {
            until("the end of the last quarantine", || node.keys() == [EPOCH]).await;
            let epoch = format!("{}:{}", node.run_id(), MAX_TTL.as_millis());
            assert_eq!(node.get(EPOCH), Some(epoch.into_bytes()));
            assert_eq!(node.pttl(EPOCH), -1, "it has no end");
        }
        // From now on nobody waits, whoever it is.
        let other = crate::restarts::manager(client, &nodes.addresses(), MAX_TTL);
        let _ = other.try_lock("r").fenced().await.unwrap().release().await.unwrap();
    });
}

/// What happens to a node that keeps a lock.
type Loss = (&'static str, fn(&RedisServer));

const LOSSES: [Loss; 3] = [
    ("killed", RedisServer::restart),
    ("flushed", RedisServer::flushall),
    ("rolled back to a snapshot from before", |node| {
        // It was saved before the lock was taken.
        node.kill();
        node.restart();
    }),
];

fn node_for(how: &str) -> RedisServer {
    let node = RedisServer::start();
    if how.starts_with("rolled back") {
        node.set("from", "before");
    }
    node
}

#[test]
fn a_node_that_forgot_a_lock_gives_it_to_nobody_while_it_may_be_held() {
    on_tokio(async {
        for client in Client::ALL {
            for (how, lose) in LOSSES {
                let node = node_for(how);
                let one = manager(client, &[node.address()], MAX_TTL);
                let _ = one.lock("warm").await.unwrap().release().await.unwrap();
                if how.starts_with("rolled back") {
                    assert_eq!(node.cli(&["SAVE"]).text(), "OK");
                }
                let guard = one.lock("r").await.unwrap();
                lose(&node);
                assert_eq!(node.get("r"), None, "{how}: it forgot");
                let kept = how.starts_with("rolled back");
                assert_eq!(node.get(EPOCH).is_some(), kept, "{how}");
                let other = manager(client, &[node.address()], MAX_TTL);
                let (kind, text) = failure(&other).await;
                assert_eq!(kind, BackendErrorKind::Quarantined, "{how}: {text}");
                let until = guard.valid_until();
                let next = other.lock("r").await.unwrap();
                assert!(Instant::now() >= until && !guard.is_valid(), "{client:?}, {how}");
                assert_eq!(next.release().await.unwrap(), Released::Held);
            }
        }
    });
}

/// The test of the test.
#[test]
fn without_the_guard_a_node_that_forgot_gives_one_lock_to_two() {
    on_tokio(async {
        for (how, lose) in LOSSES {
            let node = node_for(how);
            let nodes = [node.address()];
            let build = || {
                let runtime = quorate::runtime::TokioRuntime::new();
                let builder = LockManager::builder(runtime, Client::Redis.connect(&nodes));
                builder.ttl(Duration::from_secs(60)).build().unwrap()
            };
            node.cli(&["SAVE"]);
            let one = build().lock("r").await.unwrap();
            lose(&node);
            let other = build().lock("r").await.unwrap();
            assert!(one.is_valid() && other.is_valid(), "{how}");
        }
    });
}

/// The key is there, so its holder goes on; others have to wait, though nothing was lost.
#[test]
fn a_node_that_restarts_with_all_of_its_data_extends_and_does_not_grant() {
    on_tokio(async {
        for client in Client::ALL {
            let node = RedisServer::builder().append_only().start();
            let (one, other) = (
                manager(client, &[node.address()], 2 * MAX_TTL),
                manager(client, &[node.address()], 2 * MAX_TTL),
            );
            let guard = one.lock("r").ttl(2 * MAX_TTL).await.unwrap();
            guard.keep_alive();
            node.restart();
            let votes = votes_of(other.try_lock("s").await);
            assert_eq!(kind(&votes, 0), BackendErrorKind::Quarantined, "{votes}");
            let free = other.lock("s").await.unwrap();
            assert!(guard.is_valid(), "extended in between");
            assert_eq!(guard.release().await.unwrap(), Released::Held);
            let _ = free.release().await.unwrap();
            assert_eq!(one.settle(BACKSTOP).await + other.settle(BACKSTOP).await, 0);
            assert_eq!(node.keys(), [EPOCH]);
        }
    });
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + BACKSTOP;
    while !is() {
        assert!(Instant::now() < deadline, "{what} never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn a_replica_that_is_promoted_is_quarantined_however_long_it_is_up() {
    on_tokio(async {
        for client in Client::ALL {
            let primary = RedisServer::start();
            let replica = RedisServer::builder().replica_of(&primary).start();
            let at_primary = manager(client, &[primary.address()], MAX_TTL);
            let at_replica = manager(client, &[replica.address()], MAX_TTL);
            let _ = at_primary.lock("warm").await.unwrap().release().await.unwrap();
            until("the epoch", || replica.get(EPOCH) == primary.get(EPOCH)).await;
            let (kind, _) = failure(&at_replica).await;
            assert_eq!(kind, BackendErrorKind::ReadOnly);
            let up = || replica.info("uptime_in_seconds").parse::<u64>().unwrap();
            until("some seconds", || up() > MAX_TTL.as_secs() + 1).await;

            // A lock that was not replicated: the failover comes first.
            replica.cli(&["REPLICAOF", "NO", "ONE"]);
            let guard = at_primary.lock("r").await.unwrap();
            assert_eq!(replica.get("r"), None);
            for guard_ in [RestartGuard::soft(MAX_TTL), RestartGuard::strict(MAX_TTL)] {
                let at_replica = manager(client, &[replica.address()], guard_);
                let (kind, text) = failure(&at_replica).await;
                assert_eq!(kind, BackendErrorKind::Quarantined, "{guard_:?}: {text}");
            }
            let next = at_replica.lock("r").await.unwrap();
            assert!(!guard.is_valid());
            drop(next);

            // And there and back: the run is the same, and the data another's.
            primary.cli(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
            until("the data", || primary.get(EPOCH) == replica.get(EPOCH)).await;
            primary.cli(&["REPLICAOF", "NO", "ONE"]);
            let (kind, text) = failure(&at_primary).await;
            assert_eq!(kind, BackendErrorKind::Quarantined, "{text}");
        }
    });
}

#[test]
fn one_of_three_that_restarts_hurts_nobody() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let guarded = || manager(client, &nodes.addresses(), MAX_TTL);
        let one = guarded();
        let _ = one.lock("r").await.unwrap().release().await.unwrap();
        nodes[1].restart();
        for _ in 0..10 {
            let _ = one.lock("r").await.unwrap().release().await.unwrap();
            assert_eq!(one.settle(BACKSTOP).await, 0);
        }
        nodes[1].restart();
        nodes[2].restart();
        let votes = votes_of(guarded().try_lock("r").await);
        for node in [1, 2] {
            assert_eq!(kind(&votes, node), BackendErrorKind::Quarantined, "{votes}");
        }
    });
}

#[test]
fn a_soft_guard_asks_for_how_long_a_node_without_an_epoch_is_up() {
    on_tokio(async {
        let node = RedisServer::start();
        let soft = manager(Client::Redis, &[node.address()], RestartGuard::soft(MAX_TTL));
        let (kind, text) = failure(&soft).await;
        assert_eq!(kind, BackendErrorKind::Quarantined, "{text}");
        let most = i64::try_from(MAX_TTL.as_millis()).unwrap() + 1_000;
        assert!((1..=most).contains(&node.pttl(KEY)), "{}", node.pttl(KEY));
        let up = || node.info("uptime_in_seconds").parse::<u64>().unwrap();
        until("some seconds", || up() > MAX_TTL.as_secs() + 1).await;
        node.flushall();
        let _ = soft.try_lock("r").await.unwrap().release().await.unwrap();
        assert_eq!(node.keys(), [EPOCH]);
        node.flushall();
        let (kind, _) = failure(&manager(Client::Redis, &[node.address()], MAX_TTL)).await;
        assert_eq!(kind, BackendErrorKind::Quarantined);
    });
}

#[test]
fn managers_with_another_max_ttl_are_told_both() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let ours = manager(client, &nodes.addresses(), MAX_TTL);
        let _ = ours.lock("r").await.unwrap().release().await.unwrap();
        let other = manager(client, &nodes.addresses(), 2 * MAX_TTL);
        let start = Instant::now();
        let votes = votes_of(other.lock("r").await);
        assert!(start.elapsed() < BACKSTOP, "waiting is pointless");
        assert_eq!(only_kind(&votes), BackendErrorKind::MaxTtl);
        assert!(votes.to_string().contains("its max_ttl is 1500 ms, not 3000 ms"), "{votes}");
        // Anything else in its place is not written over either.
        nodes.iter().for_each(|node| node.set(EPOCH, "garbage"));
        let votes = votes_of(ours.try_lock("r").await);
        assert_eq!(only_kind(&votes), BackendErrorKind::MaxTtl);
        assert!(votes.to_string().contains("no epoch at quorate:guard:epoch"), "{votes}");
        nodes.iter().for_each(RedisServer::flushall);
    });
}

#[test]
fn a_user_who_may_not_read_info_is_told_so() {
    let node = RedisServer::builder()
        .user("blind", "on >pw ~* +@all -info")
        .user("narrow", "on >pw ~* +@all -@dangerous +info")
        .user("elsewhere", "on >pw ~r +@all")
        .start();
    on_tokio(async {
        for client in Client::ALL {
            let of = |user| [node.address_as(user, "pw")];
            let (kind, text) = failure(&manager(client, &of("blind"), MAX_TTL)).await;
            assert_eq!(kind, BackendErrorKind::Permission, "{text}");
            assert!(text.contains("INFO"), "{text}");
            let (kind, text) = failure(&manager(client, &of("elsewhere"), MAX_TTL)).await;
            assert_eq!(kind, BackendErrorKind::Permission, "{text}");
            let narrow = manager(client, &of("narrow"), MAX_TTL);
            let _ = narrow.lock("r").await.unwrap().release().await.unwrap();
            let runtime = quorate::runtime::TokioRuntime::new();
            let plain = LockManager::builder(runtime, client.connect(&of("blind")));
            let _ = plain.build().unwrap().lock("r").await.unwrap().release().await.unwrap();
        }
    });
}

#[test]
fn a_server_without_info_is_told_so() {
    let node = RedisServer::builder().config("rename-command", &["INFO", ""]).start();
    on_tokio(async {
        for client in Client::ALL {
            let (kind, text) = failure(&manager(client, &[node.address()], MAX_TTL)).await;
            assert_eq!(kind, BackendErrorKind::Script, "{text}");
            assert!(text.contains("the restart guard needs INFO"), "{text}");
        }
    });
}

#[test]
fn a_node_that_may_evict_keys_is_told_so() {
    on_tokio(async {
        for client in Client::ALL {
            for policy in ["allkeys-lru", "volatile-ttl"] {
                let node = RedisServer::builder()
                    .config("maxmemory", &["100mb"])
                    .config("maxmemory-policy", &[policy])
                    .start();
                let manager = manager(client, &[node.address()], MAX_TTL);
                let (kind, text) = failure(&manager).await;
                assert_eq!(kind, BackendErrorKind::Evicting, "{text}");
                for part in [policy, "104857600", "may evict keys", &node.port().to_string()] {
                    assert!(text.contains(part), "{text}");
                }
                assert!(node.keys().is_empty(), "it has no epoch");
                // Mended in either way.
                match policy {
                    "allkeys-lru" => node.cli(&["CONFIG", "SET", "maxmemory", "0"]),
                    _ => node.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]),
                };
                let (kind, text) = failure(&manager).await;
                assert_eq!(kind, BackendErrorKind::Quarantined, "{text}");
            }
        }
    });
}

/// A node that cannot write leaves nothing half done.
#[test]
fn a_full_node_begins_its_quarantine_when_it_has_room() {
    let node = RedisServer::start();
    on_tokio(async {
        node.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let manager = manager(Client::Redis, &[node.address()], MAX_TTL);
        let (kind, text) = failure(&manager).await;
        assert_eq!(kind, BackendErrorKind::OutOfMemory, "{text}");
        node.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(node.keys().is_empty());
        let (kind, text) = failure(&manager).await;
        assert_eq!(kind, BackendErrorKind::Quarantined, "{text}");
    });
}

#[test]
fn a_guarded_lock_is_one_command_that_declares_its_keys() {
    let nodes = &Nodes::start(1);
    with_each_client(|client| async move {
        let manager = manager(client, &nodes.addresses(), MAX_TTL);
        let _ = manager.lock("warm").await.unwrap().release().await.unwrap();
        let monitor = nodes[0].monitor();
        let _ = manager.lock(["a", "b"]).await.unwrap().release().await.unwrap();
        assert_eq!(manager.settle(BACKSTOP).await, 0);
        let seen = commands(&nodes[0], monitor);
        let calls: Vec<_> = seen.iter().filter(|command| command[0] == "EVALSHA").collect();
        assert_eq!(calls.len(), 2, "acquire and release: {seen:?}");
        assert_eq!(calls[0][2..7], ["4", "a", "b", EPOCH, KEY], "{client:?}");
        assert_eq!(calls[1][2..5], ["2", "a", "b"], "{client:?}");
    });
}

/// What it costs a healthy node, by its own account.
#[test]
#[expect(clippy::print_stdout, reason = "a measurement")]
fn the_guard_costs_a_node_little() {
    const TIMES: u32 = 2_000;
    let node = RedisServer::start();
    // Scripts include the commands in them.
    let spent = |commands: &[&str]| {
        let info = node.cli(&["INFO", "commandstats"]).text();
        let micros = |line: &str| {
            let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let usec = figures.split(',').find_map(|figure| figure.strip_prefix("usec="))?;
            commands.contains(&name).then(|| usec.parse::<f64>().unwrap())
        };
        info.lines().filter_map(micros).sum::<f64>() / f64::from(TIMES)
    };
    on_tokio(async {
        let nodes = [node.address()];
        let runtime = quorate::runtime::TokioRuntime::new();
        let plain = LockManager::builder(runtime, Client::Redis.connect(&nodes)).build().unwrap();
        let guarded = manager(Client::Redis, &nodes, MAX_TTL);
        let _ = guarded.lock("warm").fenced().await.unwrap().release().await.unwrap();
        let mut costs = [[0.0; 2]; 2];
        for (guard, manager) in [&plain, &guarded].into_iter().enumerate() {
            for (fence, cost) in costs[guard].iter_mut().enumerate() {
                node.cli(&["CONFIG", "RESETSTAT"]);
                for _ in 0..TIMES {
                    let request = manager.lock("r");
                    let request = if fence == 1 { request.fenced() } else { request };
                    let _ = request.await.unwrap().release().await.unwrap();
                }
                let is_script = guard == 1 || fence == 1;
                *cost = spent(if is_script { &["evalsha", "eval"] } else { &["set", "evalsha"] });
            }
        }
        let [[plain, fenced], [guarded, both]] = costs;
        println!(
            "us a lock: plain {plain:.1}, guarded {guarded:.1}; fenced {fenced:.1}, both {both:.1}"
        );
        // Far above what is aimed at: this machine is shared.
        assert!(guarded < 15.0 * plain && both < 10.0 * fenced, "{costs:?}");
    });
}
