//! The wait between processes for one key: drives the [`WaitMachine`].
//!
//! Made after the first lost round, or before the first attempt if the gate said that others wait. It belongs to the local queue of
//! the request's first key, or of its set of names, and stays when one task gives up and the next one goes on there. Its REFRESH, WATCH and LEAVE are calls like all others,
//! and their replies come here. The timekeeper gives it the time. The task that competes waits for
//! [`turn`](RemoteWait::turn), with a timer of its own. `choice` is a wait for one of several keys.

mod choice;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::algorithm::wait::{Entry, WaitAction, WaitMachine, WatchedKey};
use crate::attempts::{Due, Slot, Timed, Wake};
use crate::backend::{
    Answered, Call, CallKind, CallReply, CallResult, Capabilities, Mode, Operation, Tag,
};
use crate::cluster::Cluster;
use crate::error::QuorumFailure;
use crate::given_up::Givers;
use crate::late::{Actor, LateLock};
use crate::resource::Key;
use crate::waiting::{Awaited, Waiting};
use crate::wakers::Wakers;

/// After how long an entry that nobody refreshes has left no key at the gate.
const ENTRY_LASTS: Duration = Duration::from_secs(10);

/// The wait of this manager for one key.
pub(crate) struct RemoteWait {
    cluster: Arc<Cluster>,
    /// The key whose queue it is.
    key: Key,
    entry: Entry,
    slot: Slot,
    /// The lowest number of a watch in use; zero for none.
    watching: AtomicU32,
    /// No answer is awaited any more.
    is_given_up: AtomicBool,
    givers: Givers,
    /// Told what the gate says of other waiters.
    on_word: Box<dyn Fn(bool, Instant) + Send + Sync>,
    state: LateLock<WaitState>,
}

pub(crate) struct WaitState {
    machine: WaitMachine,
    /// The keys of the lock that is waited for.
    locks: Arc<[Key]>,
    calls: u32,
    /// The call whose reply the machine awaits.
    awaited: Option<u32>,
    /// The watches on which a push may come: one, or one for each of several keys.
    watches: Vec<(u32, WatchedKey)>,
    choosing: Option<Choosing>,
    /// REFRESH in flight, at most one for each gate.
    refreshes: Vec<(NodeId, u32)>,
    /// LEAVE that waits until a REFRESH has settled: on a gate that keeps no order.
    held_back: Vec<(NodeId, Option<Entry>)>,
    /// LEAVE in flight.
    leaves: Vec<(NodeId, u32)>,
    /// The machine asks for an attempt, and no task has taken that yet.
    is_told: bool,
    /// How often the machine has asked for an attempt. Readers share a wait, and each makes every attempt.
    turns: u32,
    /// Its entry says that pushes come, and none does.
    is_outdated: bool,
    is_over: bool,
    /// When an entry that is still there has expired, once the wait is over.
    expires: Option<Instant>,
    served: Option<Instant>,
    wakers: Wakers,
}

/// What a wait for one of several keys knows. A key is its index.
#[derive(Default)]
struct Choosing {
    /// The key that a refresh looks at first.
    first: usize,
    /// The key that the next attempt is for.
    free: Option<usize>,
    /// Where keys are watched.
    watched_at: Option<NodeId>,
}

/// What happens to a wait.
pub(crate) enum WaitInput {
    Reply(Tag, CallResult),
    Push(u32),
    Due(Due),
    Refused,
    Won,
    Cancel,
    /// Another task goes on with it, for a lock of these keys.
    TakeOver(Arc<[Key]>),
}

#[derive(Default)]
pub(crate) struct WaitEffects {
    wakers: Wakers,
    givers: Vec<(u32, Waker)>,
    word: Option<(bool, Instant)>,
    wake: Wake,
    is_over: bool,
}

impl RemoteWait {
    /// Begins a wait for a lock of `locks`, in sorted order, or for one of them. `None` without randomness, and once the
    /// manager is closed.
    pub(crate) fn begin(
        cluster: &Arc<Cluster>,
        (locks, is_choice): (&Arc<[Key]>, bool),
        mode: Mode,
        node_timeout: Duration,
        others_wait: bool,
        on_word: impl Fn(bool, Instant) + Send + Sync + 'static,
    ) -> Option<Arc<Self>> {
        let (now, key) = (cluster.now(), locks.first()?.clone());
        let gates = cluster.nodes.gates(&key, now);
        // All gates may be skipped now.
        let gate = gates.first().copied().or_else(|| cluster.nodes.having(Capabilities::QUEUE));
        let is_pushed = gate.is_some_and(|gate| cluster.nodes.has(gate, Capabilities::WATCH));
        let mut random = [0; 16];
        cluster.runtime.fill_random(&mut random).ok()?;
        let entry = Entry::draw(random, is_pushed);
        let entry = if mode == Mode::Shared { entry.of_readers() } else { entry };
        let machine =
            WaitMachine::begin(&gates, entry.is_polling(), node_timeout, others_wait, now);
        let first = usize::from(random[0]) % locks.len();
        let state = WaitState {
            machine,
            locks: Arc::clone(locks),
            calls: 0,
            awaited: None,
            watches: Vec::new(),
            choosing: is_choice.then(|| Choosing { first, ..Choosing::default() }),
            refreshes: Vec::new(),
            held_back: Vec::new(),
            leaves: Vec::new(),
            is_told: false,
            turns: 0,
            is_outdated: false,
            is_over: false,
            expires: None,
            served: None,
            wakers: Wakers::default(),
        };
        let wait = cluster.attempts.register(|slot| {
            Arc::new(Self {
                cluster: Arc::clone(cluster),
                key,
                entry,
                slot,
                watching: AtomicU32::new(0),
                is_given_up: AtomicBool::new(false),
                givers: Givers::default(),
                on_word: Box::new(on_word),
                state: LateLock::new(state),
            })
        })?;
        wait.state.with(&wait, |state, effects| state.follow(&wait, now, effects));
        Some(wait)
    }

    /// Something happened that no reply and no timer tells.
    pub(crate) fn input(self: &Arc<Self>, input: WaitInput) {
        self.state.put(self, (input, None));
    }

    /// Whether a gate has said who is in front, or that the lock is held.
    pub(crate) fn has_answer(self: &Arc<Self>) -> bool {
        self.state.with(self, |state, _| state.machine.has_answer())
    }

    /// Whether another wait has to take its place.
    pub(crate) fn is_outdated(self: &Arc<Self>) -> bool {
        self.state.with(self, |state, _| state.is_outdated)
    }

    /// Resolves when the next attempt is worth making.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn turn(self: &Arc<Self>) {
        self.wait(|state| mem::take(&mut state.is_told) || state.machine.is_over()).await;
    }

    /// Resolves with the number of the latest attempt that is worth making, once it is not `seen`; `None` once the wait
    /// is over.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn turn_after(self: &Arc<Self>, seen: u32) -> Option<u32> {
        let look = |state: &mut WaitState, _: &mut WaitEffects| match state.machine.is_over() {
            true => Some(None),
            false => (state.turns != seen).then_some(Some(state.turns)),
        };
        Waiting::new(&self.state, self, &*self.cluster.runtime, look).await
    }

    /// Whether the lock was won, or the wait cancelled.
    pub(crate) fn is_over(self: &Arc<Self>) -> bool {
        self.state.with(self, |state, _| state.machine.is_over())
    }

    /// How many attempts were worth making until now.
    pub(crate) fn turns(self: &Arc<Self>) -> u32 {
        self.state.with(self, |state, _| state.turns)
    }

    /// Resolves when a gate has answered, or no gate answers.
    pub(crate) async fn answered(self: &Arc<Self>) {
        let is_so = |state: &mut WaitState| {
            mem::take(&mut state.is_told) || state.machine.has_answer() || state.machine.is_over()
        };
        self.wait(is_so).await;
    }

    /// Resolves when the entry has left its gate, or has expired there.
    pub(crate) async fn left(self: &Arc<Self>) {
        self.wait(|state| state.is_over).await;
    }

    async fn wait(self: &Arc<Self>, mut is_so: impl FnMut(&mut WaitState) -> bool + Unpin) {
        let look = move |state: &mut WaitState, _: &mut WaitEffects| is_so(state).then_some(());
        Waiting::new(&self.state, self, &*self.cluster.runtime, look).await;
    }
}

impl Answered for RemoteWait {
    fn answered(self: Arc<Self>, tag: Tag, result: CallResult, now: Option<Instant>) {
        if tag.kind != CallKind::Watch {
            self.givers.settled(tag.number);
        }
        let now = now.unwrap_or_else(|| self.cluster.now());
        let settled = self.cluster.nodes.settled(&tag, result, now);
        let wake = self.cluster.attempts.tell_back(tag.node, settled.await_back);
        self.cluster.attempts.wake(wake);
        self.state.put(&self, (WaitInput::Reply(tag, settled.result), Some(now)));
    }

    fn is_given_up(&self, tag: &Tag, task: Option<&Waker>) -> bool {
        self.givers.ask(tag.number, task, || {
            let watching = self.watching.load(Ordering::SeqCst);
            let is_unused = watching == 0 || tag.number < watching;
            tag.kind == CallKind::Watch && is_unused || self.is_given_up.load(Ordering::SeqCst)
        })
    }

    fn now(&self) -> Option<Instant> {
        Some(self.cluster.now())
    }

    fn pushed(self: Arc<Self>, tag: &Tag) {
        self.state.put(&self, (WaitInput::Push(tag.number), None));
    }
}

impl Timed for RemoteWait {
    fn handle_due(self: Arc<Self>, due: Due, now: Instant) {
        self.state.put(&self, (WaitInput::Due(due), Some(now)));
    }

    fn open_nodes(self: Arc<Self>) -> NodeSet {
        self.state.with(&self, |state, _| state.open_nodes())
    }

    fn release_failure(self: Arc<Self>, _: &Key) -> Option<QuorumFailure> {
        None
    }
}

impl Actor for WaitState {
    type Input = (WaitInput, Option<Instant>);
    type Effects = WaitEffects;
    type Owner = Arc<RemoteWait>;

    fn handle(
        &mut self,
        wait: &Arc<RemoteWait>,
        (input, now): (WaitInput, Option<Instant>),
        effects: &mut WaitEffects,
    ) {
        let now = now.unwrap_or_else(|| wait.cluster.now());
        self.machine.set_gates(&wait.cluster.nodes.gates(&wait.key, now));
        match input {
            WaitInput::Reply(tag, result) => self.handle_reply(wait, &tag, result, now, effects),
            WaitInput::Push(number) => {
                if let Some(key) = self.take_watch(number) {
                    self.machine.handle_push(&key, now);
                }
            }
            WaitInput::Due(Due::Time) => {
                self.served = None;
                self.machine.handle_timeout(now);
            }
            WaitInput::Due(Due::Renewal | Due::Back(_)) => {}
            WaitInput::Refused => {
                self.is_told = false;
                self.machine.handle_refused(refresh_interval(wait), now);
            }
            WaitInput::Won => self.machine.handle_won(),
            WaitInput::Cancel | WaitInput::Due(Due::Close(_)) => self.machine.cancel(),
            WaitInput::TakeOver(locks) => {
                if locks != self.locks {
                    self.machine.forget_lock_watch();
                    self.locks = locks;
                }
                self.machine.take_over();
            }
        }
        self.follow(wait, now, effects);
    }

    fn perform(wait: &Arc<RemoteWait>, effects: WaitEffects) {
        if let Some((others_wait, at)) = effects.word {
            (wait.on_word)(others_wait, at);
        }
        effects.wakers.wake();
        effects.givers.into_iter().for_each(|(_, giver)| giver.wake());
        wait.cluster.attempts.wake(effects.wake);
        if effects.is_over {
            wait.cluster.attempts.remove(wait.slot);
        }
    }
}

impl Awaited for WaitState {
    fn wakers(&mut self) -> &mut Wakers {
        &mut self.wakers
    }

    fn due(&self) -> Option<Instant> {
        if self.is_over { None } else { self.machine.next_timeout().or(self.expires) }
    }

    fn time(now: Instant) -> Self::Input {
        (WaitInput::Due(Due::Time), Some(now))
    }
}

impl WaitState {
    fn handle_reply(
        &mut self,
        wait: &Arc<RemoteWait>,
        tag: &Tag,
        result: CallResult,
        now: Instant,
        effects: &mut WaitEffects,
    ) {
        let nodes = &wait.cluster.nodes;
        let (gate, number) = (tag.node, tag.number);
        if let Err(error) = &result {
            let is_watch = tag.kind == CallKind::Watch;
            let lack = if is_watch { Capabilities::WATCH } else { Capabilities::QUEUE };
            let is_lack = nodes.note_lack(gate, lack, error);
            self.watches.retain(|(watch, _)| *watch != number);
            // Where a node cannot watch, the key counts as there, and no push comes. The next wait has an entry that
            // says so.
            if is_watch && is_lack && self.awaited == Some(number) {
                self.awaited = None;
                let is_news = !mem::replace(&mut self.is_outdated, true);
                self.is_told |= is_news;
                self.turns += u32::from(is_news);
                return self.machine.handle_watched(true, now);
            }
        }
        self.refreshes.retain(|(_, refresh)| *refresh != number);
        if self.leaves.iter().any(|(_, leave)| *leave == number) {
            self.leaves.retain(|(_, leave)| *leave != number);
            if let Ok(CallReply::Waiters(others_wait)) = result {
                effects.word = Some((others_wait, now));
            }
            return;
        }
        let held_back = self.held_back.iter().position(|(at, _)| *at == gate);
        if let Some(at) = held_back {
            let (gate, also) = self.held_back.remove(at);
            self.leave(wait, gate, also, now);
        }
        if self.awaited != Some(number) {
            if self.choosing.is_some()
                && matches!(result, Ok(CallReply::Watched(false)))
                && let Some(key) = self.take_watch(number)
            {
                self.machine.handle_push(&key, now);
            }
            return;
        }
        self.awaited = None;
        match result {
            Ok(CallReply::Refreshed(mut reply)) => {
                self.note_free(&mut reply);
                self.machine.handle_refreshed(reply, refresh_interval(wait), now);
            }
            Ok(CallReply::Watched(is_there)) => {
                if !is_there {
                    self.take_watch(number);
                }
                self.machine.handle_watched(is_there, now);
            }
            Ok(_) | Err(_) => self.machine.handle_failure(now),
        }
    }

    /// Carries out what the machine asks for.
    fn follow(&mut self, wait: &Arc<RemoteWait>, now: Instant, effects: &mut WaitEffects) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                WaitAction::Attempt => {
                    self.is_told = true;
                    self.turns += 1;
                }
                WaitAction::Refresh(gate) => {
                    let (key, entry) = (wait.key.clone(), wait.entry.clone());
                    let (locks, choice) = self.sought();
                    self.refreshes.push((gate, self.calls + 1));
                    self.ask(wait, gate, Operation::Refresh { key, entry, locks, choice }, now);
                }
                WaitAction::Watch(gate, watched) => self.watch(wait, gate, watched, now, effects),
                WaitAction::Leave { gate, also } => {
                    let is_behind = wait.cluster.nodes.can(gate, Capabilities::ORDERED)
                        || !self.refreshes.iter().any(|(at, _)| *at == gate);
                    match is_behind {
                        true => self.leave(wait, gate, also, now),
                        false => self.held_back.push((gate, also)),
                    }
                }
                WaitAction::Skip(gate) => wait.cluster.nodes.skip_gate(gate, now),
            }
        }
        self.publish_watch(wait, effects);
        let is_off = self.machine.is_over();
        if is_off && self.expires.is_none() {
            self.expires = now.checked_add(ENTRY_LASTS);
        }
        let is_left = self.leaves.is_empty() && self.held_back.is_empty();
        let has_expired = self.expires.is_some_and(|expires| now >= expires);
        if is_off && (is_left || has_expired) && !mem::replace(&mut self.is_over, true) {
            effects.is_over = true;
            wait.is_given_up.store(true, Ordering::SeqCst);
            effects.givers.append(&mut wait.givers.take());
        }
        // A change of the next due time concerns the task as well.
        self.wakers.move_into(&mut effects.wakers);
        self.serve(wait, effects);
    }

    /// Tells the timekeeper of the next due time, if it is earlier than what it knows.
    fn serve(&mut self, wait: &Arc<RemoteWait>, effects: &mut WaitEffects) {
        if let Some(due) = self.due()
            && self.served.is_none_or(|served| due < served)
        {
            self.served = Some(due);
            effects.wake.merge(wait.cluster.attempts.serve(wait.slot, due));
        }
    }

    /// Makes the watch in use known to the backend, which forgets the others.
    fn publish_watch(&self, wait: &RemoteWait, effects: &mut WaitEffects) {
        let watching = self.watches.iter().map(|(number, _)| *number).min().unwrap_or(0);
        let watching = if self.machine.is_over() { 0 } else { watching };
        if wait.watching.swap(watching, Ordering::SeqCst) != watching {
            effects.givers.append(&mut wait.givers.take());
        }
    }

    fn leave(&mut self, wait: &Arc<RemoteWait>, gate: NodeId, also: Option<Entry>, now: Instant) {
        let (key, entry) = (wait.key.clone(), wait.entry.clone());
        let awaited = self.awaited;
        self.leaves.push((gate, self.calls + 1));
        self.ask(wait, gate, Operation::Leave { key, entry, also }, now);
        // The machine does not wait for it.
        self.awaited = awaited;
    }

    fn ask(&mut self, wait: &Arc<RemoteWait>, gate: NodeId, operation: Operation, now: Instant) {
        self.calls += 1;
        let (number, is_watch) = (self.calls, matches!(operation, Operation::Watch { .. }));
        self.awaited = Some(number);
        let kind = if is_watch { CallKind::Watch } else { CallKind::Waiting };
        let tag = Tag { node: gate, number, begun: now, kind, asks_server: false };
        let call = Call::new(operation, tag.clone(), Arc::clone(wait) as Arc<dyn Answered>);
        let cluster = &wait.cluster;
        if let Err(not_sent) = cluster.nodes.begin(gate, call, &*cluster.runtime, now) {
            let result = Err(not_sent.error);
            self.handle_reply(wait, &tag, result, now, &mut WaitEffects::default());
        }
    }

    fn open_nodes(&self) -> NodeSet {
        let asked = self.refreshes.iter().chain(&self.leaves).map(|(gate, _)| *gate);
        let held_back = self.held_back.iter().map(|(gate, _)| *gate);
        let own = self.machine.gate().filter(|_| self.machine.has_entry());
        asked.chain(held_back).chain(own).collect()
    }
}

fn refresh_interval(wait: &RemoteWait) -> Duration {
    let random = wait.cluster.random() >> 32;
    WaitMachine::refresh_interval(u32::try_from(random).unwrap_or_default())
}
