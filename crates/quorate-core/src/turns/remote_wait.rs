//! The wait between processes for one key: drives the [`WaitMachine`].
//!
//! Made after the first lost round, or before the first attempt if the gate said that others wait. It belongs to the local queue of
//! the request's first key, or of its set of names, and stays when one task gives up and the next one goes on there. Its REFRESH, WATCH and LEAVE are calls like all others,
//! and their replies come here. The timekeeper gives it the time. The task that competes waits to be
//! [`called`](RemoteWait::called) to its next attempt, with a timer of its own. `goal` is what is waited for, `watches`
//! are those on which a push may come, and `follow` carries out what the machine asks for.

mod follow;
mod goal;
mod watches;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::algorithm::wait::{Entry, WaitMachine};
use crate::cluster::Cluster;
use crate::cluster::attempts::{Due, Slot, Timed, Wake};
use crate::cluster::shell::late::{Actor, LateLock};
use crate::cluster::shell::waiting::{Awaited, Waiting};
use crate::cluster::shell::wakers::Wakers;
use crate::error::QuorumFailure;
use crate::resource::Key;
use crate::seam::backend::{Answered, CallKind, CallResult, Capabilities, Mode, Tag};
use crate::seam::given_up::Givers;

pub(crate) use self::goal::Goal;
use self::watches::Watches;

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
    on_hint: Box<dyn Fn(bool, Instant) + Send + Sync>,
    state: LateLock<WaitState>,
}

pub(crate) struct WaitState {
    machine: WaitMachine,
    goal: Goal,
    calls: u32,
    /// The call whose reply the machine awaits.
    awaited: Option<u32>,
    watches: Watches,
    /// REFRESH in flight, at most one for each gate.
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
    served: Option<Instant>,
    wakers: Wakers,
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
    hint: Option<(bool, Instant)>,
    wake: Wake,
    is_over: bool,
}

impl RemoteWait {
    /// Begins a wait in the queue of `key`. `None` without randomness, and once the manager is closed.
    pub(crate) fn begin(
        cluster: &Arc<Cluster>,
        key: Key,
        mut goal: Goal,
        mode: Mode,
        node_timeout: Duration,
        others_wait: bool,
        on_hint: impl Fn(bool, Instant) + Send + Sync + 'static,
    ) -> Option<Arc<Self>> {
        let now = cluster.now();
        let gates = cluster.nodes.gates(&key, now);
        // All gates may be skipped now.
        let gate = gates.first().copied().or_else(|| cluster.nodes.having(Capabilities::QUEUE));
        let is_pushed = gate.is_some_and(|gate| cluster.nodes.has(gate, Capabilities::WATCH));
        let mut random = [0; 16];
        cluster.runtime.fill_random(&mut random).ok()?;
        let entry = Entry::draw(random, is_pushed);
        let entry = if mode == Mode::Shared { entry.of_readers() } else { entry };
        let machine = WaitMachine::begin(&gates, &entry, node_timeout, others_wait, now);
        goal.begin_at(random[0]);
        let state = WaitState {
            machine,
            goal,
            calls: 0,
            awaited: None,
            watches: Watches::default(),
            refreshes: Vec::new(),
            held_back: Vec::new(),
            leaves: Vec::new(),
            calls_to_attempt: 0,
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
                on_hint: Box::new(on_hint),
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

    /// Resolves with the number of calls to attempt, once it is not `seen`: then the next attempt is worth making. `None`
    /// once the wait is over.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn called(self: &Arc<Self>, seen: u32) -> Option<u32> {
        let look = |state: &mut WaitState, _: &mut WaitEffects| match state.machine.is_over() {
            true => Some(None),
            false => (state.calls_to_attempt != seen).then_some(Some(state.calls_to_attempt)),
        };
        Waiting::new(&self.state, self, &*self.cluster.runtime, look).await
    }

    /// Whether the lock was won, or the wait cancelled.
    pub(crate) fn is_over(self: &Arc<Self>) -> bool {
        self.state.with(self, |state, _| state.machine.is_over())
    }

    /// The number of calls to attempt until now. A task that joins reads it before its own input: else a call between
    /// the two is lost until the next refresh.
    pub(crate) fn calls_to_attempt(self: &Arc<Self>) -> u32 {
        self.state.with(self, |state, _| state.calls_to_attempt)
    }

    /// The key that is free as far as is known, of several of which one is wanted.
    pub(crate) fn take_free(self: &Arc<Self>) -> Option<Key> {
        self.state.with(self, |state, _| state.goal.take_free())
    }

    /// Resolves when a gate has answered, or no gate answers.
    pub(crate) async fn gate_answered(self: &Arc<Self>, seen: u32) {
        let is_so = move |state: &mut WaitState| {
            let machine = &state.machine;
            state.calls_to_attempt != seen || machine.has_answer() || machine.is_over()
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

    /// How long until the next refresh.
    fn refresh_interval(&self) -> Duration {
        let random = self.cluster.random() >> 32;
        WaitMachine::refresh_interval(u32::try_from(random).unwrap_or_default())
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
                self.handle_push(number, now);
            }
            WaitInput::Due(Due::Time) => {
                self.served = None;
                self.machine.handle_timeout(now);
            }
            WaitInput::Due(Due::Renewal | Due::Back(_)) => {}
            WaitInput::Refused => {
                self.machine.handle_refused(wait.refresh_interval(), now);
            }
            WaitInput::Won => self.machine.handle_won(),
            WaitInput::Cancel | WaitInput::Due(Due::Drain | Due::Close(_)) => self.machine.cancel(),
            WaitInput::TakeOver(locks) => {
                if self.goal.replace(locks) {
                    self.machine.forget_lock_watch();
                }
                self.machine.take_over();
            }
        }
        self.follow(wait, now, effects);
    }

    fn perform(wait: &Arc<RemoteWait>, effects: WaitEffects) {
        if let Some((others_wait, at)) = effects.hint {
            (wait.on_hint)(others_wait, at);
        }
        effects.wakers.wake();
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
