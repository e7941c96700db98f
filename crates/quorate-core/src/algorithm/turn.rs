//! One waiter's turn in the wait queue of a lock.
//!
//! [`Turn`] is the waiter's side of ZooKeeper's lock recipe on one node, the *gate*. A waiter joins a
//! queue there and watches its predecessor. The first waiter watches the lock. The machine is pure:
//! replies, pushes and time go in, commands and the next wake-up come out. Its driver carries the
//! commands out. It drops the reply to a call that a later command has replaced.
//!
//! Nothing here grants a lock: only a quorum of votes does (rule Q1). What the gate says decides when
//! an attempt is worth making.
//!
//! | phase | what is awaited | ends at the latest |
//! |---|---|---|
//! | Trying | the outcome of an attempt | the driver decides |
//! | Asking | the reply to a refresh | after a node timeout |
//! | Looking | the reply to a watch | after a node timeout |
//! | Waiting | a push | at the next refresh or look |
//! | Over | nothing: the lock was won, or the wait was cancelled | |
//!
//! Three rules replace every guess about other waiters:
//!
//! - *Out of turn.* A waiter that is not first and finds the lock free looks again after 20 ms. If the
//!   lock is still free and the first entry is the same one, the waiter attempts. If it wins, that
//!   entry leaves with it; an owner that is alive joins again at its next refresh.
//! - *Misled.* After two refused attempts although the gate said "free", the next attempt comes with
//!   the next refresh.
//! - *Noise.* After two pushes in a row that showed a held lock, looks and refreshes are at least 100 ms
//!   apart. A predecessor whose key is absent is asked for once, then at the next refresh.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::quorum::NodeId;

#[cfg(test)]
mod tests;

/// How long after its last refresh a waiter refreshes its entry, before jitter.
pub const REFRESH: Duration = Duration::from_millis(670);

/// How long a waiter that is not first looks on while the lock is free.
const SECOND_LOOK: Duration = Duration::from_millis(20);

/// The least time between two looks while pushes show a held lock.
pub(crate) const SPACING: Duration = Duration::from_millis(100);

/// How many attempts may be refused in a row although the gate said "free".
const MISLED: u8 = 2;

/// From how many fruitless pushes in a row on looks are spaced.
pub(crate) const NOISY: u8 = 3;

/// The name of one wait in a wait queue: random, and new for each wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry(Arc<[u8]>);

impl Entry {
    /// The entry with this name.
    #[must_use]
    pub fn new(name: impl Into<Arc<[u8]>>) -> Self {
        Self(name.into())
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A key that a waiter watches at the gate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchedKey {
    /// The lock's key; of several keys, the one with this index.
    Lock(usize),
    /// The key of the predecessor's entry.
    Predecessor(Entry),
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Make one attempt to acquire the lock.
    Attempt,
    /// Keep the entry alive at the gate, joining the queue if the entry is not in it.
    Refresh(NodeId),
    /// Watch a key at the gate.
    Watch(NodeId, WatchedKey),
    /// Remove the entry at the gate, and `also` this one, behind a refresh that is in flight.
    Leave {
        /// Where.
        gate: NodeId,
        /// The first entry of the queue, if it was overtaken.
        also: Option<Entry>,
    },
    /// Use this gate for no new wait for a second.
    Skip(NodeId),
}

/// The gate's reply to a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the reply of one script")]
pub struct Refreshed {
    /// The entry before ours; `None` if ours is the first.
    pub predecessor: Option<Entry>,
    /// The first entry of the queue.
    pub first: Entry,
    /// The index of a lock key that is held; `None` if the lock is free.
    pub held: Option<usize>,
}

/// What a waiter is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// `is_told_free`: the gate has just said that the lock is free.
    Trying {
        is_told_free: bool,
    },
    Asking {
        until: Instant,
    },
    Looking {
        until: Instant,
    },
    Waiting,
    Over,
}

/// The waiter's side of the wait queue.
#[derive(Clone, Debug)]
pub struct Turn {
    node_timeout: Duration,
    /// The candidates for the gate that are left, the best one first.
    gates: VecDeque<NodeId>,
    phase: Phase,
    /// The gate of this wait; `None` once no candidate is left.
    gate: Option<NodeId>,
    /// Whether the gate may have our entry.
    has_entry: bool,
    predecessor: Option<Entry>,
    /// Which of the lock's keys was held when the gate was last asked.
    lock: usize,
    /// The key on which a push is expected.
    watched: Option<WatchedKey>,
    /// The first entry while the lock was seen free, and since when.
    first_while_free: Option<(Entry, Instant)>,
    /// The entry that leaves with ours if the attempt wins.
    overtaken: Option<Entry>,
    /// Attempts that were refused although the gate had said "free", since it last said "held".
    refused: u8,
    /// Pushes since something changed.
    fruitless: u8,
    /// Whether the predecessor's key was absent since the last refresh that was due.
    is_absent: bool,
    refresh_at: Option<Instant>,
    look_at: Option<Instant>,
    /// No look before.
    rest_until: Option<Instant>,
    commands: VecDeque<Command>,
}

impl Turn {
    /// Begins a wait.
    ///
    /// `gates` are the candidates for the gate, the best one first. `others_wait`: the
    /// gate's latest word, at most 1 s old, is that another process waits. Then the waiter joins the queue before it competes.
    #[must_use]
    pub fn begin(
        gates: impl IntoIterator<Item = NodeId>,
        node_timeout: Duration,
        others_wait: bool,
        now: Instant,
    ) -> Self {
        let mut gates: VecDeque<NodeId> = gates.into_iter().collect();
        let gate = gates.pop_front();
        let mut turn = Self {
            node_timeout,
            gates,
            phase: Phase::Over,
            gate,
            has_entry: false,
            predecessor: None,
            lock: 0,
            watched: None,
            first_while_free: None,
            overtaken: None,
            refused: 0,
            fruitless: 0,
            is_absent: false,
            refresh_at: None,
            look_at: None,
            rest_until: None,
            commands: VecDeque::new(),
        };
        match turn.gate {
            Some(gate) if others_wait => turn.ask(gate, now),
            _ => turn.attempt(false),
        }
        turn
    }

    /// The interval until the next refresh: 0.67 s ± 20 %, by a random number.
    #[must_use]
    pub fn refresh_interval(random: u32) -> Duration {
        let fifth = REFRESH / 5;
        (REFRESH - fifth).saturating_add(fifth * 2 / 1024 * (random % 1025))
    }

    /// The gate of this wait; `None` once no candidate is left.
    #[must_use]
    pub const fn gate(&self) -> Option<NodeId> {
        self.gate
    }

    /// Whether the gate may have our entry.
    #[must_use]
    pub const fn has_entry(&self) -> bool {
        self.has_entry
    }

    /// Whether a gate has said who is in front, or that the lock is held.
    #[must_use]
    pub const fn has_answer(&self) -> bool {
        self.refresh_at.is_some()
    }

    /// The next command; `None` if there is nothing to do.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Asking { until } | Phase::Looking { until } => Some(until),
            Phase::Waiting => self.refresh_at.into_iter().chain(self.look_at).min(),
            Phase::Trying { .. } | Phase::Over => None,
        }
    }

    /// Handles an attempt that won the lock.
    pub fn handle_won(&mut self) {
        let overtaken = self.overtaken.take();
        self.end(overtaken.filter(|_| !planted!("overtaken_entry_stays")));
    }

    /// Handles an attempt that was not won.
    ///
    /// The driver calls this when the undo was sent and a random time of one to two durations of the
    /// round, at most a node timeout, has passed. `refresh` is a
    /// [`refresh_interval`](Self::refresh_interval).
    pub fn handle_refused(&mut self, refresh: Duration, now: Instant) {
        let Phase::Trying { is_told_free } = self.phase else { return };
        self.refused = (self.refused + u8::from(is_told_free)).min(MISLED);
        if !planted!("refused_waiter_drops_the_first_entry") {
            self.overtaken = None;
        }
        match self.gate {
            Some(gate) => self.ask(gate, now),
            None => {
                self.phase = Phase::Waiting;
                (self.refresh_at, self.look_at) = (now.checked_add(refresh), None);
            }
        }
    }

    /// Handles the reply to a refresh. `refresh` is a [`refresh_interval`](Self::refresh_interval).
    pub fn handle_refreshed(&mut self, reply: Refreshed, refresh: Duration, now: Instant) {
        let (Phase::Asking { .. }, Some(gate)) = (self.phase, self.gate) else {
            return;
        };
        self.refresh_at = now.checked_add(refresh);
        if reply.predecessor != self.predecessor {
            (self.fruitless, self.is_absent) = (0, false);
        }
        self.predecessor = reply.predecessor;
        let key = match (&self.predecessor, reply.held) {
            (Some(entry), _) => WatchedKey::Predecessor(entry.clone()),
            (None, held) => WatchedKey::Lock(held.unwrap_or(self.lock)),
        };
        match reply.held {
            Some(lock) => {
                (self.lock, self.refused, self.first_while_free) = (lock, 0, None);
            }
            None if self.handle_free(reply.first, now) => return,
            None => {}
        }
        // An entry without its key is not watched: the next refresh will see.
        let is_known_absent = self.is_absent && matches!(key, WatchedKey::Predecessor(_));
        let is_worth_a_look =
            !is_known_absent || planted!("absent_predecessor_is_asked_for_without_end");
        let since = self.first_while_free.as_ref().map(|(_, since)| *since);
        self.look_at = since.and_then(|since| since.checked_add(SECOND_LOOK));
        if self.watched.as_ref() == Some(&key) || !is_worth_a_look {
            self.phase = Phase::Waiting;
        } else if self.fruitless == NOISY && !planted!("noise_without_a_rest") {
            // This refresh was a look.
            self.phase = Phase::Waiting;
            self.look_at = now.checked_add(SPACING);
        } else {
            let look_at = self.look_at;
            self.look(gate, key, now);
            self.look_at = look_at;
        }
    }

    /// Handles a free lock: returns whether that settled what to do.
    fn handle_free(&mut self, first: Entry, now: Instant) -> bool {
        self.fruitless = 0;
        // The lock is free and no push came: the watch is gone.
        if matches!(self.watched, Some(WatchedKey::Lock(_))) {
            self.watched = None;
        }
        if self.refused >= MISLED && !planted!("misled_waiter_never_backs_off") {
            self.refused = MISLED - 1;
            (self.watched, self.first_while_free, self.look_at) = (None, None, None);
            self.phase = Phase::Waiting;
            return true;
        }
        let since = match self.first_while_free.take() {
            Some((entry, since)) if entry == first => since,
            _ => now,
        };
        // The reply to a refresh for another reason may come earlier than that to the second look.
        let is_out_of_turn = now.saturating_duration_since(since) >= SECOND_LOOK
            || planted!("out_of_turn_without_a_second_look");
        if self.predecessor.is_none() || is_out_of_turn {
            self.overtaken = self.predecessor.is_some().then_some(first);
            self.attempt(true);
            return true;
        }
        self.first_while_free = Some((first, since));
        false
    }

    /// Handles the reply to a watch: whether the key is there.
    pub fn handle_watched(&mut self, is_there: bool, now: Instant) {
        let (Phase::Looking { .. }, Some(gate)) = (self.phase, self.gate) else {
            return;
        };
        if is_there {
            self.phase = Phase::Waiting;
            // The push came before the reply.
            if self.watched.is_none() && !planted!("push_before_the_reply_is_lost") {
                self.wake(gate, now);
            }
            return;
        }
        self.watched = None;
        if self.predecessor.is_none() {
            self.fruitless = 0;
            self.attempt(true);
        } else if self.is_absent && !planted!("absent_predecessor_is_asked_for_without_end") {
            self.phase = Phase::Waiting;
        } else {
            self.is_absent = true;
            self.ask(gate, now);
        }
    }

    /// Handles a push: a watched key was written, or may have been.
    pub fn handle_push(&mut self, key: &WatchedKey, now: Instant) {
        if self.watched.as_ref() != Some(key) && !planted!("push_of_another_key_wakes") {
            return;
        }
        self.watched = None;
        if let (Phase::Waiting, Some(gate)) = (self.phase, self.gate) {
            self.wake(gate, now);
        }
    }

    /// Handles an error reply of the gate to a refresh or to a watch, or its silence.
    pub fn handle_failure(&mut self, now: Instant) {
        let (Phase::Asking { .. } | Phase::Looking { .. }, Some(gate)) = (self.phase, self.gate)
        else {
            return;
        };
        self.commands.push_back(Command::Skip(gate));
        self.commands.push_back(Command::Leave { gate, also: None });
        (self.watched, self.predecessor, self.first_while_free) = (None, None, None);
        self.has_entry = false;
        if !planted!("silent_gate_is_asked_again") {
            self.gate = self.gates.pop_front();
        }
        match self.gate {
            Some(next) => self.ask(next, now),
            None => self.attempt(false),
        }
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.next_timeout().is_none_or(|at| now < at) {
            return;
        }
        match (self.phase, self.gate) {
            (Phase::Asking { .. } | Phase::Looking { .. }, _) => self.handle_failure(now),
            (Phase::Waiting, None) => self.attempt(false),
            (Phase::Waiting, Some(gate)) if self.refresh_at.is_some_and(|at| at <= now) => {
                self.is_absent = false;
                if planted!("pushes_are_never_lost") {
                    self.refresh_at = None;
                    return;
                }
                self.ask(gate, now);
            }
            (Phase::Waiting, Some(gate)) => {
                self.look_at = None;
                match &self.predecessor {
                    _ if self.first_while_free.is_some() => self.ask(gate, now),
                    Some(entry) => self.look(gate, WatchedKey::Predecessor(entry.clone()), now),
                    None => self.look(gate, WatchedKey::Lock(self.lock), now),
                }
            }
            (Phase::Trying { .. } | Phase::Over, _) => {}
        }
    }

    /// Ends the wait. An attempt in flight undoes itself.
    pub fn cancel(&mut self) {
        self.end(None);
    }

    fn end(&mut self, also: Option<Entry>) {
        if let (true, Some(gate)) = (self.has_entry, self.gate) {
            self.commands.push_back(Command::Leave { gate, also });
        }
        self.has_entry = false;
        self.phase = Phase::Over;
    }

    fn ask(&mut self, gate: NodeId, now: Instant) {
        self.has_entry = true;
        self.look_at = None;
        self.phase = Phase::Asking { until: deadline(now, self.node_timeout) };
        self.commands.push_back(Command::Refresh(gate));
    }

    fn look(&mut self, gate: NodeId, key: WatchedKey, now: Instant) {
        self.look_at = None;
        self.rest_until = Some(deadline(now, SPACING));
        self.phase = Phase::Looking { until: deadline(now, self.node_timeout) };
        self.watched = Some(key.clone());
        self.commands.push_back(Command::Watch(gate, key));
    }

    fn attempt(&mut self, is_told_free: bool) {
        self.look_at = None;
        self.phase = Phase::Trying { is_told_free };
        self.commands.push_back(Command::Attempt);
    }

    /// Acts on a push that came while waiting.
    fn wake(&mut self, gate: NodeId, now: Instant) {
        self.fruitless = (self.fruitless + 1).min(NOISY);
        let rest = self.rest_until.filter(|rest| self.fruitless == NOISY && now < *rest);
        if rest.is_some() && !planted!("noise_without_a_rest") {
            // A refresh that falls into the rest comes at its end, in place of the look.
            self.look_at = self.look_at.into_iter().chain(rest).min();
            self.refresh_at = self.refresh_at.max(rest);
        } else if self.predecessor.is_some() {
            self.ask(gate, now);
        } else if self.fruitless == 1 {
            // Most pushes on the lock are releases. An attempt without a look saves a round trip.
            self.attempt(false);
        } else {
            self.look(gate, WatchedKey::Lock(self.lock), now);
        }
    }
}

fn deadline(now: Instant, timeout: Duration) -> Instant {
    now.checked_add(timeout).unwrap_or(now)
}
