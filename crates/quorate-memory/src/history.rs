//! What happened to the locks of a world, on the one clock that all share.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A record of locks: who held what, from when to when. Clones write to the same record.
///
/// Times are those of the world: [`Sim::elapsed`](crate::Sim::elapsed), and
/// [`SimClient::world_time`](crate::SimClient::world_time) of what a client's clock said. What was
/// not acknowledged (a lock whose future was dropped, an extension without an answer) is not
/// recorded: nobody relies on it.
#[derive(Clone, Default)]
pub struct History {
    events: Arc<Mutex<Vec<Event>>>,
}

/// A lock in a [`History`], by the order in which they were granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(usize);

/// One line of a [`History`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// When, since the world began.
    pub at: Duration,
    /// Which client it was about; 0 is the world.
    pub client: usize,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A lock was granted.
    Granted {
        /// The new lock.
        lock: LockId,
        /// What it is about.
        resource: String,
        /// Until when its holder may rely on it.
        until: Duration,
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
    /// Anything else that helps the reader.
    Note(String),
}

impl History {
    /// An empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A client was granted a lock on `resource` at `at`, and may rely on it until `until`.
    pub fn granted(
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

    /// The lock may be relied on until `until` now.
    pub fn extended(&self, at: Duration, client: usize, lock: LockId, until: Duration) {
        self.push(at, client, What::Extended { lock, until });
    }

    /// The holder did something for which it relies on the lock.
    pub fn relied(&self, at: Duration, client: usize, lock: LockId) {
        self.push(at, client, What::Relied { lock });
    }

    /// The holder began to give the lock up.
    pub fn ended(&self, at: Duration, client: usize, lock: LockId) {
        self.push(at, client, What::Ended { lock });
    }

    /// Anything else that helps the reader.
    pub fn note(&self, at: Duration, client: usize, note: impl Into<String>) {
        self.push(at, client, What::Note(note.into()));
    }

    /// All that was recorded, in order.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.lock().clone()
    }

    /// A number that two equal histories share, and two different ones hardly ever do.
    #[must_use]
    pub fn digest(&self) -> u64 {
        // FNV-1a: the same in every version of every program.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for event in self.lock().iter() {
            for byte in event.to_string().bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        hash
    }

    fn push(&self, at: Duration, client: usize, what: What) {
        self.lock().push(Event { at, client, what });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            What::Extended { lock, until: end } => write!(f, "extended {lock} {}", until(end)),
            What::Relied { lock } => write!(f, "relies on {lock}"),
            What::Ended { lock } => write!(f, "gives up {lock}"),
            What::Note(note) => f.write_str(note),
        }
    }
}
