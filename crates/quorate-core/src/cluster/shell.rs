//! The machine room of an attempt and of a wait between processes.
//!
//! Whatever happens to one of them is handled where it happens, by the thread on which it happens.
//! A reply, a due time, a push and a command of its own side are one kind of thing, an [`Input`].
//! Each is handled by one function:
//!
//! 1. lock the state (a reply never waits for it: if it is locked, the reply goes into a list, see
//!    `late`);
//! 2. the pure machine handles the input, with one reading of the clock;
//! 3. the calls that it asks for *begin*, under the lock, which fixes their order at each node;
//! 4. what it decides is kept beside it;
//! 5. unlock, and perform the [`Effects`].
//!
//! `waiting` is a caller that waits for a change, `wakers` are all that wait.

pub(crate) mod late;
mod waiting;
mod wakers;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Instant;

use self::late::{LateLock, LateState};
use self::wakers::Wakers;
use crate::algorithm::node_set::NodeSet;
use crate::cluster::Cluster;
use crate::cluster::attempts::{Notice, Slot, Timed, Wake};
use crate::cluster::nodes::Settled;
use crate::seam::backend::{Answered, Call, CallKind, CallResult, Membership, Operation, Tag};
use crate::seam::given_up::GiveUpWakers;
use crate::telemetry;

/// A machine with what its decisions leave behind.
pub(crate) trait Actor: Send + Sized + 'static {
    /// What stands beside it, and can be read without its lock.
    type Unlocked: Send + Sync;
    /// What its own side wants of it.
    type Command: Send;
    /// What others get of it, before tasks are woken.
    type HandedOver: Default;

    /// Handles one input.
    fn handle(
        &mut self,
        shell: &Arc<Shell<Self>>,
        input: Input<Self::Command>,
        now: Instant,
        effects: &mut Effects<Self>,
    );
    /// Carries out what the machine asks for, after each input. Calls [`Shell::note_over`] while
    /// nothing is left to await.
    fn apply(&mut self, shell: &Arc<Shell<Self>>, now: Instant, effects: &mut Effects<Self>);
    /// When it is to be given the time.
    fn due(&self) -> Option<Instant>;
    /// The nodes where something is in flight or to be removed.
    fn open_nodes(&self) -> NodeSet;
    /// Whether the answer to this call is not awaited any more.
    fn is_given_up(unlocked: &Self::Unlocked, tag: &Tag) -> bool;
    /// See [`Answered::note_queued`].
    fn note_queued(_: &Self::Unlocked, _: &Tag, _is_queued: bool, _is_late: bool) {}
}

/// What happens to an actor.
pub(crate) enum Input<W> {
    Reply(Tag, Settled),
    /// A key of this call was written, or may have been.
    Push(Tag),
    Notice(Notice),
    Command(W),
}

/// One actor with its lock, its place among all that is not over, and its waiters.
pub(crate) struct Shell<A: Actor> {
    unlocked: A::Unlocked,
    cluster: Arc<Cluster>,
    pub(crate) slot: Slot,
    /// Nothing is left to await, and all calls are given up.
    is_over: AtomicBool,
    give_up_wakers: GiveUpWakers,
    room: LateLock<Room<A>>,
}

/// What is behind the lock.
struct Room<A> {
    actor: A,
    wakers: Wakers,
    /// What the timekeeper knows.
    served: Option<Instant>,
}

/// What is done after the lock is free.
pub(crate) struct Effects<A: Actor> {
    /// Something has changed for which tasks may wait.
    pub(crate) is_changed: bool,
    wakers: Wakers,
    /// A later one makes an earlier one out of date: the timekeeper looks at all that is due.
    wake: Option<Wake>,
    /// Dropped, it is handed over.
    pub(crate) handed_over: A::HandedOver,
    events: Vec<Event<A>>,
    is_over: bool,
}

/// An event for telemetry, emitted when the lock is free: a subscriber may ask for the lease, or
/// block.
type Event<A> = Box<dyn FnOnce(&Shell<A>) + Send>;

impl<A: Actor> Effects<A> {
    /// Emits an event, where telemetry is on.
    pub(crate) fn tell(&mut self, event: impl FnOnce(&Shell<A>) + Send + 'static) {
        if telemetry::IS_ON {
            self.events.push(Box::new(event));
        }
    }
}

impl<A: Actor> Default for Effects<A> {
    fn default() -> Self {
        let (is_changed, wakers, wake, handed_over, events, is_over) = Default::default();
        Self { is_changed, wakers, wake, handed_over, events, is_over }
    }
}

impl<A: Actor> Deref for Shell<A> {
    type Target = A::Unlocked;

    fn deref(&self) -> &A::Unlocked {
        &self.unlocked
    }
}

impl<A: Actor> Shell<A> {
    /// Registers an actor, and then lets it send its first calls: a call that is answered at once
    /// finds it there. `None` once the manager is drained or closed.
    pub(crate) fn open(
        cluster: &Arc<Cluster>,
        unlocked: A::Unlocked,
        actor: A,
        now: Instant,
    ) -> Option<Arc<Self>> {
        let (wakers, served, is_over, give_up_wakers) = Default::default();
        let room = LateLock::new(Room { actor, wakers, served });
        let shell = cluster.attempts.register(|slot| {
            Arc::new(Self {
                unlocked,
                cluster: Arc::clone(cluster),
                slot,
                is_over,
                give_up_wakers,
                room,
            })
        })?;
        shell.act(now, |_| ());
        Some(shell)
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Handles a command, or leaves it to the thread that has the lock. Never waits for that
    /// thread.
    pub(crate) fn input(self: &Arc<Self>, command: A::Command) {
        self.room.put(self, (Input::Command(command), self.cluster().now()));
    }

    /// Waits for the lock, and handles an input. What it has changed is there when this returns.
    pub(crate) fn handle(self: &Arc<Self>, input: Input<A::Command>) {
        self.room.with(self, |room, effects| {
            room.handle(self, (input, self.cluster().now()), effects);
        });
    }

    /// Waits for the lock: for the caller's side, never for a backend.
    pub(crate) fn look<T>(self: &Arc<Self>, look: impl FnOnce(&mut A) -> T) -> T {
        self.room.with(self, |room, _| look(&mut room.actor))
    }

    /// The same for an input that has a result at once, and carries out its effects.
    pub(crate) fn act<T>(self: &Arc<Self>, now: Instant, act: impl FnOnce(&mut A) -> T) -> T {
        self.room.with(self, |room, effects| {
            let result = act(&mut room.actor);
            room.apply(self, now, effects);
            result
        })
    }

    /// Hands a call to its node. Returns since when that has answered no call. An error: it was not
    /// sent, and has settled.
    pub(crate) fn begin_call(
        self: &Arc<Self>,
        operation: Operation,
        tag: Tag,
    ) -> Result<Instant, Box<Settled>> {
        let cluster = self.cluster();
        let call = Call::new(operation, tag, Arc::<Self>::clone(self));
        cluster.nodes.begin(call, &*cluster.runtime)
    }

    /// Nothing is left to await, and all calls are given up. Returns whether that is new.
    pub(crate) fn note_over(&self, effects: &mut Effects<A>) -> bool {
        if self.is_over.swap(true, Ordering::SeqCst) {
            return false;
        }
        (effects.is_over, effects.is_changed) = (true, true);
        self.wake_given_up(effects);
        true
    }

    /// Gives up calls: notifies the backends that carry them.
    pub(crate) fn wake_given_up(&self, effects: &mut Effects<A>) {
        effects.wakers.add(self.give_up_wakers.take());
    }
}

impl<A: Actor> Room<A> {
    /// Carries out the decisions, and notifies the timekeeper of an earlier due time.
    fn apply(&mut self, shell: &Arc<Shell<A>>, now: Instant, effects: &mut Effects<A>) {
        self.actor.apply(shell, now, effects);
        if effects.is_changed {
            self.wakers.move_into(&mut effects.wakers);
        }
        if let Some(due) = self.actor.due()
            && self.served.is_none_or(|served| due < served)
        {
            self.served = Some(due);
            let wake = shell.cluster().attempts.serve(shell.slot, due);
            effects.wake = wake.or_else(|| effects.wake.take());
        }
    }
}

impl<A: Actor> LateState for Room<A> {
    type Input = (Input<A::Command>, Instant);
    type Effects = Effects<A>;
    type Owner = Arc<Shell<A>>;

    fn handle(
        &mut self,
        shell: &Arc<Shell<A>>,
        (mut input, now): (Input<A::Command>, Instant),
        effects: &mut Effects<A>,
    ) {
        let is_time = matches!(input, Input::Notice(Notice::Time));
        if is_time {
            self.served = None;
        }
        if let Input::Reply(tag, settled) = &mut input {
            // Not where it was answered: that can be inside `begin`, under the lock.
            let await_back = std::mem::take(&mut settled.await_back);
            let wake = shell.cluster().attempts.tell_back(tag.node, await_back);
            effects.wake = wake.or_else(|| effects.wake.take());
        }
        self.actor.handle(shell, input, now, effects);
        self.apply(shell, now, effects);
        // Else the timekeeper would spin.
        debug_assert!(
            !is_time || self.actor.due().is_none_or(|due| due > now),
            "a due time was served and stays"
        );
    }

    fn perform(shell: &Arc<Shell<A>>, effects: Effects<A>) {
        drop(effects.handed_over);
        let attempts = &shell.cluster().attempts;
        attempts.wake(effects.wake);
        effects.wakers.wake();
        for event in effects.events {
            event(shell);
        }
        if effects.is_over {
            attempts.remove(shell.slot);
        }
    }
}

impl<A: Actor> Answered for Shell<A> {
    fn answered(self: Arc<Self>, tag: Tag, result: CallResult, now: Option<Instant>) {
        // The push of a watch is awaited once its call has settled.
        if tag.kind != CallKind::Watch {
            self.give_up_wakers.settled(tag.number);
        }
        let now = now.unwrap_or_else(|| self.cluster().now());
        let settled = self.cluster().nodes.settled(&tag, result, now);
        self.cluster.follow_group(tag.kind, now);
        self.room.put(&self, (Input::Reply(tag, settled), now));
    }

    fn is_given_up(&self, tag: &Tag, task: Option<&Waker>) -> bool {
        self.give_up_wakers.ask(tag.number, task, || {
            A::is_given_up(self, tag) || self.is_over.load(Ordering::SeqCst)
        })
    }

    fn now(&self) -> Option<Instant> {
        Some(self.cluster().now())
    }

    fn note_queued(&self, tag: &Tag, is_queued: bool, is_late: bool) {
        A::note_queued(self, tag, is_queued, is_late);
    }

    fn note_membership(&self, tag: &Tag, says: &Arc<Membership>) {
        self.cluster.nodes.groups.note(tag.node, says);
    }

    fn pushed(self: Arc<Self>, tag: &Tag) {
        self.room.put(&self, (Input::Push(*tag), self.cluster().now()));
    }
}

impl<A: Actor> Timed for Shell<A> {
    fn handle_notice(self: Arc<Self>, notice: Notice, now: Instant) {
        self.room.put(&self, (Input::Notice(notice), now));
    }

    fn open_nodes(self: Arc<Self>) -> NodeSet {
        self.look(|actor| actor.open_nodes())
    }
}
