//! What each side does with an attempt: a request, and the holder of the lease.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::{Attempt, Command, Machine, PublishedEnd, State, Unlocked};
use crate::algorithm::attempt::{End, Loss, NodeSet, Released, RoundId, Settings};
use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::{Ttl, saturating_add};
use crate::cluster::Cluster;
use crate::cluster::attempts::Notice;
use crate::cluster::shell::Input;
use crate::error::{ExtendError, LeaseEnd, QuorumFailure, ReleaseError};
use crate::seam::backend::{AcquireOptions, Capabilities, Claim, Mode};
use crate::turns::ManagerState;
use crate::turns::tickets::Turn;

/// For how long beyond the ttl of the lock a mark that was not set is released.
const CLEANUP: Duration = Duration::from_secs(60);

/// The first pause between two looks at the nodes that lack a mark. Each is twice as long as the
/// one before.
const LOOK: Duration = Duration::from_millis(1);

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
        manager: &Arc<ManagerState>,
        claim: Claim,
        (settings, acquire): (Settings, AcquireOptions),
        turn: Turn,
        now: Instant,
    ) -> Option<Arc<Self>> {
        let machine = Machine::new(settings, now);
        Self::register(manager, claim, acquire, State::new(machine, turn), now)
    }

    /// Begins what is done with a lock that another process has detached: its keys are extended on
    /// all nodes, or released. `None` once the manager is closed.
    pub(crate) fn of_record(
        manager: &Arc<ManagerState>,
        claim: Claim,
        token: Option<FencingToken>,
        begin: fn(Settings, Option<FencingToken>, Instant) -> Machine,
    ) -> Option<Arc<Self>> {
        let (mut settings, now) = (settings(&manager.cluster, &claim), manager.cluster.now());
        settings.hold_limit = manager.cluster.config.hold_limit;
        let state = State::new(begin(settings, token, now), Turn::default());
        Self::register(manager, claim, AcquireOptions::default(), state, now)
    }

    fn register(
        manager: &Arc<ManagerState>,
        claim: Claim,
        acquire: AcquireOptions,
        state: State,
        now: Instant,
    ) -> Option<Arc<Self>> {
        let unlocked = Unlocked {
            manager: Arc::clone(manager),
            claim,
            acquire,
            node_timeout: state.machine.settings().node_timeout,
            end: PublishedEnd::new(now),
            won: OnceLock::new(),
            noted: Mutex::default(),
        };
        if state.machine.has_ended() {
            // Its holder had it until now.
            unlocked.end.end(End::Released, now);
            let _ = unlocked.won.set((now, None));
        }
        Self::open(&manager.cluster, unlocked, state, now)
    }

    /// The result of the first round, once it is decided; `None` once the manager is closed. A win
    /// that has expired by the time it is taken is a loss (T2): [`leave`](Self::leave) or
    /// [`abandon`](Self::abandon) it.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. The attempt goes on: leave it, or abandon it.
    pub(crate) async fn first(self: &Arc<Self>) -> Option<Result<(), NotWon>> {
        self.wait(|state| {
            if state.is_closed {
                return Some(None);
            }
            let loss = match state.told.first? {
                Ok(()) if self.end.check(self.cluster().now()).is_ok() => {
                    state.is_answered = true;
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
        let is_undone = |state: &State| state.told.is_undone || state.machine.is_quiescent();
        let undone = self.wait(|state| is_undone(state).then_some(()));
        self.cluster().within(limit, undone).await;
    }

    /// The request or the guard is gone: releases in the background. Never waits (A1).
    pub(crate) fn leave(self: &Arc<Self>) {
        self.leave_with(Turn::default());
    }

    /// The same for a request between two rounds. Its last attempt hands the turn over when the
    /// undo allows it.
    pub(crate) fn leave_with(self: &Arc<Self>, turn: Turn) {
        self.input(Command::Leave(turn));
    }

    /// Resolves when these nodes have answered the acquire of a reader that asks whether a writer
    /// waits.
    pub(crate) async fn heard(self: &Arc<Self>, gates: NodeSet) {
        self.wait(|state| state.turn.has_heard(gates).then_some(())).await;
    }

    /// What each node answered to the first round, and after it if it was lost.
    pub(crate) fn answers(self: &Arc<Self>) -> QuorumFailure {
        self.look(|state| state.failure(self))
    }
}

/// The holder of the lease.
impl Attempt {
    /// Extends the lease to `ttl` from now.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the round goes on.
    pub(crate) async fn extend(self: &Arc<Self>, ttl: Ttl) -> Result<(), ExtendError> {
        let now = self.cluster().now();
        let round = self.act(now, |state| {
            self.end.check(now).is_ok().then(|| state.machine.extend(ttl, now)).flatten()
        });
        let Some(round) = round else { return Err(self.lost().into()) };
        self.wait(|state| state.extension(self, round, self.cluster().now())).await
    }

    /// Extends the lease to `ttl` on each node that answers within a node timeout. Returns the
    /// others.
    ///
    /// It is for a mark: if that is not set, it is released for a minute longer than the plain ttl,
    /// not for days.
    ///
    /// # Cancel safety
    ///
    /// As [`extend`](Self::extend).
    pub(crate) async fn extend_on_all(self: &Arc<Self>, ttl: Ttl) -> Result<NodeSet, ExtendError> {
        let (cluster, start) = (self.cluster(), self.cluster().now());
        let until = saturating_add(start, self.node_timeout);
        let end = self.look(|state| {
            state.machine.limit_cleanup(self.claim.ttl().as_duration().saturating_add(CLEANUP));
            state.machine.settings().promise(start, ttl)
        });
        self.extend(ttl).await?;
        let mut pause = LOOK;
        loop {
            let (lacking, in_flight) =
                self.look(|state| (state.machine.lacking(end), state.machine.unsettled()));
            let now = cluster.now();
            let has_ended = self.end.check(now).is_err();
            if lacking.is_empty() || now >= until || has_ended {
                // What fewer than a quorum of nodes have is no mark.
                return match lacking.len() > cluster.nodes.count.spare() && !has_ended {
                    true => Err(ExtendError::NoQuorum(self.look(|state| state.failure(self)))),
                    false => Ok(lacking),
                };
            }
            // A node that failed, or had lost the keys and was given them again, is asked once
            // more.
            if lacking.iter().any(|node| !in_flight.contains(node)) {
                let _ = self.extend(ttl).await;
            }
            cluster.sleep(pause.min(until.saturating_duration_since(now))).await;
            pause *= 2;
        }
    }

    /// Renews the lease until it ends.
    pub(crate) fn renew(self: &Arc<Self>) {
        let now = self.cluster().now();
        self.act(now, |state| state.begin_renewal(self, now));
    }

    /// Releases the lock on all nodes. Returns whether a quorum still had it.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on, the release goes on when the future is dropped.
    pub(crate) async fn release(self: &Arc<Self>) -> Result<(), ReleaseError> {
        self.handle(Input::Command(Command::Release));
        self.released().await
    }

    /// The decision about the release, which has begun.
    pub(crate) async fn released(self: &Arc<Self>) -> Result<(), ReleaseError> {
        let released = self.wait(|state| match state.told.released? {
            Released::Ours => Some(Ok(())),
            Released::LostBefore => Some(Err(ReleaseError::Lost(match state.told.lost {
                Some(_) => state.lost(self),
                None => LeaseEnd::NotHeld(state.failure(self)),
            }))),
            Released::Unconfirmed => Some(Err(ReleaseError::Unconfirmed(state.failure(self)))),
        });
        released.await
    }

    /// Sends nothing from now on: the lock may belong to another process. An error if it is lost.
    pub(crate) fn detach(self: &Arc<Self>) -> Result<(), LeaseEnd> {
        self.handle(Input::Command(Command::Detach));
        let is_ours = matches!(self.end.ended(), Some((End::Detached, _)));
        if is_ours { Ok(()) } else { Err(self.lost()) }
    }

    /// Sends nothing from now on, though the lease may have ended. For an adoption that failed: the
    /// next manager that adopts the lock has the same token, and no release may take it away (H6).
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.handle(Input::Command(Command::Abandon));
    }

    /// Why the lease has ended. For a lease that has ended.
    pub(crate) fn lost(self: &Arc<Self>) -> LeaseEnd {
        self.handle(Input::Notice(Notice::Time));
        self.look(|state| state.lost(self))
    }
}

impl State {
    fn extension(
        &self,
        attempt: &Attempt,
        round: RoundId,
        now: Instant,
    ) -> Option<Result<(), ExtendError>> {
        // What is over stays over, however the round ended.
        let is_over = attempt.end.check(now).is_err();
        if !is_over && self.told.extended >= round {
            return Some(Ok(()));
        }
        if is_over || attempt.end.is_revoked() {
            return Some(Err(self.lost(attempt).into()));
        }
        let is_failed = self.told.failed.is_some_and(|(failed, _)| failed >= round);
        is_failed.then(|| Err(ExtendError::NoQuorum(self.failure(attempt))))
    }

    /// The place of the first key for which a writer waits, as the nodes have said to a reader.
    pub(crate) fn writer(&self) -> Option<usize> {
        self.turn.waited_for()
    }
}

/// The settings of an attempt for a claim on these nodes, without the settings of its request.
pub(crate) fn settings(cluster: &Cluster, claim: &Claim) -> Settings {
    let (config, nodes) = (&cluster.config, &cluster.nodes);
    let ttl = claim.ttl();
    let mut settings = Settings::new(nodes.count, ttl, config.node_timeout(ttl));
    settings.drift = config.drift;
    settings.safety_margin = config.safety_margin;
    settings.ordered = nodes.built_for(Capabilities::ORDERED);
    (settings.connecting, settings.connect_limit) = nodes.connecting();
    // A key of readers changes with each of them.
    if claim.mode() == Mode::Exclusive {
        settings.pushing = nodes.built_for(Capabilities::ORDERED | Capabilities::PUSH);
    }
    settings
}
