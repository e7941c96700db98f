//! What each side does with an attempt: a request, the holder of the lease, the timekeeper.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{Attempt, Effects, Input, PublishedEnd, State, Why};
use crate::algorithm::attempt::{AttemptMachine, Loss, NodeSet, RoundId, Settings};
use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::Ttl;
use crate::algorithm::quorum::NodeId;
use crate::cluster::Cluster;
use crate::cluster::attempts::{Due, Timed};
use crate::cluster::shell::late::{Actor as _, LateLock};
use crate::cluster::shell::waiting::Waiting;
use crate::error::{ExtendError, LeaseEnd, QuorumFailure, ReleaseError};
use crate::resource::Key;
use crate::seam::backend::{AcquireOptions, Capabilities, Claim};
use crate::seam::given_up::Givers;
use crate::turns::tickets::{Inner, Turn};

/// What a first round asks for, besides the claim.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptOptions {
    pub(crate) acquire: AcquireOptions,
    /// When the first round ends at the latest, if before its node timeout.
    pub(crate) deadline: Option<Instant>,
    pub(crate) hold_limit: Option<Duration>,
    /// If the request waits for no holder: see [`Settings::haste`].
    pub(crate) haste: Option<Duration>,
}

/// A first round that was lost.
pub(crate) struct NotWon {
    pub(crate) loss: Loss,
    pub(crate) failure: QuorumFailure,
    /// For a request that goes on.
    pub(crate) turn: Turn,
}

/// The request.
impl Attempt {
    /// Begins to acquire on all nodes. `None` once the manager is drained or closed.
    pub(crate) fn begin(
        manager: &Arc<Inner>,
        claim: Claim,
        options: AttemptOptions,
        turn: Turn,
        now: Instant,
    ) -> Option<Arc<Self>> {
        let machine = AttemptMachine::new(settings(&manager.cluster, &claim, options), now);
        Self::register(manager, claim, options, State::new(machine, turn), now)
    }

    /// Begins to extend on all nodes what another process has detached. After a failure nothing is released.
    pub(crate) fn adopt(
        manager: &Arc<Inner>,
        claim: Claim,
        token: Option<FencingToken>,
        hold_limit: Option<Duration>,
    ) -> Option<Arc<Self>> {
        let options = AttemptOptions { hold_limit, ..AttemptOptions::default() };
        let (settings, now) = (settings(&manager.cluster, &claim, options), manager.cluster.now());
        let machine = AttemptMachine::adopt(settings, token, now);
        Self::register(manager, claim, options, State::new(machine, Turn::default()), now)
    }

    /// Registers the attempt, and then sends its first calls: a call that is answered at once finds it there.
    fn register(
        manager: &Arc<Inner>,
        claim: Claim,
        options: AttemptOptions,
        state: State,
        now: Instant,
    ) -> Option<Arc<Self>> {
        let node_timeout = state.machine.settings().node_timeout;
        let attempt = manager.cluster.attempts.register(|slot| {
            Arc::new(Self {
                manager: Arc::clone(manager),
                claim,
                acquire: options.acquire,
                node_timeout,
                end: PublishedEnd::new(now),
                won: OnceLock::new(),
                queued: AtomicU64::new(0),
                left_late: AtomicU64::new(0),
                given_up: AtomicU64::new(0),
                is_over: AtomicBool::new(false),
                givers: Givers::default(),
                slot,
                state: LateLock::new(state),
            })
        })?;
        attempt.state.with(&attempt, |state, effects| {
            state.follow(&attempt, now, effects);
        });
        Some(attempt)
    }

    /// The result of the first round, once it is decided; `None` once the manager is closed. A win that has
    /// expired by the time it is taken is a loss (T2): [`leave`](Self::leave) or [`abandon`](Self::abandon) it.
    /// With `is_renewed` renewal begins then, and not before: nobody may ever take it.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. The attempt goes on: leave it, or abandon it.
    pub(crate) async fn first(self: &Arc<Self>, is_renewed: bool) -> Option<Result<(), NotWon>> {
        self.wait(|state, effects| {
            if state.is_closed {
                return Some(None);
            }
            let (first, now) = (state.first?, effects.now(self));
            let loss = match first {
                Ok(()) if self.end.check(now).is_ok() => {
                    state.is_taken = true;
                    if is_renewed {
                        state.handle(self, (Input::Renew, Some(now)), effects);
                    }
                    return Some(Some(Ok(())));
                }
                // It has expired before the caller heard of it (T2).
                Ok(()) => Loss::Expired,
                Err(loss) => loss,
            };
            let (failure, turn) = (state.failure(self), std::mem::take(&mut state.turn));
            Some(Some(Err(NotWon { loss, failure, turn })))
        })
        .await
    }

    /// Waits until each node has answered the undo, or has failed it, for `limit` at most (C8).
    pub(crate) async fn undone(self: &Arc<Self>, limit: Duration) {
        let is_undone = |state: &mut State| state.is_undone || state.machine.is_quiescent();
        let undone = self.wait(|state, _| is_undone(state).then_some(()));
        self.cluster().within(limit, undone).await;
    }

    /// The request or the guard is gone: releases in the background. Never waits (A1).
    pub(crate) fn leave(self: &Arc<Self>) {
        self.leave_with(Turn::default());
    }

    /// The same for a request between two rounds. Its last attempt gives the turn on when the undo allows it.
    pub(crate) fn leave_with(self: &Arc<Self>, turn: Turn) {
        self.state.put(self, (Input::Leave(turn), None));
    }

    /// What each node answered in the last round that was decided, or after it if that is the first round.
    pub(crate) fn failure(self: &Arc<Self>) -> QuorumFailure {
        self.state.with(self, |state, _| state.failure(self))
    }

    /// Waits until `look` finds something.
    pub(super) async fn wait<T>(
        self: &Arc<Self>,
        look: impl FnMut(&mut State, &mut Effects) -> Option<T> + Unpin,
    ) -> T {
        Waiting::new(&self.state, self, &*self.cluster().runtime, look).await
    }
}

/// The holder of the lease.
impl Attempt {
    /// Extends the lease to `ttl` from now, and returns its end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the round goes on.
    pub(crate) async fn extend(self: &Arc<Self>, ttl: Ttl) -> Result<Instant, ExtendError> {
        let round = self.state.with(self, |state, effects| {
            let now = effects.now(self);
            let is_held = self.end.check(now).is_ok();
            let round = is_held.then(|| state.machine.extend(ttl, now)).flatten();
            state.follow(self, now, effects);
            round
        });
        let Some(round) = round else { return Err(self.lost().into()) };
        self.wait(|state, effects| state.extension(self, round, effects.now(self))).await
    }

    /// Renews the lease until it ends.
    pub(crate) fn renew(self: &Arc<Self>) {
        self.handle(Input::Renew);
    }

    /// Releases the lock on all nodes. Returns whether a quorum still had it.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on, the release goes on when the future is dropped.
    pub(crate) async fn release(self: &Arc<Self>) -> Result<(), ReleaseError> {
        let mut is_begun = false;
        self.wait(move |state, effects| {
            if !std::mem::replace(&mut is_begun, true) {
                state.handle(self, (Input::Release, None), effects);
            }
            state.released.clone()
        })
        .await
    }

    /// Sends nothing from now on: the lock may belong to another process. An error if it is lost.
    pub(crate) fn detach(self: &Arc<Self>) -> Result<(), LeaseEnd> {
        self.handle(Input::Detach);
        let is_ours = matches!(self.end.ended(), Some((Why::Detached, _)));
        if is_ours { Ok(()) } else { Err(self.lost()) }
    }

    /// Sends nothing from now on, though the lease may have ended. For an adoption that failed: the next manager
    /// that adopts the lock has the same token, and no release may take it away (H6).
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.handle(Input::Abandon);
    }

    /// Why the lease has ended. For a lease that has ended.
    pub(crate) fn lost(self: &Arc<Self>) -> LeaseEnd {
        self.handle(Input::Due(Due::Time));
        self.state.with(self, |state, _| state.lost(self))
    }

    /// Resolves when the lease has ended, by a timer of its own, and says why.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn ended(self: &Arc<Self>) -> LeaseEnd {
        self.wait(|state, effects| {
            self.end.check(effects.now(self)).is_err().then(|| state.ended(self, effects))
        })
        .await
    }

    /// Waits for the lock, and handles a wish of the holder.
    fn handle(self: &Arc<Self>, input: Input) {
        self.state.with(self, |state, effects| state.handle(self, (input, None), effects));
    }
}

impl State {
    fn extension(
        &self,
        attempt: &Attempt,
        round: RoundId,
        now: Instant,
    ) -> Option<Result<Instant, ExtendError>> {
        // What is over stays over, however the round ended.
        let Ok(valid_until) = attempt.end.check(now) else {
            return Some(Err(self.lost(attempt).into()));
        };
        if self.extended.is_some_and(|extended| extended >= round) {
            return Some(Ok(valid_until));
        }
        let (_, failure) = &**self.failed.as_ref().filter(|failed| failed.0 >= round)?;
        Some(Err(ExtendError::NoQuorum(failure.clone())))
    }

    /// Hears of the end of the lease, if it has not before. Returns why.
    pub(super) fn ended(&mut self, attempt: &Arc<Attempt>, effects: &mut Effects) -> LeaseEnd {
        self.handle(attempt, (Input::Due(Due::Time), None), effects);
        self.lost(attempt)
    }

    /// Why the lease has ended.
    pub(super) fn lost(&self, attempt: &Attempt) -> LeaseEnd {
        let why = attempt.end.ended().map_or(Why::Expired, |(why, _)| why);
        match &self.lost {
            Some(lost) => LeaseEnd::clone(lost),
            // No node said anything about it.
            None => why.lost(attempt.claim.keys(), QuorumFailure::default),
        }
    }
}

impl Timed for Attempt {
    fn handle_due(self: Arc<Self>, due: Due, now: Instant) {
        self.state.put(&self, (Input::Due(due), Some(now)));
    }

    fn open_nodes(self: Arc<Self>) -> NodeSet {
        self.state.with(&self, |state, _| state.machine.open_nodes())
    }

    fn release_failure(self: Arc<Self>, key: &Key) -> Option<QuorumFailure> {
        if !self.claim.keys().contains(key) {
            return None;
        }
        let now = self.cluster().now();
        let (votes, waited) = self.state.with(&self, |state, _| state.machine.release_votes(now));
        Some(self.cluster().nodes.failure(&votes, &[], waited))
    }
}

fn settings(cluster: &Cluster, claim: &Claim, options: AttemptOptions) -> Settings {
    let (config, nodes) = (&cluster.config, &cluster.nodes);
    let ttl = claim.ttl();
    let mut settings = Settings::new(nodes.count(), ttl, config.node_timeout(ttl));
    settings.drift = config.drift;
    settings.safety_margin = config.safety_margin;
    settings.cleanup_bound = config.cleanup_bound;
    settings.deadline = options.deadline;
    settings.hold_limit = options.hold_limit;
    settings.haste = options.haste;
    settings.fencing = options.acquire.fencing.is_some();
    let is_ordered = |id: &NodeId| nodes.can(*id, Capabilities::ORDERED);
    nodes.count().ids().filter(is_ordered).fold(settings, Settings::ordered)
}
