//! Where locks are taken: a round after the other, until one is won or the deadline has come.

mod line;
mod one_round;
mod wanted;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};

use crate::algorithm::lease::saturating_add;
use crate::algorithm::retry::{RetryContext, RetryStrategy};
use crate::algorithm::round::Loss;
use crate::backend::LockBackend;
use crate::cluster::Cluster;
use crate::config::LockManagerBuilder;
use crate::driver::YIELD;
use crate::error::{AdoptError, LockError, Lost, WithError};
use crate::guard::LockGuard;
use crate::handover::{self, HandOver};
use crate::inspect::{self, InspectError, Inspection};
use crate::lease::Lease;
use crate::observe;
use crate::queue;
use crate::request::{LockRequest, TryLockRequest};
use crate::resource::{IntoResource, IntoResources};
use crate::runtime::{BoxFuture, EntropyError, Runtime};
use crate::standing::Standing;
use crate::waiting::{self, Waited};

pub(crate) use self::one_round::gates;
use self::one_round::{Defeat, Gates, attempt, release_undone};
pub(crate) use self::wanted::Wanted;

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

    /// Locks `resources`, waiting while they are taken: for 30 s, if neither the request nor the
    /// [builder](LockManagerBuilder::wait) says otherwise. Await the request that this returns.
    ///
    /// The lock ends after its ttl, of 10 s if nothing else is said, unless the guard
    /// [extends](LockGuard::extend) it or [keeps it alive](LockGuard::keep_alive).
    ///
    /// Several resources are locked together: each node grants all of them or none. Who waits for
    /// several is in line for each of them, before those of this process that come later, though only
    /// one of them may be taken.
    ///
    /// Locks are not reentrant: who locks again what it has waits for itself.
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
    /// The release is awaited for one node timeout at the most. If too few nodes answer, the value is
    /// returned all the same; the release goes on in the background, and the lock may stay until its
    /// ttl is over.
    ///
    /// # Errors
    ///
    /// [`WithError::Lock`] if the lock was not taken, [`WithError::Lost`] if it was lost. If the body
    /// had ended by itself when that came out, its value is inside; where errors are boxed,
    /// [`without_value`](WithError::without_value) leaves it out.
    ///
    /// An error of the body is its value: `with(..).await??`.
    ///
    /// # Behind an interface of your own
    ///
    /// A boxed closure, or a parameter whose type is `FnOnce(Lease) -> Fu`, is no `AsyncFnOnce` to the
    /// compiler. Call it in one:
    ///
    /// ```
    /// use quorate_core::{Lease, LockManager, WithError};
    ///
    /// fn guarded<F, Fu, T>(
    ///     manager: LockManager,
    ///     name: String,
    ///     work: F,
    /// ) -> impl Future<Output = Result<T, WithError<T>>> + Send
    /// where
    ///     F: FnOnce(Lease) -> Fu + Send + 'static, // Box<dyn FnOnce(Lease) -> BoxFuture<…> + Send>, too
    ///     Fu: Future<Output = T> + Send + 'static,
    ///     T: Send + 'static,
    /// {
    ///     async move { manager.with(name, async move |lease: Lease| work(lease).await).await }
    /// }
    /// # use quorate_core::runtime::BoxFuture;
    /// # fn boxed(
    /// #     manager: LockManager,
    /// #     work: Box<dyn FnOnce(Lease) -> BoxFuture<'static, u32> + Send>,
    /// # ) -> BoxFuture<'static, Result<u32, WithError<u32>>> {
    /// #     Box::pin(guarded(manager, "orders:42".to_owned(), work))
    /// # }
    /// ```
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
    /// expired meanwhile. The record can be tried again, but after `NotHeld` only over other nodes:
    /// single nodes that still have the keys keep them for another ttl each time. They are not given
    /// back, since somebody may have adopted the lock over nodes that this manager does not know.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. The lock is then as it was, though the nodes may
    /// keep it for longer.
    pub async fn adopt(&self, record: &HandOver) -> Result<LockGuard, AdoptError> {
        let adopting = handover::adopt(&self.cluster, record);
        observe::adopting(&self.cluster, record.keys(), adopting).await
    }

    /// Gives up everything: stops renewals, releases what is held, lets nothing more be taken, and
    /// waits until late answers and cleanup are done, for `bound` at the most.
    ///
    /// Guards that are still about hold nothing from then on, and their
    /// [`lost`](LockGuard::lost) says [`Lost::Closed`](crate::Lost::Closed). Whoever waits for a
    /// lock gets [`LockError::Closed`].
    ///
    /// Each lock is released when its guard is gone. If that takes longer than the
    /// [margin](LockManagerBuilder::margin), or half of `bound`, it is released then: so much time
    /// has the work under it to stop before somebody else can have the lock, or what is left of the
    /// lease if that is less.
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
        let now = runtime.now();
        let deadline = saturating_add(now, bound);
        for tenure in cluster.register().close() {
            tenure.end(Lost::Closed);
            // A guard that is still about after an earlier close has nothing left to give back.
            if tenure.attempt.is_over() {
                continue;
            }
            let margin = cluster.config.margin(tenure.attempt.claim.ttl());
            let (until, running) =
                (saturating_add(now, margin.min(bound / 2)), cluster.background().enter());
            runtime.spawn(Box::pin(async move {
                tenure.abandoned_by(until).await;
                drop(running);
            }));
        }
        if planted!("close_does_not_wait") {
            return 0;
        }
        // First what may still win a lock, and then what gives it back.
        let taking = cluster.rounds().settle(runtime, deadline).await;
        taking + cluster.background().settle(runtime, deadline).await
    }

    /// Looks at who has `resource` locked, and for how long still, without taking it.
    ///
    /// All nodes are asked at once, and each is listened to for one node timeout: what goes wrong
    /// on a node is in its [view](Inspection::iter), and no error. A lock over several resources is
    /// looked at name by name.
    ///
    /// What is seen may have changed by the time it is read, so it is for people, for metrics and
    /// for guessing how long to wait. Whether a lock can be had, only [`try_lock`](Self::try_lock)
    /// tells; whether one's own still holds, [`is_valid`](LockGuard::is_valid) does, with no I/O.
    ///
    /// ```
    /// use quorate_core::{InspectError, LockManager, LockState};
    ///
    /// async fn tell(manager: &LockManager) -> Result<(), InspectError> {
    ///     let seen = manager.inspect("orders:42").await?;
    ///     match (seen.state(), seen.time_left()) {
    ///         (LockState::Held, Some(left)) => println!("free in {left:.1?}, if not extended"),
    ///         (LockState::Held, None) => println!("locked by another program, for good"),
    ///         (LockState::Free, _) => println!("free"),
    ///         _ => println!("{seen}"), // what each node said
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InspectError`] if the name is none that could be locked.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: it only reads, and leaves nothing behind.
    pub async fn inspect(&self, resource: impl IntoResource) -> Result<Inspection, InspectError> {
        let resource = resource.into_resource()?;
        Ok(inspect::inspect(&self.cluster, &resource).await)
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

/// Rounds until one is won, the deadline has come, or the strategy or the nodes rule it out.
pub(crate) async fn lock(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
    wait: Duration,
    retry: &dyn RetryStrategy,
) -> Result<LockGuard, LockError> {
    let runtime = &*cluster.runtime;
    let _taking = cluster.rounds().enter();
    let node_timeout = cluster.config.node_timeout(wanted.ttl);
    let start = runtime.now();
    let wait = if planted!("timeout_bounds_each_round_alone") { 3 * wait } else { wait };
    let deadline = saturating_add(start, wait);
    // The first round may take its time, unless that was spent in the line.
    let mut patience = node_timeout;
    let mut defeat: Option<(Loss, Duration, LockError)> = None;
    let (mut standing, mut gates) = (Standing::default(), Gates::None);
    let mut turn = match queue::turn_at_once(cluster, &wanted.keys, start, (wait, patience)) {
        Some(turn) => turn,
        None => {
            // The first round may take one node timeout, even if the wait is shorter.
            let latest = deadline.max(saturating_add(start, node_timeout));
            let line = line::wait(cluster, wanted, (deadline, latest), &mut standing, &mut gates);
            match apart(line).await? {
                line::Place::First(turn) => turn,
                line::Place::Behind(turn, why) => {
                    patience = left(runtime, latest);
                    if patience.is_zero() {
                        return Err(why.unwrap_or_else(LockError::held_here));
                    }
                    defeat = why.map(|why| (Loss::Unreachable, Duration::ZERO, why));
                    turn
                }
                line::Place::OutOfTurn(guard) => return Ok(guard),
            }
        }
    };
    let mut rounds: u32 = 0;
    loop {
        let whole = patience >= node_timeout;
        let round = attempt(cluster, wanted, patience.min(node_timeout), &gates).await?;
        let lost = match round {
            Ok(guard) => {
                let refused = defeat.filter(|(loss, ..)| *loss == Loss::Refused);
                let took = refused.map_or(Duration::ZERO, |(_, took, _)| took);
                standing.won(&guard.tenure().attempt, YIELD.max(3 * took));
                return Ok(guard);
            }
            Err(lost) => lost,
        };
        if lost.loss == Loss::Refused && turn.has_followed() {
            // The release in front may have come later after all, and then there is nobody else.
            let Defeat { error, undo, .. } = lost;
            let gone = async {
                release_undone(cluster, undo, node_timeout.min(left(runtime, deadline))).await;
                turn.followed_is_gone().await;
            };
            let gone = apart(before(cluster, deadline, gone)).await?;
            patience = left(runtime, deadline);
            if gone.is_none() || patience.is_zero() {
                return Err(error);
            }
            // Of nobody elsewhere it tells.
            defeat = Some((Loss::Unreachable, Duration::ZERO, error));
            continue;
        }
        // A round that the deadline cut short says less than the one before it.
        if let (false, Loss::Unreachable, Some((_, _, error))) = (whole, lost.loss, &defeat)
            && !lost.has_failed(cluster)
            && !planted!("last_round_names_the_error")
        {
            return Err(error.clone());
        }
        turn.tells(&lost.error);
        rounds = rounds.saturating_add(1);
        let random = random_bits(runtime)?;
        let delay = retry.delay(&RetryContext::new(rounds, lost.loss, random));
        let permanent = lost.permanent && !planted!("permanent_errors_are_retried");
        let Some(delay) = delay.filter(|_| !permanent) else {
            return Err(lost.error);
        };
        let delay = delay.max(LEAST_DELAY);
        let next = saturating_add(runtime.now(), delay);
        let watches = lost.loss == Loss::Refused && waiting::can_watch(cluster, &lost.votes);
        if next >= deadline && !watches {
            return Err(lost.error);
        }
        let Defeat { loss, error, votes, took, undo, .. } = lost;
        let rest = async {
            if planted!("undo_after_the_retry_delay") {
                waiting::sleep(cluster, next, deadline).await;
            }
            // First, so that others find the nodes free while we wait.
            release_undone(cluster, undo, node_timeout.min(left(runtime, deadline))).await;
            if watches {
                standing.refused();
                waiting::wait(cluster, wanted, &votes, &mut standing, next, random, deadline).await
            } else {
                waiting::sleep(cluster, next, deadline).await
            }
        };
        let waited = apart(before(cluster, deadline, rest)).await?.unwrap_or(Waited::TooLong);
        patience = left(runtime, deadline);
        if waited == Waited::TooLong || patience.is_zero() {
            return Err(error);
        }
        gates = match (waited, &gates) {
            (Waited::Woken(_), _) if standing.is_alone() => Gates::None,
            (Waited::Woken(free), _) => Gates::Of(free),
            // Who was sent away at a gate, and not woken since, asks all: the gate may be wrong.
            (_, Gates::None) if loss == Loss::Refused => Gates::All,
            _ => Gates::None,
        };
        defeat = Some((loss, took, error));
    }
}

/// What a lock that is free has no need of, kept out of its future, which would be twice as large.
fn apart<'a, F: Future + Send + 'a>(future: F) -> BoxFuture<'a, F::Output> {
    Box::pin(future)
}

/// `future`, if it ends before the deadline and before the manager is closed.
async fn before<F: Future>(
    cluster: &Cluster,
    deadline: Instant,
    future: F,
) -> Result<Option<F::Output>, LockError> {
    let closing = cluster.register().closing();
    if cluster.register().is_closed() {
        return Err(LockError::Closed);
    }
    let over = select(closing, cluster.runtime.sleep_until(deadline));
    match select(pin!(future), over).await {
        Either::Left((output, _)) => Ok(Some(output)),
        Either::Right((Either::Left(_), _)) => Err(LockError::Closed),
        Either::Right((Either::Right(_), _)) => Ok(None),
    }
}

/// One round.
pub(crate) async fn try_lock(
    cluster: &Arc<Cluster>,
    wanted: &Wanted,
) -> Result<LockGuard, LockError> {
    let _taking = cluster.rounds().enter();
    let patience = cluster.config.node_timeout(wanted.ttl);
    attempt(cluster, wanted, patience, &Gates::None).await?.map_err(|defeat| defeat.error)
}

fn left(runtime: &dyn Runtime, deadline: Instant) -> Duration {
    deadline.saturating_duration_since(runtime.now())
}

pub(crate) fn random_bits(runtime: &dyn Runtime) -> Result<u64, EntropyError> {
    let mut bits = [0; 8];
    runtime.fill_random(&mut bits)?;
    Ok(u64::from_ne_bytes(bits))
}
