//! One attempt: sends what the [pure machine](crate::algorithm::attempt) asks for, and feeds it the
//! replies and the time.
//!
//! The machine lives in one mutex, together with the answers of its open round and with its decisions. A
//! [`Driver`] drives it. It holds the mutex for one turn: the replies that are there, the time, the first
//! poll of each call, the decisions; never across an await. The future of a caller has a driver. So has the
//! background task that goes on when the caller has its decision, or was dropped, while something is still
//! in flight. A lock that is held has none between two operations.
//!
//! | a caller | asks the machine | and waits for |
//! |---|---|---|
//! | [`Attempt::acquire`] | `new` | *won*, or *not won* |
//! | [`Attempt::extend`] | `extend` | the decision of its round |
//! | [`Attempt::begin_release`] | `release` | [`released`](Attempt::released) |
//! | a dropped guard | `release`, through the local queue | nothing |
//! | a dropped acquire, a win that is not kept | `cancel` | nothing |

mod driver;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_listener::{Event, EventListener};

pub(crate) use self::driver::Driver;
use self::state::State;
use crate::algorithm::attempt::{Attempt as Machine, Loss, Operation, Settings};
use crate::algorithm::fence::{FenceHint, FencingToken};
use crate::algorithm::lease::Ttl;
use crate::algorithm::quorum::NodeId;
use crate::backend::{AcquireOptions, Capabilities, Claim};
use crate::cluster::Cluster;
use crate::error::{ExtendError, Lost, QuorumFailure, ReleaseError};

/// The life of one token: its machine, and what its callers wait for.
pub(crate) struct Attempt {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) claim: Claim,
    options: AttemptOptions,
    state: Mutex<State>,
    /// Notified when something that a waiter looks at may have changed.
    changed: Event,
}

/// A first round that was lost. After an acquire, its undo was sent and goes on in the background.
pub(crate) struct NotWon {
    pub(crate) loss: Loss,
    pub(crate) failure: QuorumFailure,
    /// From the start of the round to its decision.
    pub(crate) took: Duration,
}

/// What an attempt asks for besides the keys and the ttl.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptOptions {
    pub(crate) fencing: Option<FenceHint>,
    /// The node that says whether other processes wait.
    pub(crate) gate: Option<NodeId>,
    /// Whether our own entry may be in the wait queue. The gate is then not asked with the acquire: it would
    /// count that entry.
    pub(crate) has_entry: bool,
    /// When the first round ends at the latest, if before its node timeout.
    pub(crate) deadline: Option<Instant>,
}

impl Attempt {
    /// Begins to acquire on all nodes. [`won`](Self::won) sends it.
    pub(crate) fn acquire(
        cluster: &Arc<Cluster>,
        claim: Claim,
        options: AttemptOptions,
    ) -> Arc<Self> {
        let now = cluster.now();
        let machine = Machine::new(settings(cluster, &claim, options), now);
        Self::begin(cluster, claim, options, machine, now)
    }

    /// Begins to extend on all nodes what another process has detached. After a failure, nothing is
    /// released. [`won`](Self::won) sends it.
    pub(crate) fn adopt(
        cluster: &Arc<Cluster>,
        claim: Claim,
        token: Option<FencingToken>,
    ) -> Arc<Self> {
        let (now, options) = (cluster.now(), AttemptOptions::default());
        let machine = Machine::adopt(settings(cluster, &claim, options), token, now);
        Self::begin(cluster, claim, options, machine, now)
    }

    fn begin(
        cluster: &Arc<Cluster>,
        claim: Claim,
        options: AttemptOptions,
        machine: Machine,
        now: Instant,
    ) -> Arc<Self> {
        let node_timeout = cluster.config.node_timeout(claim.ttl());
        Arc::new(Self {
            state: Mutex::new(State::new(cluster, machine, node_timeout, now)),
            cluster: Arc::clone(cluster),
            claim,
            options,
            changed: Event::new(),
        })
    }

    /// Drives the first round, and returns how long it took, once it is won or lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases in the background; after `adopt`, it leaves the lock as it was.
    pub(crate) async fn won(self: &Arc<Self>) -> Result<Duration, NotWon> {
        let mut caller = CancelOnDrop(Some(self));
        let (result, took) = Driver::new(self).run(State::first_result).await;
        caller.0 = None;
        result.map(|()| took).map_err(|(loss, failure)| NotWon { loss, failure, took })
    }

    /// Waits until each node has answered the undo, or has failed it, for `limit` at most.
    ///
    /// For the error that the caller gets: a program that ends right after it leaves nothing (C8).
    pub(crate) async fn undone(self: &Arc<Self>, limit: Duration) {
        let mut driver = Driver::new(self);
        self.cluster
            .within(limit, driver.run(|state, _| state.machine.has_answered_undo().then_some(())))
            .await;
    }

    /// Extends the lease to `ttl` from now, and returns its end.
    ///
    /// `afresh` starts a round of its own; otherwise the caller joins one that is open.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the round goes on.
    pub(crate) async fn extend(
        self: &Arc<Self>,
        ttl: Ttl,
        afresh: bool,
    ) -> Result<Instant, ExtendError> {
        let now = self.cluster.now();
        let round = self.input(now, |machine| machine.extend(ttl, afresh, now));
        let mut driver = Driver::new(self);
        let Some(round) = round else { return Err(self.lost(now).into()) };
        driver.run(|state, now| state.extension(round, now)).await
    }

    /// Begins the release on all nodes. The driver that is returned sends it.
    ///
    /// # Cancel safety
    ///
    /// When the driver is dropped, the release goes on in the background.
    pub(crate) fn begin_release(self: &Arc<Self>) -> Driver {
        let now = self.cluster.now();
        self.lock().begin_release(now);
        self.input(now, |machine| machine.release(now));
        Driver::new(self)
    }

    /// What the release found, once it is decided.
    pub(crate) async fn released(driver: &mut Driver) -> Result<(), ReleaseError> {
        driver.run(|state, _| state.released.clone()).await
    }

    /// Releases in the background: for a dropped acquire, a win that is not kept, and a guard that is in no
    /// local queue (C5).
    pub(crate) fn cancel(self: &Arc<Self>) {
        let now = self.cluster.now();
        // The caller of a release that has begun waits for its decision.
        self.input(now, |machine| {
            if !machine.has_ended() {
                machine.cancel(now)
            }
        });
        drop(Driver::new(self));
    }

    /// Sends nothing from now on: the lock may belong to another process. An error if it is lost.
    pub(crate) fn detach(self: &Arc<Self>) -> Result<(), Lost> {
        let now = self.cluster.now();
        self.lease_end(now)?;
        self.input(now, |machine| machine.detach(now));
        drop(Driver::new(self));
        Ok(())
    }

    /// Sends nothing from now on, though the lease may have ended. For an adoption that failed: the next
    /// manager that adopts the lock has the same token, and no release may take it away (H6).
    pub(crate) fn part(self: &Arc<Self>) {
        let now = self.cluster.now();
        if !planted!("failed_adopt_stays_a_holder") {
            self.input(now, |machine| machine.abandon(now));
        }
        drop(Driver::new(self));
    }

    /// The end of the lease, by the clock, whether or not a task has run (H4).
    pub(crate) fn lease_end(&self, now: Instant) -> Result<Instant, Lost> {
        self.lock().lease_end(now)
    }

    /// The end of the lease as it was last set, whether or not it has ended before.
    pub(crate) fn last_end(&self) -> Instant {
        self.lock().valid_until
    }

    /// The fencing token while the lease is held.
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.lock().token
    }

    /// The node that says whether other processes wait.
    pub(crate) const fn gate(&self) -> Option<NodeId> {
        self.options.gate
    }

    /// What the release found, once that is decided.
    pub(crate) fn release_result(&self) -> Option<Result<(), ReleaseError>> {
        self.lock().released.clone()
    }

    /// The gate's latest answer whether other processes wait, and when it came; `None` if that is unknown.
    pub(crate) fn waiters(&self) -> Option<(bool, Instant)> {
        self.lock().waiters
    }

    /// What each node answered in the latest round.
    pub(crate) fn failure(&self) -> QuorumFailure {
        let now = self.cluster.now();
        self.lock().failure(now)
    }

    /// Resolves at the next change; look again then.
    pub(crate) fn changed(&self) -> EventListener {
        self.changed.listen()
    }

    pub(crate) fn notify(&self) {
        self.changed.notify(usize::MAX);
    }

    fn lost(&self, now: Instant) -> Lost {
        let nothing_left = |_| Lost::Expired { last: QuorumFailure::default() };
        self.lease_end(now).map_or_else(|lost| lost, nothing_left)
    }

    /// Gives the machine one input. Its sends are left for the next poll of a driver.
    fn input<T>(&self, now: Instant, input: impl FnOnce(&mut Machine) -> T) -> T {
        let mut state = self.lock();
        let result = input(&mut state.machine);
        state.follow(now);
        drop(state);
        self.notify();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call_options(&self, node: NodeId, operation: Operation) -> AcquireOptions {
        let AttemptOptions { fencing, gate, has_entry, deadline: _ } = self.options;
        let guard = self.cluster.config.restart_guard;
        let is_acquire = matches!(operation, Operation::Acquire { .. });
        let waiters = gate == Some(node) && !(is_acquire && has_entry);
        AcquireOptions { fencing, guard, waiters }
    }

    /// Whether the lease has ended, or was never won.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().machine.has_ended()
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
    settings.fencing = options.fencing.is_some();
    let is_ordered = |id: &NodeId| nodes.can(*id, Capabilities::ORDERED);
    nodes.count().ids().filter(is_ordered).fold(settings, Settings::ordered)
}

/// Cancels the first round when the future of its caller is dropped before the decision.
struct CancelOnDrop<'a>(Option<&'a Arc<Attempt>>);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(attempt) = self.0 {
            attempt.cancel();
        }
    }
}
