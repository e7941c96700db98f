//! The restart guard on real nodes: killed, flushed, rolled back, promoted; and nodes that
//! cannot be guarded.

use std::time::Duration;

use quorate::error::{Answer, QuorumFailure};
use quorate::{BackendErrorKind, LockManager, RestartGuard};
use quorate_tests::keys::{EPOCH, QUARANTINE};
use quorate_tests::wait::{LONG_TTL, now, until, within_limit};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{
    Client, LIMIT, assert_clean, on_tokio, unhurried, unreachable, warm_up,
    with_both_clients_at_once, with_each_client,
};

/// As long as the ttl of the locks here. A quarantine ends when a test says so: see [`end_quarantine`].
const MAX_TTL: Duration = LONG_TTL;

/// Where a quarantine has to end by itself, or a node has to be up for longer.
const SHORT: Duration = Duration::from_secs(1);

pub(crate) fn manager(
    client: Client,
    addresses: &[String],
    guard: impl Into<RestartGuard>,
) -> LockManager {
    let guard = guard.into();
    let builder = unhurried(client.connect(addresses)).ttl(guard.max_ttl());
    builder.node_timeout(guard.max_ttl() / 3).restart_guard(guard).build().unwrap()
}

/// Has the time of a quarantine be over at a node.
pub(crate) fn end_quarantine(node: &RedisServer) {
    assert_eq!(node.cli(&["PEXPIRE", QUARANTINE, "0"]).integer(), 1, "{node} is in none");
}

/// Has the nodes enter their quarantine, and leave it.
pub(crate) async fn end_quarantines<'a>(
    manager: &LockManager,
    nodes: impl IntoIterator<Item = &'a RedisServer>,
) {
    let (kind, text) = failure(manager).await;
    assert_eq!(kind, BackendErrorKind::Quarantined, "{text}");
    for node in nodes {
        // A quorum is known to be in quarantine, and the others will be.
        until("a quarantine", || node.get(QUARANTINE).is_some()).await;
        end_quarantine(node);
    }
}

/// Makes sure that the quarantine of a node does not end before it is looked at.
fn prolong_quarantine(node: &RedisServer) {
    assert_eq!(node.cli(&["PEXPIRE", QUARANTINE, "3600000"]).integer(), 1, "{node} is in none");
}

fn kind(failure: &QuorumFailure, node: usize) -> BackendErrorKind {
    match &failure.nodes()[node].answer {
        Answer::Failed(error) => error.kind(),
        other => panic!("{other:?} in {failure}"),
    }
}

/// Fails if a quorum failure. Returns the answer of the nodes that answered, which has to be the same.
pub(crate) async fn failure(manager: &LockManager) -> (BackendErrorKind, String) {
    loop {
        let failure = unreachable(manager.lock("r").no_wait().await);
        // With a short ttl, the machine may have been too slow for every node.
        if let Some(kind) = only_kind(&failure) {
            return (kind, failure.to_string());
        }
    }
}

fn only_kind(failure: &QuorumFailure) -> Option<BackendErrorKind> {
    let mut kinds = failure.nodes().iter().filter_map(|node| match &node.answer {
        Answer::Failed(error) => Some(error.kind()),
        _ => None,
    });
    let first = kinds.next()?;
    assert!(kinds.all(|kind| kind == first), "{failure}");
    Some(first)
}

#[test]
fn nodes_that_are_new_grant_nothing_for_max_ttl_once() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        let manager = manager(client, &nodes.addresses(), MAX_TTL);
        let (kind, text) = failure(&manager).await;
        assert_eq!(kind, BackendErrorKind::Quarantined);
        assert!(text.contains("quarantined for another "), "{text}");
        for node in &nodes {
            until("a quarantine", || node.get(QUARANTINE).is_some()).await;
            let left = Duration::from_millis(node.pttl(QUARANTINE).unsigned_abs());
            assert!(left <= MAX_TTL && left > MAX_TTL / 2, "{client:?}: {left:?}");
            end_quarantine(node);
        }
        let guard = manager.lock("r").await.unwrap();
        guard.release().await.unwrap();
        assert_clean(&manager).await;
        for node in &nodes {
            assert_eq!(node.keys(), [EPOCH]);
            let promotion = "0000000000000000000000000000000000000000:-1";
            let epoch = format!("{}:{promotion}:{}", node.run_id(), MAX_TTL.as_millis());
            assert_eq!(node.get(EPOCH), Some(epoch.into_bytes()));
            assert_eq!(node.pttl(EPOCH), -1, "it has no end");
        }
        // From now on no client waits, not even a new one.
        let other = self::manager(client, &nodes.addresses(), MAX_TTL);
        other.lock("r").no_wait().fenced().await.unwrap().release().await.unwrap();
    });
}

/// The test does not end it: the nodes do.
#[test]
fn a_lock_waits_for_the_end_of_a_quarantine() {
    with_both_clients_at_once(|client| async move {
        let nodes = Nodes::start(3);
        let manager = manager(client, &nodes.addresses(), SHORT);
        let (kind, _) = failure(&manager).await;
        assert_eq!(kind, BackendErrorKind::Quarantined);
        let guard = manager.lock("r").await.unwrap();
        let free = |node: &&RedisServer| node.pttl(QUARANTINE) == -2;
        assert!(nodes.iter().filter(free).count() >= 2, "a quorum is out of quarantine");
        drop(guard);
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
                end_quarantines(&one, [&node]).await;
                warm_up(&one).await;
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
                let left = Duration::from_millis(node.pttl(QUARANTINE).unsigned_abs());
                assert!(now() + left >= guard.valid_until(), "{client:?}, {how}: {left:?}");
                end_quarantine(&node);
                let next = other.lock("r").await.unwrap();
                next.release().await.unwrap();
            }
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
                manager(client, &[node.address()], MAX_TTL),
                manager(client, &[node.address()], MAX_TTL),
            );
            end_quarantines(&one, [&node]).await;
            let guard = one.lock("r").await.unwrap();
            node.restart();
            let failure = unreachable(other.lock("s").no_wait().await);
            assert_eq!(kind(&failure, 0), BackendErrorKind::Quarantined, "{failure}");
            // The first call may be the one that finds the connection broken.
            within_limit("an extension", async {
                while guard.extend().await.is_err() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            let failure = unreachable(other.lock("s").no_wait().await);
            assert_eq!(kind(&failure, 0), BackendErrorKind::Quarantined, "{failure}");
            end_quarantine(&node);
            let free = other.lock("s").await.unwrap();
            guard.release().await.unwrap();
            free.release().await.unwrap();
            for manager in [one, other] {
                assert_clean(&manager).await;
            }
            assert_eq!(node.keys(), [EPOCH]);
        }
    });
}

#[test]
fn a_replica_that_is_promoted_is_quarantined_however_long_it_is_up() {
    with_both_clients_at_once(|client| async move {
        let at_once = RedisServer::builder().config("repl-diskless-sync-delay", &["0"]);
        let primary = at_once.clone().start();
        let replica = at_once.replica_of(&primary).start();
        let at_primary = manager(client, &[primary.address()], SHORT);
        let at_replica = manager(client, &[replica.address()], SHORT);
        warm_up(&at_primary).await;
        until("the epoch", || replica.get(EPOCH) == primary.get(EPOCH)).await;
        let (kind, _) = failure(&at_replica).await;
        assert_eq!(kind, BackendErrorKind::ReadOnly);
        let up = || replica.info("uptime_in_seconds").parse::<u64>().unwrap();
        until("some seconds", || up() > SHORT.as_secs() + 1).await;

        // A lock that was not replicated: the failover comes first.
        replica.cli(&["REPLICAOF", "NO", "ONE"]);
        let guard = at_primary.lock("r").await.unwrap();
        assert_eq!(replica.get("r"), None);
        for guard_ in [RestartGuard::soft(SHORT), RestartGuard::strict(SHORT)] {
            let at_replica = manager(client, &[replica.address()], guard_);
            let (kind, text) = failure(&at_replica).await;
            assert_eq!(kind, BackendErrorKind::Quarantined, "{guard_:?}: {text}");
            prolong_quarantine(&replica);
        }
        replica.cli(&["PEXPIRE", QUARANTINE, &SHORT.as_millis().to_string()]);
        let next = at_replica.lock("r").await.unwrap();
        assert!(!guard.is_valid());
        drop(next);

        // And there and back: the run is the same, and the data another's.
        primary.cli(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
        until("the data", || primary.get(EPOCH) == replica.get(EPOCH)).await;
        primary.cli(&["REPLICAOF", "NO", "ONE"]);
        let (kind, text) = failure(&at_primary).await;
        assert_eq!(kind, BackendErrorKind::Quarantined, "{text}");
    });
}

#[test]
fn a_soft_guard_asks_for_how_long_a_node_without_an_epoch_is_up() {
    on_tokio(async {
        let node = RedisServer::start();
        let soft = manager(Client::Redis, &[node.address()], RestartGuard::soft(MAX_TTL));
        let (kind, text) = failure(&soft).await;
        assert_eq!(kind, BackendErrorKind::Quarantined, "{text}");
        let (least, most) = (MAX_TTL / 2, MAX_TTL + Duration::from_secs(1));
        let left = Duration::from_millis(node.pttl(QUARANTINE).unsigned_abs());
        assert!(left > least && left <= most, "{left:?}");
        let up = || node.info("uptime_in_seconds").parse::<u64>().unwrap();
        until("some seconds", || up() > SHORT.as_secs() + 1).await;
        node.flushall();
        let soft = manager(Client::Redis, &[node.address()], RestartGuard::soft(SHORT));
        soft.lock("r").no_wait().await.unwrap().release().await.unwrap();
        assert_eq!(node.keys(), [EPOCH]);
        node.flushall();
        let (kind, _) = failure(&manager(Client::Redis, &[node.address()], SHORT)).await;
        assert_eq!(kind, BackendErrorKind::Quarantined);
    });
}

#[test]
fn managers_with_another_max_ttl_are_told_both() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let ours = manager(client, &nodes.addresses(), MAX_TTL);
        end_quarantines(&ours, nodes).await;
        ours.lock("r").await.unwrap().release().await.unwrap();
        let other = manager(client, &nodes.addresses(), 2 * MAX_TTL);
        // Waiting is pointless.
        let request = other.lock("r").timeout(10 * LIMIT);
        let failure = unreachable(within_limit("the end of the wait", request).await);
        assert_eq!(only_kind(&failure), Some(BackendErrorKind::MaxTtl));
        let words = "its max_ttl is 3600000 ms, not 7200000 ms";
        assert!(failure.to_string().contains(words), "{failure}");
        // Anything else in its place is not written over either.
        nodes.iter().for_each(|node| node.set(EPOCH, "garbage"));
        let failure = unreachable(ours.lock("r").no_wait().await);
        assert_eq!(only_kind(&failure), Some(BackendErrorKind::MaxTtl));
        assert!(failure.to_string().contains("no epoch at quorate:guard:epoch2"), "{failure}");
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
            if node.get(EPOCH).is_none() {
                end_quarantines(&narrow, [&node]).await;
            }
            narrow.lock("r").await.unwrap().release().await.unwrap();
            let plain = unhurried(client.connect(&of("blind")));
            plain.build().unwrap().lock("r").await.unwrap().release().await.unwrap();
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
