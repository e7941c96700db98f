//! Nodes that restarted, or lost what they knew, and why they must not vote for a while.
//!
//! A lock is safe because any two quorums share a node, and that node remembers who holds it. A
//! node that restarts without its data has forgotten, and would grant the same lock once more. The
//! Redlock page asks for *delayed restarts*: such a node has to stay out for as long as the longest
//! ttl, after which nothing that it forgot is held any longer. Servers do not do that by
//! themselves. With [`restart_guard`](crate::LockManagerBuilder::restart_guard) the clients see to
//! it: a node that may have forgotten is *quarantined*. Its vote is unknown, as if it did not
//! answer, until `max_ttl` has passed.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use quorate_core::{BuildError, LockBackend, LockManager, Runtime};
//!
//! fn manager(
//!     runtime: impl Runtime,
//!     nodes: Vec<Arc<dyn LockBackend>>,
//! ) -> Result<LockManager, BuildError> {
//!     let longest = Duration::from_secs(30);
//!     LockManager::builder(runtime, nodes).ttl(longest / 3).restart_guard(longest).build()
//! }
//! ```
//!
//! # How a node is known to have forgotten
//!
//! Each run of a Redis or Valkey process has an id of its own, its `run_id`. The node keeps an
//! *epoch*: the run that has kept its data since, and the `max_ttl` that is agreed on. Each
//! acquire compares the two inside the node, at one moment with the grant. If the epoch is missing,
//! or is that of another run, it is set anew, and a quarantine begins:
//!
//! | what happened | seen by |
//! |---|---|
//! | killed, crashed or restarted, empty or with an old snapshot or log | another run |
//! | a replica was promoted, or a primary demoted and promoted again | another run |
//! | `FLUSHALL`, `FLUSHDB`, a new empty node in place of the old one | no epoch |
//!
//! It is checked on the node and with every acquire: clients that are new, connections that break
//! and reconnect, and addresses that come to lead elsewhere need no care.
//!
//! # What a quarantined node does
//!
//! - It grants nothing. Its vote is unknown, never a refusal: [`LockError::NoQuorum`] says of it
//!   *quarantined for another 3.2s*, of kind [`Quarantined`](crate::BackendErrorKind::Quarantined).
//!   A quorum of other nodes takes locks as ever; who [waits](crate::LockManager::lock) without one
//!   wins when the quarantine is over.
//! - It extends what it still has: the key that is there is the proof that it was not forgotten.
//! - It releases.
//! - A key that it lost is given back to it by whoever holds the lock
//!   ([unless switched off](crate::LockManagerBuilder::without_repair)), and counts in the
//!   extensions after that. The holder is the only one by the votes of the others, so nothing that
//!   this node has forgotten speaks against it; and the key keeps others out from then on.
//! - It grants an acquire that was sent twice, if the key has its token: it had granted it before.
//!
//! # Why it holds
//!
//! While a lease is valid, each node of the quorum that granted or extended it either has its key,
//! or has lost it and was quarantined since. Every key lives for `max_ttl` at the most, so what was
//! forgotten is over before the quarantine is. Another quorum shares a node with that one, and
//! that node grants nothing. Both times are counted by the node's own clock, so the drift allowance
//! of the lease covers the quarantine, too.
//!
//! With [fencing tokens](crate::LockRequest::fenced) it closes the one hole that the model of them
//! shows: an attempt that began before a node lost its data, and reaches it after, brings an old
//! hint and could be given a number that is too low. An attempt lives for less than its ttl from
//! its beginning, and so is over, and its votes worth nothing, before that node votes again.
//!
//! # What stays open
//!
//! - **A node whose clock jumps forward** forgets locks early, in the midst of its run; a
//!   quarantine ends early by it, too. Have clocks slewed, not stepped.
//! - **A loss inside a living process** that leaves the epoch in place: `DEL` of a lock's key,
//!   `DEBUG RELOAD NOSAVE`, eviction. For the last, nodes that are configured to evict are refused
//!   when an epoch is set ([`Evicting`](crate::BackendErrorKind::Evicting)), but not if the policy is
//!   changed after that.
//! - **A promoted replica beside a primary that lives on.** Each is one node for those who reach it.
//!   The one that was promoted is quarantined, which protects what was not replicated; a primary that
//!   is not told goes on voting. Let nothing promote a replica by itself behind a node's address.
//! - **Proxies.** An address behind which several servers answer is no node. It is refused as
//!   [`Identity`](crate::BackendErrorKind::Identity) where they are seen in turn: where they share
//!   their data, it would be quarantined for ever. A proxy that ties each client to one of them cannot
//!   be seen through.
//! - **Others who lock.** Only acquires with the guard respect a quarantine. Clients without it, and
//!   other Redlock libraries, take locks from a node that has forgotten, and may set longer ttls.
//! - **A pause of the holder** past its lease is another matter: only the resource can
//!   [refuse](crate::FenceGate) it.
//!
//! It says nothing of how many nodes may forget at once: if a quorum is quarantined, nothing can be
//! locked meanwhile. That is the price of not locking twice.
//!
//! # For operators
//!
//! - `max_ttl` is one number for everybody who locks on these nodes, no less than the longest ttl
//!   that anybody asks for; a longer one is refused before anything is sent
//!   ([`InvalidTtl::OverMaxTtl`](crate::InvalidTtl::OverMaxTtl)), and a node that knows another
//!   `max_ttl` does not vote ([`MaxTtl`](crate::BackendErrorKind::MaxTtl)). As short as can be: it is
//!   how long a node is out.
//! - **To change it**: stop those who lock, wait for the old `max_ttl`, delete
//!   `quorate:guard:epoch` on every node, and start them with the new one. The nodes are then
//!   quarantined for that long.
//! - A node that is new is quarantined, too, and so a cluster that is new, or on which the guard is
//!   switched on, grants nothing for `max_ttl` once. [`RestartGuard::soft`] spares nodes that have
//!   been up for longer than that. Where it is certain that nobody has held a lock on the nodes for
//!   `max_ttl`, deleting `quorate:guard:quarantine` on them ends it.
//! - A quarantine begins when the guard first meets the node after its restart, not with the restart:
//!   the first acquire begins it on all nodes.
//! - A user of an ACL needs `~quorate:guard:*`, and `+info`, which is in no category of harmless
//!   commands. The node must be Redis 5 or later, or Valkey.
//! - `maxmemory-policy` must be `noeviction`, or `maxmemory` 0.
//! - Persistence (`appendfsync always`) does not spare a node the quarantine, since nothing tells
//!   whether all was on the disk.
//!
//! [`LockError::NoQuorum`]: crate::LockError::NoQuorum

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::algorithm::fence::{FenceHint, FencingToken};
use crate::backend::{BackendError, Claim};

/// For how long a node that may have forgotten is kept from voting, and which nodes those are.
///
/// A plain [`Duration`] is a [strict](Self::strict) one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartGuard {
    max_ttl: Duration,
    unknown: Unknown,
}

/// What is thought of a node without an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unknown {
    Forgot,
    NewIfLongUp,
}

impl RestartGuard {
    /// A node that does not know who has used it may have forgotten: a new one is quarantined, too.
    ///
    /// `max_ttl` is the longest ttl of any lock on these nodes, in whole milliseconds; a fraction
    /// is cut off.
    #[must_use]
    pub const fn strict(max_ttl: Duration) -> Self {
        Self { max_ttl: whole_millis(max_ttl), unknown: Unknown::Forgot }
    }

    /// A node without an epoch that has been up for longer than `max_ttl`, and a second for the
    /// granularity of its uptime, is taken for one that was never used; one that has been up for
    /// less is quarantined for the rest of that.
    ///
    /// So a cluster that has run for long enough grants at once when the guard is switched on, and
    /// a node that was down for days and lost everything is back sooner. It takes **`FLUSHALL` on a
    /// node that is long up for a new node**, and lets it vote. The node's wall clock tells its
    /// uptime: it must not have been set forward since. Another run's epoch is as with
    /// [`strict`](Self::strict).
    #[must_use]
    pub const fn soft(max_ttl: Duration) -> Self {
        Self { max_ttl: whole_millis(max_ttl), unknown: Unknown::NewIfLongUp }
    }

    /// The longest ttl, which is how long a quarantine lasts; a soft one adds a second on a node
    /// without an epoch, and takes off the time for which the node has been up.
    #[must_use]
    pub const fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    /// Whether a node without an epoch is quarantined for `max_ttl`, however long it has been up.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        matches!(self.unknown, Unknown::Forgot)
    }

    /// How long a quarantine lasts that begins on a node without an epoch, which says that it has
    /// been up for so many whole seconds.
    #[must_use]
    pub const fn quarantine_of_unknown(&self, uptime: Duration) -> Duration {
        match self.unknown {
            Unknown::Forgot => self.max_ttl,
            Unknown::NewIfLongUp => {
                self.max_ttl.saturating_add(Duration::from_secs(1)).saturating_sub(uptime)
            }
        }
    }
}

/// As [`RestartGuard::strict`].
impl From<Duration> for RestartGuard {
    fn from(max_ttl: Duration) -> Self {
        Self::strict(max_ttl)
    }
}

const fn whole_millis(duration: Duration) -> Duration {
    let nanos = duration.subsec_nanos();
    Duration::new(duration.as_secs(), nanos - nanos % 1_000_000)
}

/// A node that keeps from voting while it may have forgotten.
///
/// # Contract
///
/// All that [`LockBackend`](crate::LockBackend) and [`Fence`](crate::Fence) promise of an acquire
/// holds here, too, and what is taken here is extended, raised and released there. Besides, with
/// each acquire and at one moment with it:
///
/// - *Epoch.* If the node does not know that its data has been kept by this run of its process and
///   no other, with this `max_ttl`, a quarantine of [`max_ttl`](RestartGuard::max_ttl) begins;
///   of [`quarantine_of_unknown`](RestartGuard::quarantine_of_unknown) if it knows of no run at
///   all. It never shortens one.
/// - *Silence.* While it lasts, nothing is taken and nothing refused: the answer is
///   [`Quarantined`](GuardedVote::Quarantined). But if all keys hold the claim's token it grants.
/// - *One `max_ttl`.* A node that knows another one changes nothing and gives an error
///   ([`MaxTtl`](crate::BackendErrorKind::MaxTtl)), and so does one that may drop keys by itself,
///   before an epoch is set ([`Evicting`](crate::BackendErrorKind::Evicting)).
/// - *The node's clock* counts the quarantine, as it counts ttls.
#[async_trait]
pub trait Quarantine: Send + Sync {
    /// Takes all keys of the claim for its ttl, or none of them; with a number as
    /// [`Fence::acquire`](crate::Fence::acquire) if there is a hint.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown for another reason than a quarantine.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out, and no other call is disturbed. The caller gives back
    /// what may have been taken; a number that was raised, and a quarantine that has begun, stay.
    async fn acquire(
        &self,
        claim: &Claim,
        hint: Option<FenceHint>,
        guard: RestartGuard,
    ) -> Result<Guarded, BackendError>;
}

/// What a node said to an acquire under the guard, and which one it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarded {
    /// Its vote, or that it has none.
    pub vote: GuardedVote,
    /// The run that answered, as [`Identify::server_id`](crate::Identify::server_id) gives it.
    pub server_id: String,
    /// The run whose epoch was found, if it was another one.
    pub before: Option<String>,
}

impl Guarded {
    /// What the run `server_id` said, whose epoch it is.
    #[must_use]
    pub fn new(vote: GuardedVote, server_id: impl Into<String>) -> Self {
        Self { vote, server_id: server_id.into(), before: None }
    }

    /// The same, where the epoch of the run `before` was found.
    #[must_use]
    pub fn after(self, before: impl Into<String>) -> Self {
        Self { before: Some(before.into()), ..self }
    }
}

/// A vote of a node that may have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: a vote, or none for a while")]
pub enum GuardedVote {
    /// The keys are ours, with this number if there was a hint.
    Granted(Option<FencingToken>),
    /// The keys are somebody else's.
    Refused,
    /// It does not vote.
    Quarantined {
        /// For how long still, by its clock.
        left: Duration,
    },
}

/// Prints `quarantined for another 3.2s`, or the vote.
impl fmt::Display for GuardedVote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(_) => f.write_str("granted"),
            Self::Refused => f.write_str("refused"),
            Self::Quarantined { left } => write!(f, "quarantined for another {left:.1?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_strict_guard_does_not_look_at_the_uptime_and_a_soft_one_waits_for_the_rest() {
        let (strict, soft) = (RestartGuard::from(10 * SECOND), RestartGuard::soft(10 * SECOND));
        for (uptime, rest) in [(0, 11), (1, 10), (10, 1), (11, 0), (12, 0), (u64::MAX, 0)] {
            let uptime = Duration::from_secs(uptime);
            assert_eq!(strict.quarantine_of_unknown(uptime), 10 * SECOND);
            assert_eq!(soft.quarantine_of_unknown(uptime), Duration::from_secs(rest));
        }
        assert_eq!(
            RestartGuard::soft(Duration::MAX).quarantine_of_unknown(SECOND).as_secs(),
            u64::MAX - 1
        );
    }

    #[test]
    fn a_max_ttl_has_whole_milliseconds() {
        let guard = RestartGuard::strict(Duration::from_micros(1_001_999));
        assert_eq!(guard.max_ttl(), Duration::from_millis(1_001));
        assert_eq!(RestartGuard::strict(Duration::from_nanos(999_999)).max_ttl(), Duration::ZERO);
    }
}
