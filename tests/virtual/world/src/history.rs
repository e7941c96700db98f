//! What happened to the locks of a world, on the one clock that all share.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::FencingToken;
use quorate_core::resource::Key;
use quorate_memory::{MemoryNode, Observed, Sim};

use crate::world::lock;

/// A record of locks: which client held which, from when to when. Clones write to the same record.
///
/// Times are those of the world: [`Sim::elapsed`], and
/// [`SimClient::world_time`](quorate_memory::SimClient::world_time) of a client's clock. A lock or an extension that
/// was not acknowledged is not recorded: no client relies on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<Mutex<Vec<Event>>>);

/// A lock in a [`History`], by the order in which they were granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LockId(usize);

/// An attempt at a lock, by the hash of its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AttemptId(u64);

impl AttemptId {
    pub(crate) fn of(value: impl AsRef<[u8]>) -> Self {
        Self(fnv(FNV, value.as_ref()))
    }
}

/// An attempt at a lock with a fencing token, as it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) attempt: AttemptId,
    pub(crate) at: Duration,
    pub(crate) hint: u64, // Microseconds since 1970 by its client's wall clock.
}

/// One line of a [`History`]. Client 0 is the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) client: usize,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Granted {
        lock: LockId,
        resource: String,
        until: Duration,
        /// Others may read it, too.
        reads: bool,
    },
    /// A lock that was granted has a fencing token. A client that adopts the lock has the same attempt.
    Fenced(LockId, FencingToken, Begun),
    Extended(LockId, Duration),
    Relied(LockId),
    Ended(LockId),
    /// A node set keys that were free: it granted an attempt, or was repaired.
    Taken {
        node: String,
        by: AttemptId,
        resources: Vec<String>,
    },
    Forgot(String),
    Note(String),
}

impl History {
    /// A client was granted a lock on `resource` at `at`, and may rely on it until `until`. Others may
    /// read it, too, if it `reads`.
    pub(crate) fn granted(
        &self,
        at: Duration,
        client: usize,
        resource: impl Into<String>,
        until: Duration,
        reads: bool,
    ) -> LockId {
        let lock = LockId(lock(&self.0).len());
        self.add(at, client, What::Granted { lock, resource: resource.into(), until, reads });
        lock
    }

    pub(crate) fn add(&self, at: Duration, client: usize, what: What) {
        lock(&self.0).push(Event { at, client, what });
    }

    /// Records from now on to which attempts `node` gives free keys, and when it loses its data:
    /// what [`judge_tokens`](crate::oracle::judge_tokens) asks for.
    pub(crate) fn observe(&self, node: &MemoryNode, sim: &Sim) {
        let (history, sim, node_name) = (self.clone(), sim.clone(), node.name().to_owned());
        node.observe(move |observed| {
            let node = node_name.clone();
            let what = match observed {
                Observed::Set(claim) => {
                    let resource = |key: &Key| String::from_utf8_lossy(key.as_bytes()).into_owned();
                    let resources = claim.keys().iter().map(resource).collect();
                    let by = AttemptId::of(claim.token().as_bytes());
                    What::Taken { node, by, resources }
                }
                Observed::LostData => What::Forgot(node),
                _ => return,
            };
            history.add(sim.elapsed(), 0, what);
        });
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        lock(&self.0).clone()
    }

    /// A number that two equal histories share, and two different ones hardly ever do.
    pub(crate) fn digest(&self) -> u64 {
        let add = |hash, event: &Event| fnv(hash, event.to_string().as_bytes());
        lock(&self.0).iter().fold(FNV, add)
    }
}

/// FNV-1a: the same in every version of every program. This is the hash of nothing.
const FNV: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// As a line of a report.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, client, what } = self;
        write!(f, "{:>14.6}s  client {client:<3}{what:?}", at.as_secs_f64())
    }
}
