//! The life of one token. Whatever happens to it is handled where it happens, by the thread on which it happens.
//!
//! A reply, a due time and a wish of the caller are one kind of thing, an [`Input`]. Each is handled by one function:
//!
//! 1. lock the attempt's state (a reply never waits for it: if it is locked, the reply goes into a list);
//! 2. the pure machine handles the input, with one reading of the clock;
//! 3. the calls that it asks for *begin*, under the lock, which fixes their order at each node;
//! 4. what it decides is kept beside it, and the end of the lease is published;
//! 5. unlock, and perform the [`Effects`]: tickets are given on, tasks are woken, events are emitted.
//!
//! So there is no future for a call and no task for an attempt. A caller that goes away leaves nothing that must be
//! polled. A late reply is handled like any other. After the end of the attempt it changes nothing.
//!
//! `sides` is what each side does with an attempt, `calls` the way of a call to its node and back, `follow` what
//! follows from an input, `keep` the end of a lease whose lock stays on the nodes, `risk` whether an extension failed.

mod calls;
mod end;
mod follow;
mod keep;
pub(crate) mod lease;
mod risk;
mod sides;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::algorithm::attempt::{AttemptMachine, Loss, Outcome, RoundId};
use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::{Ttl, earlier};
use crate::algorithm::quorum::NodeId;
use crate::cluster::Cluster;
use crate::cluster::attempts::{Due, Slot, Wake};
use crate::cluster::shell::late::{Actor, LateLock};
use crate::cluster::shell::waiting::Awaited;
use crate::cluster::shell::wakers::Wakers;
use crate::error::{ExtendError, LeaseEnd, QuorumFailure, ReleaseError};
use crate::seam::backend::{AcquireOptions, BackendError, CallResult, Claim, Holder, Tag};
use crate::seam::given_up::Givers;
use crate::telemetry;
use crate::turns::tickets::{GivenOn, Inner, Turn};

pub(crate) use self::end::{PublishedEnd, Why};
pub(crate) use self::sides::{AttemptOptions, NotWon};

/// One token over all nodes, from its first acquire to its last release.
///
/// What stands here beside the state can be read without its lock.
pub(crate) struct Attempt {
    pub(crate) manager: Arc<Inner>,
    pub(crate) claim: Claim,
    /// How the claim is acquired.
    acquire: AcquireOptions,
    node_timeout: Duration,
    pub(crate) end: PublishedEnd,
    /// When the first round was won, and the fencing token.
    won: OnceLock<(Instant, Option<FencingToken>)>,
    /// The nodes whose release waits in a queue of this process, and those whose release has left it late, as bits.
    queued: AtomicU64,
    left_late: AtomicU64,
    /// The nodes whose call in front of the release was given up, as bits.
    given_up: AtomicU64,
    /// Nothing is left to await, and all calls are given up.
    is_over: AtomicBool,
    givers: Givers,
    slot: Slot,
    state: LateLock<State>,
}

/// The machine of an attempt, and what its decisions leave behind for its callers.
pub(crate) struct State {
    machine: AttemptMachine<BackendError>,
    /// The first round, once it is decided.
    first: Option<Result<(), Loss>>,
    /// The request has heard of the first round, and has the lock.
    is_taken: bool,
    /// What nodes have answered to a first round after it was lost.
    late: Vec<(NodeId, Outcome<BackendError>)>,
    /// The holders that refused the first round.
    holders: Vec<(NodeId, Holder)>,
    /// The latest extension that was won, and the latest that failed.
    extended: Option<RoundId>,
    failed: Option<Box<(RoundId, QuorumFailure)>>,
    lost: Option<Box<LeaseEnd>>,
    released: Option<Result<(), ReleaseError>>,
    /// The extension with which the lock is left on the nodes, and how that ended.
    keeping: Option<RoundId>,
    kept: Option<Result<(), ExtendError>>,
    /// After a lost round: each node has answered the undo, or has failed it.
    is_undone: bool,
    /// Without a caller of `release`: a quorum of nodes owes no release.
    is_cleared: bool,
    /// The request or the guard is gone, or has no result to come.
    is_left: bool,
    is_closed: bool,
    renewal: Option<Renewing>,
    turn: Turn,
    wakers: Wakers,
    /// The lease is counted as held by telemetry.
    is_counted: bool,
    /// When the last of the caller's results was there: what follows is background work.
    background_since: Option<Instant>,
    /// What the timekeeper knows.
    served: Option<Instant>,
}

/// A lease that is extended in the background, again and again.
#[derive(Default)]
struct Renewing {
    /// When to extend next; `None` while a round is in flight, or waits for others.
    at: Option<Instant>,
    round: Option<RoundId>,
    /// It was due, and has to wait for others.
    is_parked: bool,
    /// It has waited for others until the last third of the lease, and no extension has succeeded since.
    is_late: bool,
}

/// What happens to an attempt. (An extension has a result at once: `Attempt::extend`.)
pub(crate) enum Input {
    Reply(Tag, CallResult),
    Due(Due),
    Renew,
    Release,
    /// The lease ends, and the lock stays on the nodes for this ttl.
    Keep(Ttl),
    /// The request or the guard is gone. A request that had taken the turn back returns it.
    Leave(Turn),
    /// Nothing is sent from now on: the lock may belong to another process.
    Detach,
    /// The same, though the lease may have ended.
    Abandon,
}

/// What is done after the lock is free.
#[derive(Default)]
pub(crate) struct Effects {
    /// The reading of the clock, for inputs and callers that bring none: one for all under one lock.
    now: Option<Instant>,
    given_on: GivenOn,
    wakers: Wakers,
    wake: Wake,
    events: Vec<Event>,
    is_over: bool,
}

/// An event for telemetry, emitted when the lock is free: a subscriber may ask for the lease, or block.
type Event = Box<dyn FnOnce(&Attempt) + Send>;

impl Effects {
    fn now(&mut self, attempt: &Attempt) -> Instant {
        *self.now.get_or_insert_with(|| attempt.cluster().now())
    }

    /// Emits an event, where telemetry is on.
    fn tell(&mut self, event: impl FnOnce(&Attempt) + Send + 'static) {
        if telemetry::IS_ON {
            self.events.push(Box::new(event));
        }
    }
}

impl Attempt {
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.manager.cluster
    }

    /// The fencing token of a lock that was won.
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.won.get().and_then(|(_, token)| *token)
    }

    /// How long the lock was held until `now`.
    pub(crate) fn held(&self, now: Instant) -> Duration {
        self.won.get().map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }

    /// The attempts of a manager whose leases are held now.
    pub(crate) fn all_held(cluster: &Cluster) -> impl Iterator<Item = Arc<Self>> {
        let now = cluster.now();
        let attempts = cluster.attempts.open().into_iter().filter_map(|entry| {
            let entry: Arc<dyn Any + Send + Sync> = entry;
            entry.downcast::<Self>().ok()
        });
        attempts.filter(move |attempt| attempt.is_held(now))
    }

    /// Whether the lock was won, and the lease has not ended. Takes no mutex.
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.won.get().is_some() && self.end.check(now).is_ok()
    }

    /// Ends the lease, if it is held.
    fn end_lease(&self, why: Why, now: Instant) {
        if self.is_held(now) {
            self.end.end(why, now);
        }
    }
}

impl Actor for State {
    type Input = (Input, Option<Instant>);
    type Effects = Effects;
    type Owner = Arc<Attempt>;

    fn handle(
        &mut self,
        attempt: &Arc<Attempt>,
        (input, now): (Input, Option<Instant>),
        effects: &mut Effects,
    ) {
        let now = now.unwrap_or_else(|| effects.now(attempt));
        let is_time = matches!(input, Input::Due(Due::Time));
        if matches!(
            input,
            Input::Release | Input::Keep(_) | Input::Leave(_) | Input::Detach | Input::Abandon
        ) {
            // The lease ends here.
            self.wakers.move_into(&mut effects.wakers);
        }
        match input {
            Input::Reply(tag, result) => self.handle_reply(attempt, &tag, result, now, effects),
            Input::Due(Due::Time) => self.handle_time(attempt, now, effects),
            Input::Due(Due::Renewal) => self.renew(attempt, now, effects),
            Input::Due(Due::Back(node)) => self.machine.handle_back(node, now),
            Input::Due(Due::Drain) if attempt.is_held(now) => {}
            Input::Due(due @ (Due::Drain | Due::Close(_))) => {
                let grace = if let Due::Close(grace) = due { grace } else { Duration::ZERO };
                self.is_closed = true;
                // A lock that is kept is no lease any more.
                if self.keeping.is_none() {
                    self.machine.close(grace, now);
                }
                self.wakers.move_into(&mut effects.wakers);
            }
            Input::Renew => {
                if self.renewal.is_none() && !self.machine.has_ended() {
                    self.renewal = Some(Renewing::default());
                    self.plan_renewal(attempt, true, now);
                }
            }
            Input::Release => {
                self.is_left = true;
                attempt.end_lease(Why::Released, now);
                self.machine.release(now);
            }
            Input::Keep(ttl) => self.keep(attempt, ttl, now),
            Input::Leave(turn) => {
                self.turn.take_back(turn);
                self.leave(attempt, now);
            }
            Input::Detach => {
                self.is_left = true;
                attempt.end_lease(Why::Detached, now);
                self.machine.detach(now);
                if matches!(attempt.end.ended(), Some((Why::Detached, _))) {
                    self.turn.end(&mut effects.given_on);
                }
            }
            Input::Abandon => {
                self.is_left = true;
                attempt.end.end(Why::Detached, now);
                self.machine.abandon(now);
                // If its round is not decided yet.
                self.machine.cancel(now);
            }
        }
        self.follow(attempt, now, effects);
        // Else the timekeeper would spin.
        debug_assert!(
            !is_time || self.due().is_none_or(|due| due > now),
            "a due time was served and stays"
        );
    }

    fn perform(attempt: &Arc<Attempt>, effects: Effects) {
        effects.given_on.perform();
        let attempts = &attempt.cluster().attempts;
        attempts.wake(effects.wake);
        effects.wakers.wake();
        for event in effects.events {
            event(attempt);
        }
        if effects.is_over {
            attempts.remove(attempt.slot);
        }
    }
}

impl Awaited for State {
    fn time(now: Instant) -> Self::Input {
        (Input::Due(Due::Time), Some(now))
    }

    fn wakers(&mut self) -> &mut Wakers {
        &mut self.wakers
    }

    fn due(&self) -> Option<Instant> {
        let renewal = self.renewal.as_ref().and_then(|renewal| renewal.at);
        earlier(earlier(self.machine.next_timeout(), renewal), self.turn.due())
    }
}
