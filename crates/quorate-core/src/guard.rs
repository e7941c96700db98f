//! What the holder has: a lease that ends at a known moment, and the means to prolong or end it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::fence::FencingToken;
use crate::algorithm::round::{Round, Step};
use crate::driver::{Flight, Operation};
use crate::error::{ExtendError, Lost, ReleaseError, Released, Votes};
use crate::handover::HandOver;
use crate::lease::{self, Lease, Run, Tenure};
use crate::observe;
use crate::register::Place;
use crate::renewal;
use crate::resource::Key;

/// A lock that is held, until [`valid_until`](Self::valid_until).
///
/// Dropping it releases it in the background, where a runtime runs; [`release`](Self::release)
/// tells how that went. Drop neither blocks nor panics. Where nothing runs any more, or the guard
/// is forgotten, the lock is free again after its ttl.
///
/// A guard is no proof. Between the last look at [`is_valid`](Self::is_valid) and a write, a pause
/// may outlast the lease; only a resource that checks a fencing token is safe from that.
#[must_use = "if unused the lock is released at once"]
pub struct LockGuard {
    tenure: Arc<Tenure>,
    place: Place,
}

impl LockGuard {
    /// Enters the lease among those that are held; `None` if the manager is closed.
    pub(crate) fn new(tenure: Arc<Tenure>) -> Option<Self> {
        let cluster = &tenure.attempt.cluster;
        let place = cluster.register().enter(&tenure)?;
        tenure.attempt.enter();
        cluster.queues().enter(&tenure);
        Some(Self { tenure, place })
    }

    pub(crate) const fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    /// The end of the lease, on the clock of the manager's runtime.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        self.tenure.valid_until()
    }

    /// Whether the lease still holds. A look at the clock: no I/O, and no task has to run for it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        if planted!("validity_is_a_flag") {
            return !self.tenure.attempt.is_over();
        }
        !self.remaining().is_zero()
    }

    /// What is left of the lease, zero if nothing. No I/O.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.tenure.remaining()
    }

    /// The keys that the nodes keep for this lock.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        self.tenure.keys()
    }

    /// The number to send along with each write, if the lock was taken
    /// [with one](crate::LockRequest::fenced): a resource that keeps the highest it has seen, and
    /// refuses lower ones, cannot be written to by a holder whose lease has run out unnoticed.
    ///
    /// It stays the same as long as the lock is held, also for whoever
    /// [adopts](crate::LockManager::adopt) it. Later holders have greater ones. No I/O.
    /// [`FenceGate`](crate::FenceGate) is the resource's side.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.tenure.attempt.fencing_token()
    }

    /// A view of the lease, for other tasks.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease::new(Arc::clone(&self.tenure))
    }

    /// Resolves when the lease is lost or given up, and says why.
    ///
    /// A lease that nobody extends is lost the margin before [`valid_until`](Self::valid_until)
    /// (see [`margin`](crate::LockManagerBuilder::margin)), whatever the nodes do: a local timer
    /// tells, not an answer. So there is time left to stop before somebody else can have the lock.
    /// Once this has resolved the lease is over: [`is_valid`](Self::is_valid) is false, and
    /// nothing can extend it; [`valid_until`](Self::valid_until) still tells when others can have the
    /// lock at the earliest, unless it was given up or is gone. Any task may hold the future; any number of them.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        lease::lost(Arc::clone(&self.tenure))
    }

    /// Runs `future` for as long as the lease lasts: drops it the moment that
    /// [`lost`](Self::lost) resolves.
    ///
    /// What blocks the thread cannot be stopped. If `future` ends after its lease, the value comes
    /// back inside the error.
    ///
    /// # Errors
    ///
    /// [`Stopped`](crate::Stopped), with the reason.
    ///
    /// # Cancel safety
    ///
    /// As `future`'s: dropping this drops it.
    pub fn run<F: Future>(&self, future: F) -> Run<F> {
        self.lease().run(future)
    }

    /// Renews the lease in a background task until it is released, dropped, lost or at its
    /// [`hold_limit`](crate::LockRequest::hold_limit).
    ///
    /// A renewal that fails is tried again until the margin before the end of the lease; then
    /// [`lost`](Self::lost) tells. The moments are drawn at random, so that many leases do not
    /// renew at once. Renewals stop before the release begins. Asking twice changes nothing.
    ///
    /// A guard that is kept alive and forgotten is held until its hold limit, or for as long as the
    /// process lives. [`with`](crate::LockManager::with) renews without a background task.
    pub fn keep_alive(&self) {
        if self.tenure.keep_alive() {
            let task = renewal::renew(Arc::clone(&self.tenure));
            self.tenure.attempt.cluster.runtime.spawn(Box::pin(task));
        }
    }

    /// Prolongs the lease to the ttl it was taken with, from now.
    ///
    /// Nodes that have lost the keys get them back, if a quorum still had them; they count from
    /// the next time on.
    ///
    /// # Errors
    ///
    /// [`ExtendError`]. After [`ExtendError::NotHeld`] the lease has ended: more nodes than a quorum
    /// can spare said that the keys are not ours. After any other error the lease stays as it was:
    /// still valid until [`valid_until`](Self::valid_until), and worth another try until then.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time. The lease is then as it was, though the nodes may
    /// keep the keys for longer. Do not keep it without polling it: other calls of this guard wait
    /// for it, node by node.
    pub async fn extend(&self) -> Result<(), ExtendError> {
        self.tenure.extend(self.tenure.attempt.claim.ttl()).await.map(drop)
    }

    /// Prolongs the lease so that it ends `ttl`, less the drift, from now; never shortens it, and
    /// never beyond its [`hold_limit`](crate::LockRequest::hold_limit).
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend), and [`ExtendError::Ttl`] for a ttl that is too short or long.
    ///
    /// # Cancel safety
    ///
    /// As [`extend`](Self::extend).
    pub async fn extend_to(&self, ttl: Duration) -> Result<(), ExtendError> {
        let ttl = self.tenure.attempt.cluster.config.parse_ttl(ttl)?;
        self.tenure.extend(ttl).await.map(drop)
    }

    /// Turns the guard into a record with which somebody else, in another process perhaps, can
    /// [`adopt`](crate::LockManager::adopt) the lock. Nothing is released, and nothing is sent.
    ///
    /// Here the lease ends at once, and renewals with it. If nobody adopts it in time, it expires.
    ///
    /// Call [`LockManager::settle`](crate::LockManager::settle) first, so that nothing of ours is under
    /// way; it tells how much still is. An operation that was under way to a node that hangs may still
    /// be carried out there after the adopter has released; it then keeps that one node for a ttl at
    /// the most. And cleanup of the adopter goes on for the ttl that the lock was taken with: where it
    /// was extended by a longer one, a node that fails all that time keeps it for the rest.
    #[must_use = "without the record the lock is kept until its ttl is over"]
    pub fn hand_over(self) -> HandOver {
        let attempt = &self.tenure.attempt;
        if !planted!("detached_and_released") {
            attempt.close();
        }
        // It is not on its way out, and this process does not hear when it is.
        attempt.cluster.queues().leave(attempt);
        self.tenure.end(Lost::HandedOver);
        let token = attempt.fencing_token().filter(|_| !planted!("record_forgets_the_token"));
        HandOver::new(attempt.claim.clone(), token)
    }

    /// Releases the lock on all nodes and says whether it had been held to the end.
    ///
    /// Returns once a quorum no longer has the lock, so that others can take it, and it is known
    /// whether it had been held; slower nodes are released in the background, and failing ones
    /// again and again until the cleanup timeout.
    ///
    /// # Errors
    ///
    /// [`ReleaseError`] if a quorum could not be reached. The lock may then be kept for others
    /// until its ttl is over.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time, even before it was polled: the release goes on in
    /// the background.
    pub async fn release(self) -> Result<Released, ReleaseError> {
        self.release_telling().await.map(|ending| ending.released)
    }

    pub(crate) async fn release_telling(self) -> Result<Ending, ReleaseError> {
        let cluster = Arc::clone(&self.tenure.attempt.cluster);
        let _releasing = cluster.background().enter();
        let start = cluster.runtime.now();
        let before = match self.tenure.attempt.is_over() {
            _ if planted!("release_of_an_expired_lease_says_held") => Ok(()),
            true => self.tenure.held_at(start),
            // Nobody has released it yet, so the nodes can tell.
            false => self.tenure.held_but_for_close(start),
        };
        let patience = cluster.config.node_timeout(self.tenure.attempt.claim.ttl());
        let mut round = Round::telling_release(cluster.count(), start, patience);
        self.tenure.end_at(start, Lost::Released);
        let mut flight = Flight::at(start, &self.tenure.attempt, &Operation::Release);
        // Whoever closes the manager waits for it to set out.
        self.tenure.tell_the_end();
        let outcome = flight.decide(&mut round).await;
        let votes = || outcome.votes(&cluster, start);
        let (tally, count) = (&outcome.tally, cluster.count());
        let gone = tally.refused() > count.spare();
        let released = match (outcome.step, before) {
            (Step::Lost(_) | Step::Wait, _) => {
                observe::not_released(&self.tenure, start, votes);
                return Err(ReleaseError::NoQuorum { votes: votes() });
            }
            // The manager released it, so the nodes cannot tell any more.
            (Step::Won { .. }, Err(Lost::Closed)) => Released::Unsure,
            (Step::Won { .. }, Err(_)) => Released::Lost,
            (Step::Won { .. }, Ok(())) if gone => Released::Lost,
            (Step::Won { .. }, Ok(())) if tally.granted() >= count.quorum() => Released::Held,
            (Step::Won { .. }, Ok(())) => Released::Unsure,
        };
        observe::released(&self.tenure, start, released);
        Ok(Ending { released, gone: gone.then(votes) })
    }
}

/// How a release went.
pub(crate) struct Ending {
    pub(crate) released: Released,
    /// What the nodes said, if so many of them no longer had the keys that no quorum can have had
    /// them.
    pub(crate) gone: Option<Votes>,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let attempt = &self.tenure.attempt;
        let cluster = &attempt.cluster;
        // Else it was released, by its holder or with all others, or handed over.
        let releasing = (!attempt.is_over()).then(|| cluster.background().enter());
        cluster.register().leave(self.place);
        if releasing.is_some() && !planted!("drop_skips_the_release") {
            self.tenure.end(Lost::Released);
            observe::dropped(&self.tenure);
            drop(Flight::new(attempt, &Operation::Release));
            self.tenure.tell_the_end();
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("keys", &self.keys())
            .field("valid_until", &self.valid_until())
            .finish_non_exhaustive()
    }
}
