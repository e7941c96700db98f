//! The restart guard on real nodes: fresh ones, full ones, and those that may evict keys.

use std::time::Duration;

use quorate::error::Answer;
use quorate::{BackendErrorKind, LockManager, RestartGuard};
use quorate_tests::RedisServer;
use quorate_tests::keys::{EPOCH, QUARANTINE};
use quorate_tests::wait::{LONG_TTL, until};

use crate::client::{Client, on_tokio, unhurried, unreachable, with_each};

/// As long as the ttl of the locks here. A quarantine ends when a test says so: see [`end_quarantine`].
const MAX_TTL: Duration = LONG_TTL;

/// A node is up for longer.
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

/// Has a node enter its quarantine, and leave it.
pub(crate) async fn pass_quarantine(manager: &LockManager, node: &RedisServer) {
    is_quarantined(manager).await;
    end_quarantine(node);
}

/// The error of the only node. With a short ttl, the machine may have been too slow for it at first.
async fn failure(manager: &LockManager) -> (BackendErrorKind, String) {
    loop {
        let failure = unreachable(manager.lock("r").no_wait().await);
        if let Answer::Failed(error) = &failure.nodes()[0].answer {
            return (error.kind(), failure.to_string());
        }
    }
}

pub(crate) async fn is_quarantined(manager: &LockManager) {
    let (kind, text) = failure(manager).await;
    assert_eq!(kind, BackendErrorKind::Quarantined, "{text}");
}

/// A server reports its uptime in whole seconds, and may have started up to a second earlier or later than that says. It
/// grants nothing before `max_ttl` has passed since its start, whichever it was.
#[test]
fn a_soft_quarantine_ends_max_ttl_and_a_second_after_the_second_of_the_start() {
    let node = RedisServer::start();
    on_tokio(async {
        let seconds = |field: &str| node.info(field).parse::<i64>().unwrap();
        // Fresh, and up for some seconds, which are taken off.
        for up in [0, 2] {
            until("some seconds", || seconds("uptime_in_seconds") >= up).await;
            let info = node.cli(&["INFO", "server"]).text();
            let field = |name: &str| {
                let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.unwrap().parse::<i64>().unwrap()
            };
            // Both are of one moment of the server.
            let started = field("server_time_usec") / 1_000_000 - field("uptime_in_seconds");
            for max_ttl in [MAX_TTL, MAX_TTL / 2 + Duration::from_millis(1)] {
                node.flushall();
                is_quarantined(&manager(
                    Client::Redis,
                    &[node.address()],
                    RestartGuard::soft(max_ttl),
                ))
                .await;
                let script = "local now = redis.call('TIME') \
                    return now[1] * 1000 + math.floor(now[2] / 1000) + redis.call('PTTL', KEYS[1])";
                let ends = node.cli(&["EVAL", script, "1", QUARANTINE]).integer();
                let rest = ends - 1_000 * started - i64::try_from(max_ttl.as_millis()).unwrap();
                // A second for the rounding of the uptime, and less than one since the last full second.
                assert!((1_000 - 2..=2_000 + 2).contains(&rest), "{rest} ms, up for {up} s");
            }
        }
    });
}

/// The guard has not seen the node. An operator keeps it out for good, for longer or for less than the guard does, or has
/// written an epoch that none is, or another guard one with another `max_ttl`.
#[test]
fn what_an_operator_has_set_on_a_node_that_the_guard_has_not_seen_counts() {
    use BackendErrorKind::{MaxTtl, Quarantined};
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap();
    let (max, hour) = (ms(MAX_TTL), ms(Duration::from_secs(3_600)));
    on_tokio(async {
        let node = RedisServer::start();
        let up = || node.info("uptime_in_seconds").parse::<u64>().unwrap();
        until("some seconds", || up() > SHORT.as_secs() + 1).await;
        let strict = || RestartGuard::strict(MAX_TTL);
        // By its uptime, a soft guard would let the node vote.
        let soft = || RestartGuard::soft(SHORT);
        for (guard, expiry, least, most) in [
            (strict(), None, -1, -1),
            (soft(), None, -1, -1),
            (strict(), Some(max + 2 * hour), max + hour, max + 2 * hour),
            (soft(), Some(hour), 1, hour),
            (strict(), Some(max / 4), max / 2, max),
        ] {
            node.flushall();
            node.set(QUARANTINE, "by hand");
            if let Some(expiry) = expiry {
                let expiry = expiry.to_string();
                assert_eq!(node.cli(&["PEXPIRE", QUARANTINE, &expiry]).integer(), 1);
            }
            let manager = manager(Client::Redis, &[node.address()], guard);
            for _ in 0..2 {
                let (kind, text) = failure(&manager).await;
                assert_eq!(kind, Quarantined, "{guard:?}, {expiry:?}: {text}");
                let left = node.pttl(QUARANTINE);
                assert!((least..=most).contains(&left), "{guard:?}, {expiry:?}: {left} ms");
            }
            // The operator ends it, and the node votes.
            assert_eq!(node.cli(&["DEL", QUARANTINE]).integer(), 1);
            manager.lock("r").no_wait().await.unwrap().release().await.unwrap();
        }
        // Of this run of the server or of another one, with another `max_ttl`.
        let theirs =
            [node.run_id(), "another".to_owned()].map(|run| format!("{run}:7:{}", 2 * hour));
        let none = ["by hand", "", "a:b:c:", ":1000", "run:id:1:1000ms"].map(str::to_owned);
        for epoch in none.into_iter().chain(theirs.clone()) {
            node.flushall();
            node.set(EPOCH, &epoch);
            for guard in [strict(), soft()] {
                let manager = manager(Client::Redis, &[node.address()], guard);
                let (kind, text) = failure(&manager).await;
                assert_eq!(kind, MaxTtl, "{epoch:?}: {text}");
                let both =
                    format!("its max_ttl is {} ms, not {} ms", 2 * hour, ms(guard.max_ttl()));
                assert_eq!(text.contains(&both), theirs.contains(&epoch), "{text}");
                assert_eq!(node.get(EPOCH).as_deref(), Some(epoch.as_bytes()));
                assert_eq!(node.get(QUARANTINE), None);
            }
        }
    });
}

/// A node that cannot write leaves nothing half done. Each is mended at last.
#[test]
fn a_node_that_is_full_or_may_evict_keys_is_told_so_and_begins_its_quarantine_once_it_is_mended() {
    use BackendErrorKind::{Evicting, OutOfMemory};
    with_each(&Client::ALL, async |client| {
        for (memory, policy, expected, mend) in [
            ("104857600", "allkeys-lru", Evicting, ["maxmemory", "0"]),
            ("104857600", "volatile-ttl", Evicting, ["maxmemory-policy", "noeviction"]),
            ("1", "noeviction", OutOfMemory, ["maxmemory", "0"]),
        ] {
            let builder = RedisServer::builder().config("maxmemory", &[memory]);
            let node = builder.config("maxmemory-policy", &[policy]).start();
            let manager = manager(client, &[node.address()], MAX_TTL);
            let (kind, text) = failure(&manager).await;
            assert_eq!(kind, expected, "{text}");
            if expected == Evicting {
                for part in [policy, memory, "may evict keys", &node.port().to_string()] {
                    assert!(text.contains(part), "{text}");
                }
            }
            assert!(node.keys().is_empty(), "it has no epoch");
            node.cli(&["CONFIG", "SET", mend[0], mend[1]]);
            is_quarantined(&manager).await;
        }
    });
}
