//! An attempt: its beginning, and what each side does with it.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::end::LeaseEnd;
use super::given_up::GivenUp;
use super::identity::{Identity, Owner};
use super::looks::NotWon;
use super::state::{Effects, Input, State};
use crate::algorithm::attempt::{AttemptMachine, Settings};
use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::Ttl;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::attempts::Timed;
use crate::backend::{
    AcquireOptions, Answered, BackendError, CallResult, Capabilities, Claim, Tag,
};
use crate::cluster::Cluster;
use crate::error::{ExtendError, Lost, QuorumFailure, ReleaseError};
use crate::late::LateLock;
use crate::tickets::{LocalQueues, Releasing, Ticket};
use crate::waiting::{Awaited as _, Waiting};

/// The life of one token over all nodes. The one thing that lives as long as the token.
pub(crate) struct Attempt {
    identity: Identity,
    state: LateLock<State>,
}

/// What a first round asks for, besides the claim.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptOptions {
    pub(crate) acquire: AcquireOptions,
    /// When the first round ends at the latest, if before its node timeout.
    pub(crate) deadline: Option<Instant>,
    pub(crate) hold_limit: Option<Duration>,
    pub(crate) is_renewed: bool,
}

/// What needs no mutex.
impl Deref for Attempt {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}

impl Owner for Arc<Attempt> {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn sender(&self) -> Arc<dyn Answered> {
        Self::clone(self)
    }

    fn releasing(&self) -> Weak<dyn Releasing> {
        Self::downgrade(self) as _
    }
}

impl Attempt {
    /// Begins to acquire on all nodes. `None` once the manager is closed.
    pub(crate) fn begin(
        queues: &Arc<LocalQueues>,
        claim: Claim,
        options: AttemptOptions,
        tickets: Vec<Ticket>,
        now: Instant,
    ) -> Option<Arc<Self>> {
        let settings = settings(&queues.cluster, &claim, options);
        let machine = AttemptMachine::new(settings, now);
        Self::register(queues, claim, options, machine, tickets, now)
    }

    /// Begins to extend on all nodes what another process has detached. After a failure nothing is released.
    pub(crate) fn adopt(
        queues: &Arc<LocalQueues>,
        claim: Claim,
        token: Option<FencingToken>,
        hold_limit: Option<Duration>,
    ) -> Option<Arc<Self>> {
        let options = AttemptOptions { hold_limit, ..AttemptOptions::default() };
        let settings = settings(&queues.cluster, &claim, options);
        let now = queues.cluster.now();
        let machine = AttemptMachine::adopt(settings, token, now);
        Self::register(queues, claim, options, machine, Vec::new(), now)
    }

    /// Registers the attempt, and then sends its first calls: a call that is answered at once finds it there.
    fn register(
        queues: &Arc<LocalQueues>,
        claim: Claim,
        options: AttemptOptions,
        machine: AttemptMachine<BackendError>,
        tickets: Vec<Ticket>,
        now: Instant,
    ) -> Option<Arc<Self>> {
        let cluster = &queues.cluster;
        let node_timeout = cluster.config.node_timeout(claim.ttl());
        let attempt = cluster.attempts.register(|slot| {
            let identity = Identity {
                queues: Arc::clone(queues),
                claim,
                options: options.acquire,
                node_timeout,
                end: LeaseEnd::new(now),
                won: OnceLock::new(),
                queued: AtomicU64::new(0),
                given_up: GivenUp::default(),
                slot,
            };
            Arc::new(Self { identity, state: LateLock::new(State::new(machine, tickets)) })
        })?;
        attempt.state.with(&attempt, |state, effects| {
            if options.is_renewed {
                state.renew_from_now_on(&attempt, now);
            }
            state.follow(&attempt, now, effects);
        });
        Some(attempt)
    }

    /// Waits until `look` finds something.
    async fn wait<T>(
        self: &Arc<Self>,
        look: impl FnMut(&mut State, Instant, &mut Effects) -> Option<T> + Unpin,
    ) -> T {
        Waiting::new(&self.state, self as &dyn Owner, &*self.cluster().runtime, look).await
    }

    /// The result of the first round, once it is decided; `None` once the manager is closed. A win that has
    /// expired by the time it is taken is a loss (T2).
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. The attempt goes on: [`leave`](Self::leave) it.
    pub(crate) async fn first(self: &Arc<Self>) -> Option<Result<(), NotWon>> {
        self.wait(|state, now, effects| state.take_first(self, now, effects)).await
    }

    /// Waits until each node has answered the undo, or has failed it, for `limit` at most (C8).
    pub(crate) async fn undone(self: &Arc<Self>, limit: Duration) {
        let undone = self.wait(|state, _, _| state.is_undone().then_some(()));
        self.cluster().within(limit, undone).await;
    }

    /// The request or the guard is gone: releases in the background. Never waits (A1).
    ///
    /// A request between two rounds gives its tickets back: they are given on when its last undo allows it.
    pub(crate) fn leave(self: &Arc<Self>, tickets: Vec<Ticket>) {
        self.state.put(self, (Input::Leave(tickets), None));
    }

    /// Extends the lease to `ttl` from now, and returns its end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the round goes on.
    pub(crate) async fn extend(self: &Arc<Self>, ttl: Ttl) -> Result<Instant, ExtendError> {
        let round = self.state.with(self, |state, effects| state.extend(self, ttl, effects));
        let Some(round) = round else { return Err(self.lost().into()) };
        self.wait(|state, now, _| state.extension(self, round, now)).await
    }

    /// Renews the lease until it ends.
    pub(crate) fn renew(self: &Arc<Self>) {
        self.state.with(self, |state, effects| {
            let now = self.cluster().now();
            state.renew_from_now_on(self, now);
            state.follow(self, now, effects);
        });
    }

    /// Releases the lock on all nodes, and returns what that found.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on, the release goes on when the future is dropped.
    pub(crate) async fn release(self: &Arc<Self>) -> Result<(), ReleaseError> {
        let mut is_begun = false;
        self.wait(move |state, now, effects| {
            if !std::mem::replace(&mut is_begun, true) {
                state.release(self, now, effects);
            }
            state.released()
        })
        .await
    }

    /// What each node answered in the last round that was decided, or after it if that is the first round.
    pub(crate) fn failure(self: &Arc<Self>) -> QuorumFailure {
        self.state.with(self, |state, _| state.failure(self))
    }

    /// Sends nothing from now on: the lock may belong to another process. An error if it is lost.
    pub(crate) fn detach(self: &Arc<Self>) -> Result<(), Lost> {
        self.state.with(self, |state, effects| state.detach(self, effects))
    }

    /// Sends nothing from now on, though the lease may have ended. For an adoption that failed: the next manager
    /// that adopts the lock has the same token, and no release may take it away (H6).
    pub(crate) fn abandon(self: &Arc<Self>) {
        self.state.with(self, |state, effects| state.abandon(self, effects));
    }

    /// Why the lease has ended. For a lease that has ended.
    pub(crate) fn lost(self: &Arc<Self>) -> Lost {
        self.state.with(self, |state, effects| {
            let now = self.cluster().now();
            state.handle_due(self, now, effects);
            state.lost(self)
        })
    }

    /// Resolves when the lease has ended, by a timer of its own, and says why.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn ended(self: &Arc<Self>) -> Lost {
        self.wait(|state, now, effects| {
            self.end.check(now).is_err().then(|| {
                state.handle_due(self, now, effects);
                state.lost(self)
            })
        })
        .await
    }
}

impl Answered for Attempt {
    fn answered(self: Arc<Self>, tag: Tag, result: CallResult, now: Option<Instant>) {
        self.given_up.settled(tag.number);
        self.state.put(&self, (Input::Reply(tag, result), now));
    }

    fn poll_given_up(&self, tag: &Tag, context: &mut Context<'_>) -> Poll<()> {
        self.given_up.poll(tag.number, context)
    }

    fn now(&self) -> Option<Instant> {
        Some(self.cluster().now())
    }

    fn note_queued(&self, tag: &Tag, is_queued: bool) {
        let bit = NodeSet::from_iter([tag.node]).bits();
        match is_queued {
            true => self.queued.fetch_or(bit, Ordering::Relaxed),
            false => self.queued.fetch_and(!bit, Ordering::Relaxed),
        };
    }
}

impl Timed for Attempt {
    fn handle_due(self: Arc<Self>, now: Instant) {
        self.state.with(&self, |state, effects| {
            state.note_served();
            state.handle_due(&self, now, effects);
            // Else the timekeeper would spin.
            debug_assert!(
                state.due().is_none_or(|due| due > now),
                "a due time was served and stays"
            );
        });
    }

    fn handle_renewal(self: Arc<Self>, now: Instant) {
        self.state.put(&self, (Input::Renewal, Some(now)));
    }

    fn handle_back(self: Arc<Self>, node: NodeId, now: Instant) {
        self.state.put(&self, (Input::Back(node), Some(now)));
    }

    fn handle_close(self: Arc<Self>, grace: Duration, now: Instant) {
        self.state.put(&self, (Input::Close(grace), Some(now)));
    }

    fn open_nodes(self: Arc<Self>) -> NodeSet {
        self.state.with(&self, |state, _| state.open_nodes())
    }
}

impl Releasing for Attempt {
    fn release_failure(self: Arc<Self>) -> QuorumFailure {
        let now = self.cluster().now();
        self.state.with(&self, |state, _| state.release_failure(&self, now))
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
    settings.fencing = options.acquire.fencing.is_some();
    let is_ordered = |id: &NodeId| nodes.can(*id, Capabilities::ORDERED);
    nodes.count().ids().filter(is_ordered).fold(settings, Settings::ordered)
}
