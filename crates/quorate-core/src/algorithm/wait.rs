//! The wait machine: one wait of a process in the wait queue of a lock.
//!
//! [`WaitMachine`] is the waiter's side of ZooKeeper's lock recipe on one node, the *gate*. A
//! waiter joins the queue there under an [`Entry`] and watches its predecessor. The first waiter
//! watches the lock. The machine is pure: replies, pushes and time go in, actions and the next
//! timeout come out. The shell drops the reply to a call that a later call has replaced, and the
//! pushes of a watch that a later watch has replaced. It calls [`WaitMachine::set_gates`] before
//! each input.
//!
//! Nothing here grants a lock: only a quorum of votes does (rule Q1). The queue decides when an
//! attempt is worth making.
//!
//! | phase | awaits | ends at the latest |
//! |---|---|---|
//! | Trying | the result of an attempt | when the shell reports it |
//! | Asking | the reply to a refresh | after a node timeout |
//! | Looking | the reply to a watch | after a node timeout |
//! | Waiting | a push | at the next refresh or look |
//! | Over | nothing: the lock was won, or the wait was cancelled | |
//!
//! A refresh reports the predecessor and whether the lock is free. With no predecessor and a free
//! lock the machine attempts. Else it watches a key and waits. A push leads to a refresh, and for
//! the first waiter to an attempt. Without a push a refresh comes after 0.67 s, so a lost push
//! delays a wait by no more (W1). A watch that is not answered within a node timeout is a lost push
//! too: a refresh finds out whether the gate is well.
//!
//! - *Out of turn.* A waiter that is not the first and sees a free lock refreshes again after 20
//!   ms, or after 100 ms if the first entry is polling. Readers behind a writer do so after 150 ms.
//!   If the lock is still free and the first entry is the same, the waiter attempts. A win removes
//!   that entry too. Its owner joins again at its next refresh.
//! - *Misled.* After two refused attempts although the gate replied "free", the waiter rests: a
//!   refresh comes after 0.04 s, later after twice as long each time, up to 0.67 s. A holder that
//!   has no key at the gate may go at any time.
//! - *Noise.* From the fourth fruitless push in a row on, looks and refreshes are at least 200 ms
//!   apart. While readers hold the lock they are 10 ms apart: each reader that comes or goes is a
//!   push. After a refresh that is due, the first waiter counts from one again: if it was overtaken
//!   out of turn, its pushes help from then on.
//! - *Absent.* If the predecessor's key is absent, one refresh comes at once, the next when it is
//!   due (W4).
//! - *Move.* Each refresh goes to the best gate. The entry at the old gate leaves when the new gate
//!   has replied. If the new gate fails, the waiter goes on at the old one.
//! - *No gate.* A gate that fails is skipped, and the next one is asked. With none left, the waiter
//!   makes one attempt per refresh interval, until there is a gate again.
//! - *Polling.* A process without pushes watches nothing. It refreshes after half of the time since
//!   its place last changed: at least 5 ms, at most 40 ms while it is the first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub use self::messages::{Entry, Refreshed, WaitAction, WatchedKey};
use self::place::Place;
use super::lease::saturating_add;
use super::quorum::NodeId;

mod inputs;
mod messages;
mod place;
#[cfg(test)]
mod tests;

/// The mean time between two refreshes of an entry.
pub const REFRESH: Duration = Duration::from_millis(670);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// `is_seen_free`: the gate's last reply was that the lock is free.
    Trying {
        is_seen_free: bool,
    },
    /// This gate may have an entry of ours, besides the one at the gate of `place`.
    Asking {
        gate: NodeId,
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
pub struct WaitMachine {
    /// The nodes that may be the gate, the best one first.
    gates: Vec<NodeId>,
    is_polling: bool,
    is_of_readers: bool,
    node_timeout: Duration,
    phase: Phase,
    /// The place in a queue, from the reply to the first refresh there until LEAVE.
    place: Option<Place>,
    refresh_at: Instant,
    look_at: Option<Instant>,
    /// Attempts that were refused although the gate replied "free", since it last replied "held".
    refused: u8,
    /// Rests in a row for which the gate replied "free", at most until a rest is a refresh
    /// interval.
    rests: u32,
    /// The first entry, during an attempt out of turn.
    overtaken: Option<Entry>,
    actions: VecDeque<WaitAction>,
}

impl WaitMachine {
    /// Begins a wait.
    ///
    /// `gates` are the nodes that may be the gate, the best one first. `entry` is that of this
    /// wait. `others_wait`: the latest word of the gate, at most 1 s old, is that other processes
    /// wait. Then the waiter joins the queue before its first attempt.
    pub fn begin(
        gates: &[NodeId],
        entry: &Entry,
        node_timeout: Duration,
        others_wait: bool,
        now: Instant,
    ) -> Self {
        let mut machine = Self {
            gates: gates.to_vec(),
            is_polling: entry.is_polling(),
            is_of_readers: entry.is_of_readers(),
            node_timeout,
            phase: Phase::Over,
            place: None,
            refresh_at: now,
            look_at: None,
            refused: 0,
            rests: 0,
            overtaken: None,
            actions: VecDeque::new(),
        };
        if others_wait {
            machine.ask(now);
        } else {
            machine.attempt(false);
        }
        machine
    }

    /// The next action; `None` if there is nothing to do.
    pub fn poll_action(&mut self) -> Option<WaitAction> {
        self.actions.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Asking { until, .. } | Phase::Looking { until } => Some(until),
            Phase::Waiting => self.look_at.into_iter().chain([self.refresh_at]).min(),
            Phase::Trying { .. } | Phase::Over => None,
        }
    }

    /// The gate that has our entry, else the one that is asked or would be asked now.
    pub fn gate(&self) -> Option<NodeId> {
        match (&self.place, self.phase) {
            (Some(place), _) => Some(place.gate),
            (None, Phase::Asking { gate, .. }) => Some(gate),
            (None, _) => self.best_gate(),
        }
    }

    /// Whether a gate may have our entry.
    pub const fn has_entry(&self) -> bool {
        self.place.is_some() || matches!(self.phase, Phase::Asking { .. })
    }

    /// Whether the gate has replied to a refresh, and has not failed since.
    pub const fn has_answer(&self) -> bool {
        self.place.is_some()
    }

    /// Whether the lock was won, or the wait cancelled.
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// The interval until the next refresh: 0.67 s ± 20 %, by a random number.
    pub fn refresh_interval(random: u32) -> Duration {
        let fifth = REFRESH / 5;
        (REFRESH - fifth).saturating_add(fifth * 2 / 1024 * (random % 1025))
    }

    /// The gate of the next refresh. If other waits skip all gates, the waiter goes on where it has
    /// a place.
    fn best_gate(&self) -> Option<NodeId> {
        self.gates.first().copied().or_else(|| self.place.as_ref().map(|place| place.gate))
    }

    /// Sends a refresh to the best gate; without any, begins an attempt.
    fn ask(&mut self, now: Instant) {
        match self.best_gate() {
            Some(gate) => self.ask_at(gate, now),
            None => self.attempt(false),
        }
    }

    fn ask_at(&mut self, gate: NodeId, now: Instant) {
        self.phase = Phase::Asking { gate, until: saturating_add(now, self.node_timeout) };
        self.actions.push_back(WaitAction::Refresh(gate));
    }

    fn look(&mut self, now: Instant) {
        let Some(place) = &mut self.place else { return };
        let key = place.key();
        place.watched = Some(key.clone());
        place.rest_until = saturating_add(now, place.spacing());
        self.phase = Phase::Looking { until: saturating_add(now, self.node_timeout) };
        self.actions.push_back(WaitAction::Watch(place.gate, key));
    }

    fn attempt(&mut self, is_seen_free: bool) {
        self.phase = Phase::Trying { is_seen_free };
        self.actions.push_back(WaitAction::Attempt);
    }

    fn end(&mut self, also: Option<Entry>) {
        self.actions.retain(|action| *action != WaitAction::Attempt);
        let place = self.place.take().map(|place| place.gate);
        self.actions.extend(place.map(|gate| WaitAction::Leave { gate, also }));
        if let Phase::Asking { gate, .. } = self.phase
            && place != Some(gate)
        {
            self.actions.push_back(WaitAction::Leave { gate, also: None });
        }
        self.phase = Phase::Over;
    }
}
