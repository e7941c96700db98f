//! The wait between processes, with an entry in the queue of one key: drives the [`WaitMachine`].
//! It is for that key, for several, or for one of several.
//!
//! A waiter that sees the lock free for long enough goes out of turn.
//!
//! Made after the first lost round, or before the first attempt if the gate said that others wait.
//! It belongs to the local queue of the request's first key, or of its set of names, and stays when
//! one task gives up and the next one goes on there. Its REFRESH, WATCH and LEAVE are calls like
//! all others, and their replies come here. The timekeeper gives it the time. The task that
//! competes waits to be [`called`](RemoteWait::called) to its next attempt, with a timer of its
//! own. `goal` is what is waited for, with the watches on which a push may come, and `calls`
//! carries out what the machine asks for.

mod calls;
mod goal;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::algorithm::wait::{Entry, WaitAction, WaitMachine};
use crate::cluster::Cluster;
use crate::cluster::attempts::Notice;
use crate::cluster::nodes::Settled;
use crate::cluster::shell::{self, Actor, Input, Shell};
use crate::resource::Key;
use crate::seam::backend::{CallKind, Capabilities, Operation, Tag};

pub(crate) use self::goal::Goal;

/// The time after which an entry that is not refreshed has left no key at the gate.
const ENTRY_LASTS: Duration = Duration::from_secs(10);

/// How long the word of a gate is trusted, and the end of a lease on one of several names is
/// remembered.
pub(super) const RECENT: Duration = Duration::from_secs(1);

/// Whether that was less than [`RECENT`] ago.
pub(super) fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < RECENT
}

/// A wait of this manager, with an entry in the queue of one key.
pub(crate) type RemoteWait = Shell<WaitState>;

/// What of a wait can be read without its lock.
pub(crate) struct Unlocked {
    /// The key whose queue it is.
    key: Key,
    entry: Entry,
    /// The lowest number of a watch in use; zero for none.
    watching: AtomicU32,
}

/// The machine of a wait, and its calls in flight.
pub(crate) struct WaitState {
    machine: WaitMachine,
    goal: Goal,
    calls: u32,
    /// The call whose reply the machine awaits.
    awaited: Option<u32>,
    /// REFRESH in flight.
    refreshes: Vec<(NodeId, u32)>,
    /// LEAVE that waits until a REFRESH has settled: on a gate that keeps no order.
    held_back: Vec<(NodeId, Option<Entry>)>,
    /// LEAVE in flight.
    leaves: Vec<(NodeId, u32)>,
    /// How often the machine has asked for an attempt. Each task remembers what it has seen.
    calls_to_attempt: u32,
    /// Its entry says that pushes come, and none does.
    is_outdated: bool,
    is_over: bool,
    /// When an entry that is still there has expired, once the wait is over.
    expires: Option<Instant>,
}

/// What its own side wants of a wait.
pub(crate) enum WaitInput {
    Refused,
    Won,
    Cancel,
    /// Another task goes on with it, for a lock of these keys.
    TakeOver(Arc<[Key]>),
}

/// What is done after the lock is free.
type Effects = shell::Effects<WaitState>;

impl RemoteWait {
    /// Begins a wait in the queue of `key`. `None` without randomness, and once the manager is
    /// closed.
    pub(crate) fn begin(
        cluster: &Arc<Cluster>,
        key: Key,
        mut goal: Goal,
        node_timeout: Duration,
        others_wait: bool,
    ) -> Option<Arc<Self>> {
        let now = cluster.now();
        let gates = cluster.nodes.gates(&key, now);
        // All gates may be skipped now.
        let skipped = || cluster.nodes.able(Capabilities::QUEUE).iter().next();
        let gate = gates.first().copied().or_else(skipped);
        let is_pushed = gate.is_some_and(|gate| cluster.nodes.has(gate, Capabilities::WATCH));
        let mut random = [0; 16];
        cluster.runtime.fill_random(&mut random).ok()?;
        let entry = goal.entry(random, is_pushed);
        let machine = WaitMachine::begin(&gates, &entry, node_timeout, others_wait, now);
        let state = WaitState {
            machine,
            goal,
            calls: 0,
            awaited: None,
            refreshes: Vec::new(),
            held_back: Vec::new(),
            leaves: Vec::new(),
            calls_to_attempt: 0,
            is_outdated: false,
            is_over: false,
            expires: None,
        };
        let unlocked = Unlocked { key, entry, watching: AtomicU32::new(0) };
        Self::open(cluster, unlocked, state, now)
    }

    /// Whether a gate has said who is in front, or that the lock is held.
    pub(crate) fn has_answer(self: &Arc<Self>) -> bool {
        self.look(|state| state.machine.has_answer())
    }

    /// Whether another wait has to take its place.
    pub(crate) fn is_outdated(self: &Arc<Self>) -> bool {
        self.look(|state| state.is_outdated)
    }

    /// Resolves with the number of calls to attempt, once it is not `seen`: then the next attempt
    /// is worth making. `None` once the wait is over.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn called(self: &Arc<Self>, seen: u32) -> Option<u32> {
        self.wait(|state| match state.machine.is_over() {
            true => Some(None),
            false => Some(state.calls_to_attempt).filter(|calls| *calls != seen).map(Some),
        })
        .await
    }

    /// Whether the lock was won, or the wait cancelled.
    pub(crate) fn is_over(self: &Arc<Self>) -> bool {
        self.look(|state| state.machine.is_over())
    }

    /// The number of calls to attempt until now. A task that joins reads it before its own input:
    /// else a call between the two is lost until the next refresh.
    pub(crate) fn calls_to_attempt(self: &Arc<Self>) -> u32 {
        self.look(|state| state.calls_to_attempt)
    }

    /// Resolves when the entry has left its gate, or has expired there.
    pub(crate) async fn left(self: &Arc<Self>) {
        self.wait(|state| state.is_over.then_some(())).await;
    }

    /// How long until the next refresh.
    fn refresh_interval(&self) -> Duration {
        let random = self.cluster().random() >> 32;
        WaitMachine::refresh_interval(u32::try_from(random).unwrap_or_default())
    }
}

impl Actor for WaitState {
    type Unlocked = Unlocked;
    type Command = WaitInput;
    type HandedOver = ();

    fn handle(
        &mut self,
        wait: &Arc<RemoteWait>,
        input: Input<WaitInput>,
        now: Instant,
        _: &mut Effects,
    ) {
        self.machine.set_gates(&wait.cluster().nodes.gates(&wait.key, now));
        match input {
            Input::Reply(tag, Settled { result, .. }) => self.handle_reply(wait, &tag, result, now),
            Input::Push(tag) => self.handle_push(tag.number, now),
            Input::Notice(Notice::Time) => self.machine.handle_timeout(now),
            Input::Notice(Notice::Back(_) | Notice::Judge) => {}
            Input::Command(WaitInput::Refused) => {
                self.machine.handle_refused(wait.refresh_interval(), now);
            }
            Input::Command(WaitInput::Won) => self.machine.handle_won(),
            Input::Command(WaitInput::Cancel) | Input::Notice(Notice::Drain | Notice::Close(_)) => {
                self.machine.cancel();
            }
            Input::Command(WaitInput::TakeOver(locks)) => {
                if self.goal.keys != locks {
                    self.goal.keys = locks;
                    self.machine.forget_lock_watch();
                }
                self.machine.take_over();
            }
        }
    }

    fn apply(&mut self, wait: &Arc<RemoteWait>, now: Instant, effects: &mut Effects) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                WaitAction::Attempt => self.calls_to_attempt += 1,
                WaitAction::Refresh(gate) => {
                    // The entry is wanted there again. Whatever ends that asks for a LEAVE of its
                    // own.
                    self.held_back.retain(|(at, _)| *at != gate);
                    let (key, entry) = (wait.key.clone(), wait.entry.clone());
                    let (locks, choice) = self.goal.sought();
                    self.refreshes.push((gate, self.calls + 1));
                    self.ask(wait, gate, Operation::Refresh { key, entry, locks, choice }, now);
                }
                WaitAction::Watch(gate, watched) => self.watch(wait, gate, watched, now, effects),
                WaitAction::Leave { gate, also } => {
                    let is_behind = wait.cluster().nodes.can(gate, Capabilities::ORDERED)
                        || !self.refreshes.iter().any(|(at, _)| *at == gate);
                    match is_behind {
                        true => self.leave(wait, gate, also, now),
                        false => self.held_back.push((gate, also)),
                    }
                }
                WaitAction::Skip(gate) => wait.cluster().nodes.health(gate).skip_gate(now),
            }
        }
        self.publish_watch(wait, effects);
        let is_off = self.machine.is_over();
        if is_off && self.expires.is_none() {
            self.expires = now.checked_add(ENTRY_LASTS);
        }
        let is_left = self.leaves.is_empty() && self.held_back.is_empty();
        let has_expired = self.expires.is_some_and(|expires| now >= expires);
        self.is_over |= is_off && (is_left || has_expired);
        if self.is_over {
            wait.note_over(effects);
        }
        // A change of the next due time concerns the task as well.
        effects.is_changed = true;
    }

    fn due(&self) -> Option<Instant> {
        if self.is_over { None } else { self.machine.next_timeout().or(self.expires) }
    }

    fn open_nodes(&self) -> NodeSet {
        let asked = self.refreshes.iter().chain(&self.leaves).map(|(gate, _)| *gate);
        let held_back = self.held_back.iter().map(|(gate, _)| *gate);
        let own = self.machine.gate().filter(|_| self.machine.has_entry());
        asked.chain(held_back).chain(own).collect()
    }

    fn is_given_up(unlocked: &Unlocked, tag: &Tag) -> bool {
        let watching = unlocked.watching.load(Ordering::SeqCst);
        tag.kind == CallKind::Watch && (watching == 0 || tag.number < watching)
    }
}
