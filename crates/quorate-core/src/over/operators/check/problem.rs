//! The faults of a node that a check finds, and what to do about each.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{BackendError, BackendErrorKind, Capabilities, Description, RestartGuard};
use crate::resource::Key;

/// A fault of a node. `Display` says what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The node or its backend failed. No reply within the node timeout is of the kind
    /// [`TimedOut`](crate::BackendErrorKind::TimedOut).
    #[error("{0}{advice}", advice = advice(.0.kind()))]
    Failed(BackendError),
    /// Another configured node is the same server, which would vote twice (Q6).
    #[error("the same server as {other}; configure each server once")]
    SameServer {
        /// The name of the other node.
        other: Arc<str>,
    },
    /// The node is a replica, and grants nothing.
    #[error("a replica: the node grants no locks; use the address of its primary")]
    Replica,
    /// The server is one of a Redis Cluster: it keeps some of the names.
    #[error(
        "a server of a Redis Cluster: some names fail, and there is no fencing; use a server with \
         cluster-enabled no"
    )]
    Clustered,
    /// The node may evict keys, and with them locks.
    #[error("maxmemory-policy {policy}: the node may evict locks; set noeviction")]
    Evicting {
        /// The `maxmemory-policy`.
        policy: Arc<str>,
    },
    /// The memory of the node is full, and it evicts nothing: it grants nothing.
    #[error("its memory is full: the node grants no locks; raise maxmemory, or delete keys")]
    Full,
    /// The node answers before a write is on its disk, and no [restart guard](crate::RestartGuard)
    /// is set.
    #[error(
        "forgets its locks when it restarts ({setting}); set appendonly yes and appendfsync always \
         (no-appendfsync-on-rewrite no), or a restart guard"
    )]
    Forgets {
        /// The setting that makes it forget.
        setting: Arc<str>,
    },
    /// The node [forgets](Self::Forgets), and restarted less than the longest ttl ago.
    #[error(
        "restarted and kept nothing: others may still hold what it has forgotten; restart no other \
         node for {} s",
        .left.as_secs_f64().ceil()
    )]
    Restarted {
        /// For how long a lock may still be held that the node has forgotten, up to a second more.
        left: Duration,
    },
    /// The node restarted with its data less than the longest ttl ago: it may have keys that were
    /// released while it was away, and refuse these locks. Two such nodes of three refuse a lock
    /// that no client holds. Reported [between
    /// restarts](crate::operators::CheckRequest::between_restarts).
    #[error(
        "restarted with its data: it may refuse locks that were released meanwhile; restart no \
         other node for {} s",
        .left.as_secs_f64().ceil()
    )]
    MayRefuse {
        /// For how long a key that was released may stay there, up to a second more.
        left: Duration,
    },
    /// The [restart guard](crate::RestartGuard) keeps the node from voting.
    #[error("quarantined: {}", quarantined(*.left))]
    Quarantined {
        /// For how long. `Duration::MAX`: until an operator deletes the key of the quarantine.
        left: Duration,
    },
    /// The [restart guard](crate::RestartGuard) will keep the node from voting, from the next lock
    /// on.
    #[error(
        "the restart guard will quarantine it at the next lock, for {duration:.1?}: it restarted, \
         is new or lost its data; restart no other node until that has passed"
    )]
    WillBeQuarantined {
        /// For how long.
        duration: Duration,
    },
    /// The node did not set and delete a key below the prefix of the manager, as each lock does.
    #[error("cannot lock below the prefix: {key}: {error}{advice}", advice = advice(.error.kind()))]
    CannotLock {
        /// The key that was to be set and deleted.
        key: Key,
        /// Why it was not.
        error: BackendError,
    },
    /// The server, or its user, lacks something.
    #[error("{0}")]
    Lack(BackendError),
    /// The node reports no server id.
    #[error(
        "no server id: the node has no fixed place among the gates of wait queues, and two \
         addresses of it count twice; use the same address in all processes, and use it once"
    )]
    NoServerId,
}

impl Problem {
    /// Whether the node grants no lock as long as it has this problem.
    #[must_use]
    pub fn prevents_votes(&self) -> bool {
        match self {
            // A node need not describe itself. Whether it can lock is tried.
            Self::Failed(error) => error.kind() != BackendErrorKind::Script,
            Self::Lack(_) | Self::NoServerId | Self::Clustered | Self::Evicting { .. } => false,
            Self::Forgets { .. } | Self::Restarted { .. } | Self::MayRefuse { .. } => false,
            _ => true,
        }
    }

    /// Whether the problem passes without any action: the node starts, or a time passes.
    ///
    /// [`WillBeQuarantined`](Self::WillBeQuarantined) is one of these: a lock begins the
    /// quarantine, or
    /// [`CheckRequest::begin_quarantine`](crate::operators::CheckRequest::begin_quarantine).
    #[must_use]
    pub fn passes_by_itself(&self) -> bool {
        match self {
            Self::Failed(error) | Self::CannotLock { error, .. } => matches!(
                error.kind(),
                BackendErrorKind::Connection
                    | BackendErrorKind::Loading
                    | BackendErrorKind::TimedOut
            ),
            Self::Quarantined { left } => *left < Duration::MAX,
            Self::Restarted { .. } | Self::MayRefuse { .. } | Self::WillBeQuarantined { .. } => {
                true
            }
            _ => false,
        }
    }
}

/// What to do about an error of this kind.
const fn advice(kind: BackendErrorKind) -> &'static str {
    match kind {
        BackendErrorKind::Auth => "; check the user and the password",
        BackendErrorKind::Connection => "; check the address, and whether the server runs",
        BackendErrorKind::Loading => "; wait",
        BackendErrorKind::Permission => "; allow this to the user of the address",
        BackendErrorKind::Protocol => "; use the address of a Redis or Valkey server",
        BackendErrorKind::TimedOut => "; check the address, and whether the server hangs",
        _ => "",
    }
}

fn quarantined(left: Duration) -> String {
    match left {
        Duration::MAX => {
            "the node grants no locks until quorate:guard:quarantine is deleted".to_owned()
        }
        left => format!("the node may have forgotten locks and grants none for {left:.1?}; wait"),
    }
}

/// The problems that follow from a node's description of itself. `is_of_restarts`: with those that
/// only the restart of another node makes one.
pub(super) fn of_description(
    told: &Description,
    guard: Option<RestartGuard>,
    longest_ttl: Duration,
    is_of_restarts: bool,
) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut note = |problem: Option<Problem>| found.extend(problem);
    note((told.is_replica == Some(true)).then_some(Problem::Replica));
    note((told.is_clustered == Some(true)).then_some(Problem::Clustered));
    note(of_memory(told));
    note(told.quarantine_left.map(|left| Problem::Quarantined { left }));
    // The uptime may be a second too long.
    let since = longest_ttl.saturating_add(Duration::from_secs(1));
    let left = told.uptime.map(|uptime| since.saturating_sub(uptime));
    let left = left.filter(|left| !left.is_zero());
    match guard {
        Some(guard) => note(of_guard(told, guard)),
        None if told.keeps_writes() == Some(false) => {
            let setting = match &told.fsync {
                _ if told.is_append_only == Some(false) => "appendonly no".into(),
                Some(fsync) => format!("appendfsync {fsync}").into(),
                None => "appendfsync cannot be read: allow +config|get".into(),
            };
            note(Some(Problem::Forgets { setting }));
            note(left.map(|left| Problem::Restarted { left }));
        }
        None if is_of_restarts => note(left.map(|left| Problem::MayRefuse { left })),
        None => {}
    }
    found.extend(told.errors.iter().cloned().map(Problem::Lack));
    found.extend(told.server_id.is_none().then_some(Problem::NoServerId));
    found
}

fn of_memory(told: &Description) -> Option<Problem> {
    let policy = told.eviction.as_ref()?;
    let evicts = **policy != *"noeviction";
    match told.max_memory {
        Some(0) => None,
        _ if evicts => Some(Problem::Evicting { policy: Arc::clone(policy) }),
        most => (most? <= told.used_memory?).then_some(Problem::Full),
    }
}

/// What the guard finds when it acquires the next lock.
fn of_guard(told: &Description, guard: RestartGuard) -> Option<Problem> {
    let own = guard.max_ttl();
    let refuses = |kind, text: String| Some(Problem::Failed(BackendError::new(kind, text)));
    let duration = match told.guard_max_ttl {
        _ if told.lacks.contains(Capabilities::GUARD) => {
            let text = "the restart guard needs +info, and keys that begin with quorate:guard:";
            return refuses(BackendErrorKind::Permission, text.to_owned());
        }
        Some(found) if found != own => {
            let text = format!("the max_ttl of its restart guard is {found:.1?}, not {own:.1?}");
            return refuses(BackendErrorKind::MaxTtl, text);
        }
        Some(_) if told.is_known_to_guard => return None,
        Some(_) => own,
        None => guard.quarantine_of_unknown(told.uptime.unwrap_or_default()),
    };
    (!duration.is_zero()).then_some(Problem::WillBeQuarantined { duration })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A node that keeps each write, and has been up for an hour.
    fn healthy() -> Description {
        Description {
            server_id: Some("a".into()),
            uptime: Some(3600 * SECOND),
            max_memory: Some(0),
            eviction: Some("noeviction".into()),
            is_append_only: Some(true),
            fsync: Some("always".into()),
            ..Description::default()
        }
    }

    fn found(told: &Description, guard: Option<RestartGuard>) -> Vec<String> {
        found_by(told, guard, false)
    }

    fn found_by(
        told: &Description,
        guard: Option<RestartGuard>,
        is_of_restarts: bool,
    ) -> Vec<String> {
        let found = of_description(told, guard, 60 * SECOND, is_of_restarts);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_without_a_guard_forgets_unless_each_write_is_on_its_disk() {
        let fix = "set appendonly yes and appendfsync always (no-appendfsync-on-rewrite no), or a \
                   restart guard";
        for (is_append_only, fsync, setting) in [
            (Some(true), Some("always"), None),
            (Some(true), Some("everysec"), Some("appendfsync everysec")),
            (Some(true), None, Some("appendfsync cannot be read: allow +config|get")),
            (Some(false), Some("always"), Some("appendonly no")),
            (Some(false), None, Some("appendonly no")),
            // It says nothing of its disk.
            (None, None, None),
        ] {
            let fsync = fsync.map(Arc::from);
            let told = Description { is_append_only, fsync, ..healthy() };
            let expected = setting
                .map(|setting| format!("forgets its locks when it restarts ({setting}); {fix}"));
            assert_eq!(found(&told, None), Vec::from_iter(expected), "{told:?}");
        }
    }

    #[test]
    fn a_node_that_forgot_is_a_problem_until_the_longest_ttl_has_passed() {
        let restarted = |uptime, is_append_only| {
            let (uptime, is_append_only) = (Some(uptime * SECOND), Some(is_append_only));
            found(&Description { uptime, is_append_only, ..healthy() }, None)
        };
        for (uptime, left) in [(0, Some(61)), (1, Some(60)), (60, Some(1)), (61, None)] {
            let seen = restarted(uptime, false);
            let end = left.map(|left| {
                format!(
                    "restarted and kept nothing: others may still hold what it has forgotten; \
                     restart no other node for {left} s"
                )
            });
            assert_eq!(seen.get(1), end.as_ref(), "{uptime}");
            assert_eq!(restarted(uptime, true), [""; 0]);
        }
    }

    /// Also one that does not say whether it kept its data. The guard waits for as long by itself.
    #[test]
    fn a_node_that_kept_its_data_may_refuse_free_locks_until_the_longest_ttl_has_passed() {
        for (is_append_only, uptime, left) in [
            (Some(true), Some(0), Some(61)),
            (Some(true), Some(60), Some(1)),
            (None, Some(60), Some(1)),
            (Some(true), Some(61), None),
            (Some(true), None, None),
        ] {
            let uptime = uptime.map(|uptime| uptime * SECOND);
            let told = Description { uptime, is_append_only, ..healthy() };
            let expected = left.map(|left| {
                format!(
                    "restarted with its data: it may refuse locks that were released meanwhile; \
                     restart no other node for {left} s"
                )
            });
            assert_eq!(found_by(&told, None, true), Vec::from_iter(expected), "{told:?}");
            assert_eq!(found(&told, None), [""; 0], "it locks");
            let known = Description {
                guard_max_ttl: Some(20 * SECOND),
                is_known_to_guard: true,
                ..told.clone()
            };
            let guard = Some(RestartGuard::strict(20 * SECOND));
            assert_eq!(found_by(&known, guard, true), [""; 0]);
            let forgets = Description { is_append_only: Some(false), ..told };
            let seen = found_by(&forgets, None, true).concat();
            assert!(!seen.contains("with its data"), "{seen}");
        }
    }

    #[test]
    fn a_check_tells_what_the_guard_will_do() {
        let guard = RestartGuard::strict(20 * SECOND);
        let (own, other) = (Some(20 * SECOND), Some(30 * SECOND));
        let will = "the restart guard will quarantine it at the next lock, for";
        for (guard, guard_max_ttl, is_known_to_guard, expected) in [
            (guard, own, true, None),
            (guard, own, false, Some("for 20.0s")),
            (guard, None, false, Some("for 20.0s")),
            (RestartGuard::soft(20 * SECOND), own, false, Some("for 20.0s")),
            // Up for an hour.
            (RestartGuard::soft(20 * SECOND), None, false, None),
            (RestartGuard::soft(3605 * SECOND), None, false, Some("for 6.0s")),
            (guard, other, true, Some("the max_ttl of its restart guard is 30.0s, not 20.0s")),
        ] {
            // The guard keeps a node from voting that forgets.
            let is_append_only = Some(false);
            let told =
                Description { guard_max_ttl, is_known_to_guard, is_append_only, ..healthy() };
            let seen = found(&told, Some(guard));
            assert_eq!(seen.len(), usize::from(expected.is_some()), "{seen:?}");
            if let Some(expected) = expected {
                let is_right = seen[0].contains(expected);
                assert!(is_right && seen[0].contains(will) != expected.contains("not"), "{seen:?}");
            }
        }
        let told = Description { lacks: Capabilities::GUARD, ..healthy() };
        assert!(found(&told, Some(guard))[0].starts_with("the restart guard needs +info"));
        assert_eq!(found(&told, None), [""; 0]);
    }

    #[test]
    fn a_node_evicts_with_a_limit_and_a_policy_and_is_full_without_one() {
        for (max_memory, eviction, used_memory, expected) in [
            (Some(0), "noeviction", 9, ""),
            (Some(0), "allkeys-lru", 9, ""),
            (Some(10), "noeviction", 9, ""),
            (Some(10), "noeviction", 10, "its memory is full"),
            (Some(10), "allkeys-lru", 10, "maxmemory-policy allkeys-lru"),
            (Some(10), "allkeys-lru", 0, "maxmemory-policy allkeys-lru"),
            (None, "allkeys-lru", 0, "maxmemory-policy allkeys-lru"),
            (None, "noeviction", 9, ""),
        ] {
            let (eviction, used_memory) = (Some(eviction.into()), Some(used_memory));
            let told = Description { max_memory, eviction, used_memory, ..healthy() };
            let seen = found(&told, None).join("; ");
            assert!(seen.starts_with(expected) && seen.is_empty() == expected.is_empty(), "{seen}");
        }
    }

    #[test]
    fn an_error_of_a_node_says_what_to_do_and_whether_it_passes() {
        for (kind, text, passes) in [
            (BackendErrorKind::Auth, "text; check the user and the password", false),
            (
                BackendErrorKind::Connection,
                "text; check the address, and whether the server runs",
                true,
            ),
            (BackendErrorKind::Loading, "text; wait", true),
            (BackendErrorKind::Permission, "text; allow this to the user of the address", false),
            (
                BackendErrorKind::Protocol,
                "text; use the address of a Redis or Valkey server",
                false,
            ),
            (BackendErrorKind::Other, "text", false),
        ] {
            let (key, error) = (Key::of_check(b"app:"), BackendError::new(kind, "text"));
            let locks = Problem::CannotLock { key, error: error.clone() };
            let failed = Problem::Failed(error);
            assert_eq!(failed.to_string(), text);
            let expected = format!("cannot lock below the prefix: app::quorate:check: {text}");
            assert_eq!(locks.to_string(), expected);
            for problem in [failed, locks] {
                assert!(problem.prevents_votes());
                assert_eq!(problem.passes_by_itself(), passes);
            }
        }
        assert!(!Problem::Failed(BackendError::unsupported("no")).prevents_votes());
    }

    #[test]
    fn what_waits_for_time_passes_by_itself() {
        let left = SECOND;
        for (problem, passes, votes) in [
            (Problem::Failed(BackendError::new(BackendErrorKind::TimedOut, "")), true, false),
            (Problem::Quarantined { left }, true, false),
            (Problem::Quarantined { left: Duration::MAX }, false, false),
            (Problem::WillBeQuarantined { duration: left }, true, false),
            (Problem::Restarted { left }, true, true),
            (Problem::MayRefuse { left }, true, true),
            (Problem::Forgets { setting: "".into() }, false, true),
            (Problem::Replica, false, false),
            (Problem::Clustered, false, true),
            (Problem::Full, false, false),
            (Problem::SameServer { other: "n".into() }, false, false),
            (Problem::NoServerId, false, true),
        ] {
            assert_eq!(problem.passes_by_itself(), passes, "{problem}");
            assert_eq!(!problem.prevents_votes(), votes, "{problem}");
        }
    }
}
