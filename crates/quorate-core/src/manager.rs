//! Where locks are taken: a round after the other, until one is won or the deadline has come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::select;

use crate::algorithm::lease::{Ttl, saturating_add};
use crate::algorithm::retry::{RetryContext, RetryStrategy};
use crate::algorithm::round::{Loss, Round, Step};
use crate::backend::{Claim, LockBackend};
use crate::cluster::Cluster;
use crate::config::LockManagerBuilder;
use crate::driver::{Attempt, Flight, Operation};
use crate::error::{AdoptError, LockError, Lost, Votes, WithError};
use crate::guard::LockGuard;
use crate::handover::{self, HandOver};
use crate::lease::{Lease, Tenure};
use crate::request::{LockRequest, TryLockRequest};
use crate::resource::{IntoResources, Key, Resources, Token};
use crate::runtime::{EntropyError, Runtime};

/// Takes locks over a fixed set of nodes. Cheap to clone.
///
/// All who share a lock must be configured with the same nodes: quorums of different sets need
/// not meet.
#[derive(Clone, Debug)]
pub struct LockManager {
    cluster: Arc<Cluster>,
}

impl LockManager {
    /// Starts a configuration of `nodes`, driven by `runtime`.
    ///
    /// Nodes of different kinds go together as `Arc<dyn LockBackend>`.
    pub fn builder<B: LockBackend>(
        runtime: impl Runtime,
        nodes: impl IntoIterator<Item = B>,
    ) -> LockManagerBuilder {
        LockManagerBuilder::new(runtime, nodes)
    }

    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster: Arc::new(cluster) }
    }

    /// Locks `resources`, waiting while they are taken. Await the request that this returns.
    ///
    /// Several resources are locked together: each node grants all of them or none.
    pub fn lock(&self, resources: impl IntoResources) -> LockRequest {
        LockRequest::new(Arc::clone(&self.cluster), resources.into_resources())
    }

    /// Locks `resources` in one round, or not at all. Await the request that this returns.
    pub fn try_lock(&self, resources: impl IntoResources) -> TryLockRequest {
        TryLockRequest::new(Arc::clone(&self.cluster), resources.into_resources())
    }

    /// Runs `body` under a lock on `resources`, and gives back its value.
    ///
    /// Waits for the lock as [`lock`](Self::lock) does, renews it as long as the body runs, and
    /// releases it. All of it happens in the caller's task, in which the body is polled all the
    /// while. If the lease is lost the body is dropped, the [margin](LockManagerBuilder::margin)
    /// before the lease ends; so nothing in the body goes on while somebody else has the lock,
    /// unless it blocks the thread or was spawned. The body is given a [`Lease`] to hand to such
    /// tasks. For other settings, [`LockRequest::with`] does the same.
    ///
    /// A body that panics releases, too, before the panic goes on.
    ///
    /// # Errors
    ///
    /// [`WithError::Lock`] if the lock was not taken, [`WithError::Lost`] if it was lost. If the body
    /// had ended by itself when that came out, its value is inside.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: it drops the body, and releases in the background.
    pub fn with<R, F, T>(
        &self,
        resources: R,
        body: F,
    ) -> impl Future<Output = Result<T, WithError<T>>> + use<R, F, T>
    where
        R: IntoResources,
        F: AsyncFnOnce(Lease) -> T,
    {
        self.lock(resources).with(body)
    }

    /// Takes over a lock that was [handed over](LockGuard::hand_over).
    ///
    /// Its validity counts from now: a quorum of nodes is asked to extend it, and must still have
    /// it. Both managers need the same nodes. This manager's prefix plays no part: the record
    /// holds the keys as the nodes keep them.
    ///
    /// # Errors
    ///
    /// [`AdoptError`], after one node timeout at the latest; [`AdoptError::NotHeld`] if the lock has
    /// expired meanwhile. The record can be tried again.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. The lock is then as it was, though the nodes may
    /// keep it for longer.
    pub async fn adopt(&self, record: &HandOver) -> Result<LockGuard, AdoptError> {
        handover::adopt(&self.cluster, record).await
    }

    /// Gives up everything: stops renewals, releases what is held, lets nothing more be taken, and
    /// waits until late answers and cleanup are done, for `bound` at the most.
    ///
    /// Guards that are still about hold nothing from then on, and their
    /// [`lost`](LockGuard::lost) says [`Lost::Closed`](crate::Lost::Closed). Whoever waits for a
    /// lock gets [`LockError::Closed`].
    ///
    /// Returns how many operations are still under way after `bound`, zero if none. They go on in
    /// the background; what a program that ends before them leaves is gone after its ttl. All
    /// clones of this manager are closed.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on it is closed. The future can be dropped at any time; the background
    /// goes on.
    pub async fn close(&self, bound: Duration) -> usize {
        let (cluster, runtime) = (&self.cluster, &*self.cluster.runtime);
        let deadline = saturating_add(runtime.now(), bound);
        for tenure in cluster.register().close() {
            tenure.end(Lost::Closed);
            if !tenure.attempt.is_over() {
                drop(Flight::new(&tenure.attempt, &Operation::Release));
            }
        }
        // First what may still win a lock, and then what gives it back.
        let taking = cluster.rounds().settle(runtime, deadline).await;
        taking + cluster.background().settle(runtime, deadline).await
    }

    /// Waits until late answers and cleanup in the background are done, for `bound` at the most.
    ///
    /// Returns how many operations are still under way, zero if none. A program that ends sooner
    /// leaves what they would have released to its ttl. Nothing stops: locks can be taken as before.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time; the background goes on.
    pub async fn settle(&self, bound: Duration) -> usize {
        let runtime = &*self.cluster.runtime;
        self.cluster.background().settle(runtime, saturating_add(runtime.now(), bound)).await
    }
}

/// So that time passes between two rounds, whatever a strategy says.
const LEAST_DELAY: Duration = Duration::from_micros(100);

/// What a request asks for, checked.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) keys: Arc<[Key]>,
    pub(crate) ttl: Ttl,
    hold_limit: Option<Duration>,
}

impl Wanted {
    pub(crate) fn new(
        cluster: &Cluster,
        resources: &Resources,
        ttl: Option<Duration>,
        hold_limit: Option<Duration>,
    ) -> Result<Self, LockError> {
        let config = &cluster.config;
        let ttl = ttl.map_or(Ok(config.ttl), |ttl| config.parse_ttl(ttl))?;
        let hold_limit = hold_limit.or(config.hold_limit);
        config
            .check_hold_limit(hold_limit, ttl)
            .map_err(|(limit, least)| LockError::HoldLimit { limit, least })?;
        let keys = resources.as_slice().iter().map(|name| Key::new(&config.prefix, name)).collect();
        Ok(Self { keys, ttl, hold_limit })
    }
}

/// Rounds until one is won, the deadline has come, or the strategy or the nodes rule it out.
pub(crate) async fn lock(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    wait: Duration,
    retry: &dyn RetryStrategy,
) -> Result<LockGuard, LockError> {
    let runtime = &*cluster.runtime;
    let _taking = cluster.rounds().enter();
    let patience = cluster.config.node_timeout(wanted.ttl);
    let deadline = saturating_add(runtime.now(), wait);
    let mut defeat = match attempt(cluster, wanted, patience).await? {
        Ok(guard) => return Ok(guard),
        Err(defeat) => defeat,
    };
    let mut rounds: u32 = 0;
    loop {
        rounds = rounds.saturating_add(1);
        let context = RetryContext::new(rounds, defeat.loss, random_bits(runtime)?);
        let delay = retry.delay(&context).filter(|_| !defeat.permanent);
        let Some(delay) = delay else {
            return Err(defeat.error);
        };
        let next = saturating_add(runtime.now(), delay.max(LEAST_DELAY));
        if next >= deadline {
            return Err(defeat.error);
        }
        // Before the delay, so that others find the nodes free while we wait.
        release_undone(cluster, defeat.undo, patience.min(left(runtime, deadline))).await;
        let closing = cluster.register().closing();
        if !cluster.register().is_closed() {
            select(closing, runtime.sleep_until(next)).await;
        }
        let left = left(runtime, deadline);
        if left.is_zero() {
            return Err(defeat.error);
        }
        match attempt(cluster, wanted, patience.min(left)).await? {
            Ok(guard) => return Ok(guard),
            // A round that the deadline cut short says less than the one before it.
            Err(cut) if left < patience && cut.loss == Loss::Unreachable => {
                return Err(defeat.error);
            }
            Err(lost) => defeat = lost,
        }
    }
}

/// One round.
pub(crate) async fn try_lock(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
) -> Result<LockGuard, LockError> {
    let _taking = cluster.rounds().enter();
    let patience = cluster.config.node_timeout(wanted.ttl);
    attempt(cluster, wanted, patience).await?.map_err(|defeat| defeat.error)
}

/// A lost round. Dropping it releases on all nodes in the background.
struct Defeat {
    loss: Loss,
    permanent: bool,
    error: LockError,
    undo: Flight,
}

/// One round under a token of its own. `Err` means that there is no point in another.
async fn attempt(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    patience: Duration,
) -> Result<Result<LockGuard, Defeat>, LockError> {
    if cluster.register().is_closed() {
        return Err(LockError::Closed);
    }
    let token = Token::draw(|bytes| cluster.runtime.fill_random(bytes))?;
    let claim = Claim::new(Arc::clone(&wanted.keys), token, wanted.ttl);
    let attempt = Attempt::new(Arc::clone(cluster), claim);
    let (count, drift) = (cluster.count(), cluster.config.drift);

    let start = cluster.runtime.now();
    let mut round = Round::acquire(count, start, patience, wanted.ttl, drift);
    let mut flight = Flight::new(&attempt, &Operation::Acquire);
    let outcome = flight.decide(&mut round).await;

    if let Some((first, second)) = cluster.conflict() {
        return Err(LockError::SameServer { first, second });
    }
    let loss = match outcome.step {
        Step::Won { valid_until } => {
            let tenure = Tenure::new(attempt, start, valid_until, wanted.hold_limit);
            // The cap on the time of holding may have been reached sooner than the validity.
            if tenure.held().is_ok() {
                let guard = LockGuard::new(tenure).ok_or(LockError::Closed)?;
                flight.keep();
                return Ok(Ok(guard));
            }
            Loss::Expired
        }
        Step::Lost(loss) => loss,
        // `decide` returns no open round.
        Step::Wait => Loss::Unreachable,
    };
    let error = error(loss, outcome.votes(cluster, start));
    Ok(Err(Defeat { loss, permanent: outcome.is_permanent(), error, undo: flight }))
}

async fn release_undone(cluster: &Cluster, flight: Flight, patience: Duration) {
    let mut round = Round::release(cluster.count(), cluster.runtime.now(), patience);
    flight.undo().decide(&mut round).await;
}

const fn error(loss: Loss, votes: Votes) -> LockError {
    match loss {
        Loss::Refused => LockError::Held { votes },
        Loss::Unreachable => LockError::NoQuorum { votes },
        Loss::Expired => LockError::Expired { votes },
    }
}

fn left(runtime: &dyn Runtime, deadline: Instant) -> Duration {
    deadline.saturating_duration_since(runtime.now())
}

pub(crate) fn random_bits(runtime: &dyn Runtime) -> Result<u64, EntropyError> {
    let mut bits = [0; 8];
    runtime.fill_random(&mut bits)?;
    Ok(u64::from_ne_bytes(bits))
}
