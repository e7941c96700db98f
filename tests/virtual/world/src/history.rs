//! What happened to the locks of a world, on the one clock that all share.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorate_core::FencingToken;
use quorate_core::resource::Key;
use quorate_memory::{MemoryNode, Observed, Sim};

/// A record of locks: which client held which, from when to when. Clones write to the same record.
///
/// Times are those of the world: [`Sim::elapsed`], and
/// [`SimClient::world_time`](quorate_memory::SimClient::world_time) of what a client's clock said. What was
/// not acknowledged (a lock whose future was dropped, an extension without an answer) is not
/// recorded: no client relies on it.
#[derive(Clone, Default)]
pub(crate) struct History {
    events: Arc<Mutex<Vec<Event>>>,
}

/// A lock in a [`History`], by the order in which they were granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LockId(usize);

/// An attempt at a lock, by what signs it on the nodes. It does not give that away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AttemptId(u64);

impl AttemptId {
    /// The attempt whose keys hold this value.
    pub(crate) fn of(value: impl AsRef<[u8]>) -> Self {
        Self(fnv(FNV, value.as_ref()))
    }
}

/// What a lock with a fencing token has besides its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fenced {
    /// The token.
    pub(crate) token: FencingToken,
    /// The attempt that it was given to. A client that adopts the lock has the same one.
    pub(crate) attempt: AttemptId,
    /// When that attempt began.
    pub(crate) asked: Duration,
    /// The hint that it began with: microseconds since 1970 by its client's wall clock.
    pub(crate) hint: u64,
}

/// One line of a [`History`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// When, since the world began.
    pub(crate) at: Duration,
    /// Which client it was about; 0 is the world.
    pub(crate) client: usize,
    /// What happened.
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A lock was granted.
    Granted {
        /// The new lock.
        lock: LockId,
        /// What it is about.
        resource: String,
        /// Until when its holder may rely on it.
        until: Duration,
    },
    /// A lock that was granted has a fencing token.
    Fenced {
        /// Which.
        lock: LockId,
        /// The token, and where it came from.
        with: Fenced,
    },
    /// A lock was extended.
    Extended {
        /// Which.
        lock: LockId,
        /// Until when its holder may rely on it now.
        until: Duration,
    },
    /// The holder did something for which it relies on the lock.
    Relied {
        /// Which.
        lock: LockId,
    },
    /// The holder gave it up: it began to release it, or dropped it.
    Ended {
        /// Which.
        lock: LockId,
    },
    /// A node set keys that were free: it granted an attempt, or was repaired.
    Taken {
        /// Which node.
        node: String,
        /// The attempt whose keys they are now.
        by: AttemptId,
        /// What they are about.
        resources: Vec<String>,
    },
    /// A node lost what it had stored.
    Forgot {
        /// Which node.
        node: String,
    },
    /// Anything else that helps the reader.
    Note(String),
}

impl History {
    /// An empty record.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A client was granted a lock on `resource` at `at`, and may rely on it until `until`.
    pub(crate) fn granted(
        &self,
        at: Duration,
        client: usize,
        resource: impl Into<String>,
        until: Duration,
    ) -> LockId {
        let mut events = self.lock();
        let lock = LockId(events.len());
        let what = What::Granted { lock, resource: resource.into(), until };
        events.push(Event { at, client, what });
        lock
    }

    /// The lock, which was just granted, has a fencing token.
    pub(crate) fn fenced(&self, at: Duration, client: usize, lock: LockId, with: Fenced) {
        self.push(at, client, What::Fenced { lock, with });
    }

    /// The lock may be relied on until `until` now.
    pub(crate) fn extended(&self, at: Duration, client: usize, lock: LockId, until: Duration) {
        self.push(at, client, What::Extended { lock, until });
    }

    /// The holder did something for which it relies on the lock.
    pub(crate) fn relied(&self, at: Duration, client: usize, lock: LockId) {
        self.push(at, client, What::Relied { lock });
    }

    /// The holder began to give the lock up.
    pub(crate) fn ended(&self, at: Duration, client: usize, lock: LockId) {
        self.push(at, client, What::Ended { lock });
    }

    pub(crate) fn taken(&self, at: Duration, node: &str, by: AttemptId, resources: Vec<String>) {
        self.push(at, 0, What::Taken { node: node.to_owned(), by, resources });
    }

    pub(crate) fn forgot(&self, at: Duration, node: &str) {
        self.push(at, 0, What::Forgot { node: node.to_owned() });
    }

    /// Records from now on to which attempts `node` gives free keys, and when it loses its data:
    /// what [`judge_tokens`](crate::oracle::judge_tokens) asks for.
    pub(crate) fn observe(&self, node: &MemoryNode, sim: &Sim) {
        let (history, sim, name) = (self.clone(), sim.clone(), node.name().to_owned());
        node.observe(move |observed| match observed {
            Observed::Set(claim) => {
                let by = AttemptId::of(claim.token().as_bytes());
                let resource = |key: &Key| String::from_utf8_lossy(key.as_bytes()).into_owned();
                let resources = claim.keys().iter().map(resource).collect();
                history.taken(sim.elapsed(), &name, by, resources);
            }
            Observed::LostData => history.forgot(sim.elapsed(), &name),
            _ => {}
        });
    }

    /// Anything else that helps the reader.
    pub(crate) fn note(&self, at: Duration, client: usize, note: impl Into<String>) {
        self.push(at, client, What::Note(note.into()));
    }

    /// All that was recorded, in order.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.lock().clone()
    }

    /// A number that two equal histories share, and two different ones hardly ever do.
    pub(crate) fn digest(&self) -> u64 {
        let events = self.lock();
        events.iter().fold(FNV, |hash, event| fnv(hash, event.to_string().as_bytes()))
    }

    fn push(&self, at: Duration, client: usize, what: What) {
        self.lock().push(Event { at, client, what });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// FNV-1a: the same in every version of every program. This is the hash of nothing.
const FNV: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").field("events", &self.lock().len()).finish()
    }
}

/// A line per event.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Enough of it to distinguish it from others.
impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "~{:04x}", self.0 & 0xffff)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>14.6}s  ", self.at.as_secs_f64())?;
        match self.client {
            0 => write!(f, "{:<10}", "")?,
            client => write!(f, "client {client:<3}")?,
        }
        let until = |until: &Duration| format!("until {:.6}s", until.as_secs_f64());
        match &self.what {
            What::Granted { lock, resource, until: end } => {
                write!(f, "holds {resource} as {lock} {}", until(end))
            }
            What::Fenced { lock, with: Fenced { token, attempt, asked, hint } } => write!(
                f,
                "has token {token} for {lock}, attempt {attempt} since {:.6}s with hint {hint}",
                asked.as_secs_f64(),
            ),
            What::Extended { lock, until: end } => write!(f, "extended {lock} {}", until(end)),
            What::Relied { lock } => write!(f, "relies on {lock}"),
            What::Ended { lock } => write!(f, "gives up {lock}"),
            What::Taken { node, by, resources } => {
                write!(f, "{node} is taken by {by} for {}", resources.join(", "))
            }
            What::Forgot { node } => write!(f, "{node} lost its data"),
            What::Note(note) => f.write_str(note),
        }
    }
}
