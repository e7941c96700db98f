//! The life of one token. Whatever happens to it is handled where it happens, by the thread on
//! which it happens.
//!
//! `cluster::shell` says how: it has the lock, the wakers and the effects, and this folder the
//! actor behind the lock. The machine remembers what is decided; what has changed in an input is
//! told, and the end of the lease is published.
//!
//! So there is no future for a call and no task for an attempt. A caller that goes away leaves
//! nothing that must be polled. A late reply is handled like any other. After the end of the
//! attempt it changes nothing.
//!
//! `callers` is what each side does with an attempt, `calls` the way of a call to its node and
//! back, `apply` what follows from an input, `renewing` a lease that is extended in the background,
//! `end` the end of a lease, and `lease` what its holder sees of it.

mod apply;
mod callers;
mod calls;
mod end;
pub(crate) mod lease;
mod renewing;

use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::algorithm::attempt::{Action, AttemptMachine, End, NodeSet, Results};
use crate::algorithm::fence::FencingToken;
use crate::algorithm::group::Membership;
use crate::algorithm::lease::earlier;
use crate::cluster::Cluster;
use crate::cluster::attempts::{Notice, Slot, Timed};
use crate::cluster::shell::{self, Actor, Input, Shell};
use crate::error::QuorumFailure;
use crate::resource::Label;
use crate::seam::backend::{AcquireOptions, BackendError, CallKind, Claim, Holder, Tag};
use crate::seam::runtime::lock;
use crate::telemetry;
use crate::turns::ManagerState;
use crate::turns::tickets::{Ticket, Turn};

pub(crate) use self::callers::{NotWon, settings};
pub(crate) use self::end::PublishedEnd;

/// What is decided about a token.
pub(crate) type Machine = AttemptMachine<BackendError, Option<Holder>>;

/// One token over all nodes, from its first acquire to its last release.
pub(crate) type Attempt = Shell<State>;

/// What of an attempt can be read without its lock.
pub(crate) struct Unlocked {
    pub(crate) manager: Arc<ManagerState>,
    pub(crate) claim: Claim,
    /// How the claim is acquired.
    acquire: AcquireOptions,
    node_timeout: Duration,
    pub(crate) end: PublishedEnd,
    /// When the first round was won, or the release of a detached lock began; the fencing token.
    won: OnceLock<(Instant, Option<FencingToken>)>,
    noted: Mutex<Noted>,
}

/// What is noted of the calls of an attempt beside its state, since backends note and ask it. No
/// other mutex is taken under its own.
#[derive(Clone, Copy, Default)]
struct Noted {
    /// The nodes whose release waits in a queue of this process.
    queued: NodeSet,
    /// Those whose release has left such a queue late.
    left_late: NodeSet,
    /// Those whose call in front of the release was given up.
    given_up: NodeSet,
}

/// The machine of an attempt, which remembers what it has decided, and what its shell adds to that.
pub(crate) struct State {
    machine: Machine,
    /// The results that have been told.
    told: Results,
    /// The request has heard of the first round and has the lock, or it or the guard is gone.
    is_answered: bool,
    is_closed: bool,
    /// The label of the process that revoked the lock; in the box, since hardly any is.
    revoked: Option<Box<Option<Label>>>,
    /// The lease is extended in the background, again and again.
    is_renewed: bool,
    /// When to extend next. An extension that is open plans that when it is decided.
    renew_at: Option<Instant>,
    /// What each node of a group said of it with its latest vote (N3). Empty without a group.
    voted: Vec<Option<Arc<Membership>>>,
    turn: Turn,
    /// The lease is counted as held by telemetry.
    is_counted: bool,
    /// When the last of the caller's results was there: what follows is background work.
    background_since: Option<Instant>,
}

/// How its own side ends an attempt. (To extend and to renew have results at once: `Shell::act`.)
pub(crate) enum Command {
    Release,
    /// The request or the guard is gone. A request that had taken the turn back returns it.
    Leave(Turn),
    /// Nothing is sent from now on: the lock may belong to another process.
    Detach,
    /// The same, though the lease may have ended.
    Abandon,
}

/// What is done after the lock is free.
type Effects = shell::Effects<State>;

impl Attempt {
    /// The attempts of a manager whose leases are held now.
    pub(crate) fn all_held(cluster: &Cluster) -> impl Iterator<Item = Arc<Self>> {
        let now = cluster.now();
        let attempts = cluster.attempts.open().into_iter().filter_map(Self::of);
        attempts.filter(move |attempt| attempt.is_held(now))
    }

    /// What each node has answered to the releases of the attempt at `slot`, if it is not over.
    pub(crate) fn release_failure(cluster: &Cluster, slot: Slot) -> Option<QuorumFailure> {
        let attempt = Self::of(cluster.attempts.get(slot)?)?;
        let (votes, waited) = attempt.look(|state| state.machine.release_votes(cluster.now()));
        Some(cluster.nodes.failure(&votes, waited))
    }

    fn of(entry: Arc<dyn Timed>) -> Option<Arc<Self>> {
        let entry: Arc<dyn Any + Send + Sync> = entry;
        entry.downcast().ok()
    }

    /// The fencing token of a lock that was won.
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.won.get().and_then(|(_, token)| *token)
    }

    /// How long the lock was held until `now`.
    pub(crate) fn held(&self, now: Instant) -> Duration {
        self.won.get().map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }

    /// Whether the lock was won, and the lease has not ended. Does not wait for the attempt.
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.won.get().is_some() && self.end.check(now).is_ok()
    }

    /// Ends the lease, if it is held.
    fn end_lease(&self, why: End, now: Instant) {
        if self.is_held(now) {
            self.end.end(why, now);
        }
    }
}

impl Actor for State {
    type Unlocked = Unlocked;
    type Command = Command;
    type HandedOver = Vec<Ticket>;

    fn handle(
        &mut self,
        attempt: &Arc<Attempt>,
        input: Input<Command>,
        now: Instant,
        effects: &mut Effects,
    ) {
        self.is_answered |= matches!(input, Input::Command(_));
        effects.is_changed |=
            matches!(input, Input::Command(_) | Input::Notice(Notice::Close(_) | Notice::Drain));
        match input {
            Input::Reply(tag, settled) => self.handle_reply(attempt, &tag, settled, now, effects),
            Input::Push(tag) => self.machine.handle_push(tag.node, now),
            Input::Notice(Notice::Time) => self.handle_time(attempt, now),
            Input::Notice(Notice::Back(node)) => self.machine.handle_back(node, now),
            Input::Notice(Notice::Judge) => self.judge(attempt, now),
            Input::Notice(Notice::Drain) if attempt.is_held(now) => {}
            Input::Notice(notice @ (Notice::Drain | Notice::Close(_))) => {
                let grace = if let Notice::Close(grace) = notice { grace } else { Duration::ZERO };
                self.is_closed = true;
                self.machine.close(grace, now);
            }
            Input::Command(Command::Release) => {
                attempt.end_lease(End::Released, now);
                self.machine.release(now);
            }
            Input::Command(Command::Leave(turn)) => {
                self.turn.take_back(turn);
                self.background_since.get_or_insert(now);
                attempt.end_lease(End::Released, now);
                self.machine.cancel(now);
            }
            Input::Command(Command::Detach) => {
                if attempt.end.is_revoked() {
                    // No process could adopt it.
                    return attempt.end_lease(End::Revoked, now);
                }
                attempt.end_lease(End::Detached, now);
                self.machine.detach(now);
                if matches!(attempt.end.ended(), Some((End::Detached, _))) {
                    self.turn.end(&mut effects.handed_over);
                }
            }
            Input::Command(Command::Abandon) => {
                attempt.end.end(End::Detached, now);
                self.machine.abandon(now);
                // If its round is not decided yet.
                self.machine.cancel(now);
            }
        }
    }

    fn apply(&mut self, attempt: &Arc<Attempt>, now: Instant, effects: &mut Effects) {
        // A look may have found the end before the machine has heard of it.
        let is_held = attempt.won.get().is_some() && !self.machine.has_ended();
        if is_held && attempt.end.ended().is_some() {
            self.machine.close(Duration::MAX, now);
        }
        // Before a release leaves, nobody takes the lease for valid any more.
        let mut has_moved_back = self.publish_end(attempt, now);
        while let Some((node, action)) = self.machine.poll_send() {
            match action {
                Action::Send(id, message) => {
                    has_moved_back |= self.begin_call(attempt, id, message, now, effects);
                }
                Action::GiveUp(_) => self.give_up(attempt, node, now, effects),
            }
        }
        let before = std::mem::replace(&mut self.told, self.machine.results());
        if before != self.told {
            effects.is_changed = true;
            self.tell(attempt, &before, now, effects);
        }
        if has_moved_back {
            // Tasks that wait have timers for the end that was later.
            effects.is_changed = true;
            self.plan_renewal(attempt, true, now);
        }
        if self.machine.has_ended() || attempt.end.is_revoked() {
            (self.is_renewed, self.renew_at) = (false, None);
        }
        if telemetry::IS_ON {
            let is_held = attempt.won.get().is_some() && attempt.end.ended().is_none();
            if std::mem::replace(&mut self.is_counted, is_held) != is_held {
                effects.tell(move |_| telemetry::held(is_held));
            }
        }
        self.hand_turn_over(attempt, now, effects);
        for node in self.machine.awaits_back().iter() {
            attempt.cluster().nodes.health(node).await_back(attempt.slot);
        }
        if self.machine.is_quiescent() && attempt.note_over(effects) {
            self.cleaned_up(attempt, now, effects);
        }
    }

    fn due(&self) -> Option<Instant> {
        earlier(earlier(self.machine.next_timeout(), self.renew_at), self.turn.due())
    }

    fn open_nodes(&self) -> NodeSet {
        self.machine.open_nodes()
    }

    fn is_given_up(unlocked: &Unlocked, tag: &Tag) -> bool {
        tag.kind != CallKind::Release && lock(&unlocked.noted).given_up.contains(tag.node)
    }

    fn note_queued(unlocked: &Unlocked, tag: &Tag, is_queued: bool, is_late: bool) {
        if tag.kind == CallKind::Release {
            let mut noted = lock(&unlocked.noted);
            noted.queued.set(tag.node, is_queued);
            noted.left_late.set(tag.node, is_late);
        }
    }
}
