//! A lease: until when it holds, how it is prolonged, and who is told when it ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use event_listener::Event;
use futures_util::future::select;
use pin_project::pin_project;

use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::{Ttl, saturating_add};
use crate::algorithm::renewal::Renewal;
use crate::algorithm::round::{Loss, Round, Step};
use crate::driver::{Attempt, Flight, Operation};
use crate::error::{ExtendError, Lost, Stopped, Votes};
use crate::observe;
use crate::resource::Key;
use crate::runtime::BoxFuture;

/// A view of a lease, for any task that works under it. Cheap to clone.
///
/// It tells until when the lease holds and when it is lost. It neither prolongs nor releases it:
/// that is the [`LockGuard`](crate::LockGuard)'s, or the business of
/// [`with`](crate::LockManager::with).
#[derive(Clone)]
pub struct Lease {
    tenure: Arc<Tenure>,
}

impl Lease {
    pub(crate) const fn new(tenure: Arc<Tenure>) -> Self {
        Self { tenure }
    }

    /// The end of the lease, on the clock of the manager's runtime.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        self.tenure.valid_until()
    }

    /// Whether the lease still holds. A look at the clock: no I/O, and no task has to run for it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
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

    /// The lock's fencing token, if one was asked for. See
    /// [`LockGuard::fencing_token`](crate::LockGuard::fencing_token).
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.tenure.attempt.fencing_token()
    }

    /// Resolves when the lease is lost or given up. See [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        lost(Arc::clone(&self.tenure))
    }

    /// Runs `future` for as long as the lease lasts. See [`LockGuard::run`](crate::LockGuard::run).
    ///
    /// # Cancel safety
    ///
    /// As `future`'s: dropping this drops it.
    pub fn run<F: Future>(&self, future: F) -> Run<F> {
        Run {
            future: Some(future),
            lost: Box::pin(lost(Arc::clone(&self.tenure))),
            tenure: Arc::clone(&self.tenure),
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("keys", &self.keys())
            .field("valid_until", &self.valid_until())
            .finish_non_exhaustive()
    }
}

/// A future that ends with its lease. Made by [`LockGuard::run`](crate::LockGuard::run).
///
/// # Cancel safety
///
/// As that of the future inside: dropping this drops it. The lease stays as it was.
#[pin_project]
#[must_use = "futures do nothing unless polled"]
pub struct Run<F> {
    /// `None` once it has ended or was stopped.
    #[pin]
    future: Option<F>,
    lost: BoxFuture<'static, Lost>,
    tenure: Arc<Tenure>,
}

impl<F: Future> Future for Run<F> {
    type Output = Result<F::Output, Stopped<F::Output>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            // Polled after its end, which has no answer.
            return Poll::Pending;
        };
        if let Poll::Ready(reason) = this.lost.as_mut().poll(context)
            && !planted!("body_goes_on_after_the_loss")
        {
            this.future.set(None);
            return Poll::Ready(Err(Stopped { reason, value: None }));
        }
        let value = ready!(future.poll(context));
        this.future.set(None);
        Poll::Ready(match this.tenure.held() {
            Ok(()) => Ok(value),
            Err(reason) => Err(Stopped { reason, value: Some(value) }),
        })
    }
}

impl<F> fmt::Debug for Run<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("keys", &self.tenure.keys()).finish_non_exhaustive()
    }
}

/// The state of a lease, shared by its guard, its views, and the task that renews it.
pub(crate) struct Tenure {
    pub(crate) attempt: Arc<Attempt>,
    /// The cap on the time that it is held.
    hold_until: Option<Instant>,
    term: Mutex<Term>,
    /// Made by the first who waits for the end.
    ended: OnceLock<Event>,
    kept_alive: AtomicBool,
    pub(crate) holding: observe::Holding,
}

struct Term {
    /// Only grows until the end, and never beyond the cap.
    valid_until: Instant,
    /// What that was when the lease ended.
    would_end: Option<Instant>,
    end: Option<Lost>,
    /// What the nodes said in the last extension, if that failed.
    trouble: Option<Votes>,
}

impl Tenure {
    /// A lease that counts from `start` and was won for as long as `valid_until`.
    pub(crate) fn new(
        attempt: Arc<Attempt>,
        start: Instant,
        valid_until: Instant,
        hold_limit: Option<Duration>,
    ) -> Arc<Self> {
        let hold_limit = hold_limit.filter(|_| !planted!("hold_limit_is_ignored"));
        let hold_until = hold_limit.map(|limit| saturating_add(start, limit));
        let valid_until = hold_until.map_or(valid_until, |cap| valid_until.min(cap));
        Arc::new(Self {
            holding: observe::Holding::begin(&attempt),
            attempt,
            hold_until,
            term: Mutex::new(Term { valid_until, would_end: None, end: None, trouble: None }),
            ended: OnceLock::new(),
            kept_alive: AtomicBool::new(false),
        })
    }

    pub(crate) fn keys(&self) -> &[Key] {
        self.attempt.claim.keys()
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.term().valid_until
    }

    pub(crate) fn remaining(&self) -> Duration {
        let term = self.term();
        match &term.end {
            // As far as a clock may be set back by those who keep it right.
            None if planted!("validity_by_a_clock_that_is_set") => {
                let back = self.attempt.claim.ttl().as_duration() / 10;
                (term.valid_until + back).saturating_duration_since(self.now())
            }
            None => term.valid_until.saturating_duration_since(self.now()),
            Some(_) if planted!("valid_after_it_was_lost") => {
                term.valid_until.saturating_duration_since(self.now())
            }
            Some(_) => Duration::ZERO,
        }
    }

    /// What the lease came to, if it is over.
    pub(crate) fn held(&self) -> Result<(), Lost> {
        self.held_at(self.now())
    }

    pub(crate) fn held_at(&self, now: Instant) -> Result<(), Lost> {
        let term = self.term();
        match &term.end {
            Some(lost) => Err(lost.clone()),
            None if now < term.valid_until => Ok(()),
            None => Err(self.run_out(&term)),
        }
    }

    /// The same, as if the manager had not been closed: for what the nodes can still tell.
    pub(crate) fn held_but_for_close(&self, now: Instant) -> Result<(), Lost> {
        let held = self.held_at(now);
        let term = self.term();
        match (held, term.would_end) {
            (Err(Lost::Closed), Some(end)) if now < end => Ok(()),
            (Err(Lost::Closed), _) => Err(self.run_out(&term)),
            (held, _) => held,
        }
    }

    /// What the lease came to, once nobody may rely on it any longer; else when to look again.
    ///
    /// Whoever is told here is told for good: from then on the lease is not valid, and no extension
    /// brings it back.
    pub(crate) fn notice(&self) -> Result<Instant, Lost> {
        let mut term = self.term();
        if let Some(lost) = &term.end {
            return Err(lost.clone());
        }
        let (now, notice) = (self.now(), self.renewal().notice(term.valid_until));
        if now < notice {
            return Ok(notice);
        }
        let lost = self.run_out(&term);
        term.end(lost.clone(), now);
        drop(term);
        observe::ended(self, &lost);
        self.tell_the_end();
        Err(lost)
    }

    /// Ends the lease, if it has not ended before.
    pub(crate) fn end(&self, lost: Lost) {
        self.end_at(self.now(), lost);
    }

    pub(crate) fn end_at(&self, now: Instant, lost: Lost) {
        observe::ended(self, &lost);
        self.term().end(lost, now);
        self.tell_the_end();
    }

    /// After its end: waits for its holder to give it up, and does so itself at `deadline`.
    pub(crate) async fn abandoned_by(&self, deadline: Instant) {
        loop {
            // Its holder tells once more.
            let again = self.ended.get_or_init(Event::new).listen();
            if self.attempt.is_over() {
                return;
            }
            if self.now() >= deadline {
                if planted!("close_forgets_the_leases") {
                    return;
                }
                return drop(Flight::new(&self.attempt, &Operation::Release));
            }
            select(again, self.attempt.cluster.runtime.sleep_until(deadline)).await;
        }
    }

    /// After the end was set under the lock, under which those who wait look for it.
    pub(crate) fn tell_the_end(&self) {
        if let Some(ended) = self.ended.get() {
            ended.notify(usize::MAX);
        }
    }

    /// Waits for the end, until `deadline` at the most.
    pub(crate) async fn ended_by(&self, deadline: Instant) {
        let ended = self.ended.get_or_init(Event::new).listen();
        if self.term().end.is_none() {
            select(ended, self.attempt.cluster.runtime.sleep_until(deadline)).await;
        }
    }

    /// When to renew. Not before the end, if that is capped.
    pub(crate) fn renew_at(&self, random: u64) -> Instant {
        let valid_until = self.valid_until();
        if self.is_capped(valid_until) {
            return valid_until;
        }
        self.renewal().next(valid_until, random)
    }

    /// When to try to renew again.
    pub(crate) fn retry_at(&self, random: u64) -> Instant {
        self.renewal().retry(self.now(), self.valid_until(), random)
    }

    /// Whether this is the first to ask for renewals.
    pub(crate) fn keep_alive(&self) -> bool {
        !self.kept_alive.swap(true, Ordering::SeqCst)
    }

    /// One extension to `ttl` from now. The flight that it returns has late answers to hear.
    pub(crate) async fn extend(&self, ttl: Ttl) -> Result<Flight, ExtendError> {
        let cluster = &self.attempt.cluster;
        let (count, config) = (cluster.count(), &cluster.config);
        if !planted!("expired_lease_is_extended") {
            self.held().map_err(ExtendError::of)?;
        }
        let (start, held_until) = (cluster.runtime.now(), self.valid_until());
        let patience = config.node_timeout(ttl).min(held_until.saturating_duration_since(start));
        let mut round = Round::extend(count, start, patience, ttl, config.drift, held_until);
        // A vote backs the lease for as long as it lasts, also one for less.
        let ttl = config.drift.ttl_until(start, held_until).map_or(ttl, |least| ttl.max(least));
        let claim = self.attempt.claim.with_ttl(ttl);
        let mut flight = Flight::new(&self.attempt, &Operation::Extend(claim.clone()));
        let outcome = flight.decide(&mut round).await;
        if let Step::Won { valid_until } = outcome.step {
            let valid_until = if planted!("extension_starts_with_the_last_reply") {
                config.drift.valid_until(cluster.runtime.now(), ttl)
            } else {
                valid_until
            };
            self.prolong(valid_until)?;
            if config.repairs {
                flight.repair(claim, valid_until, &outcome.tally);
            }
            flight.level(&outcome.tally);
            observe::extended(self, start);
            return Ok(flight);
        }
        if planted!("failed_extension_releases") {
            drop(Flight::new(&self.attempt, &Operation::Release));
        }
        if planted!("repair_without_a_quorum") {
            flight.repair(claim, held_until, &outcome.tally);
        }
        let votes = outcome.votes(cluster, start);
        observe::not_extended(self, start, &votes);
        let mut term = self.term();
        term.trouble = Some(votes.clone());
        let error = match (&term.end, outcome.step) {
            // It was given up meanwhile, and nodes were no longer asked for that reason.
            (Some(lost), _) => ExtendError::of(lost.clone()),
            (None, Step::Lost(Loss::Expired)) => ExtendError::Expired { votes },
            // Fewer refusals leave room for a quorum that still has the keys.
            (None, _) if outcome.tally.refused() > count.spare() => ExtendError::NotHeld { votes },
            (None, _) => ExtendError::NoQuorum { votes },
        };
        drop(term);
        // No quorum can have the keys, so another process may have the lock (H1).
        if let ExtendError::NotHeld { votes } = &error {
            self.end(Lost::NotHeld { votes: votes.clone() });
        }
        Err(error)
    }

    fn prolong(&self, valid_until: Instant) -> Result<(), ExtendError> {
        let mut term = self.term();
        if let Some(lost) = &term.end
            && !planted!("extended_after_it_was_lost")
        {
            return Err(ExtendError::of(lost.clone()));
        }
        let cap = self.hold_until.filter(|_| !planted!("extension_forgets_the_hold_limit"));
        let valid_until = cap.map_or(valid_until, |cap| valid_until.min(cap));
        term.valid_until = if planted!("extension_shortens_the_lease") {
            valid_until
        } else {
            term.valid_until.max(valid_until)
        };
        term.trouble = None;
        Ok(())
    }

    fn run_out(&self, term: &Term) -> Lost {
        if self.is_capped(term.valid_until) {
            return Lost::HoldLimit;
        }
        Lost::Expired { votes: term.trouble.clone().unwrap_or_default() }
    }

    fn is_capped(&self, valid_until: Instant) -> bool {
        self.hold_until.is_some_and(|cap| valid_until >= cap)
    }

    /// When it is to be renewed, and given up.
    fn renewal(&self) -> Renewal {
        self.attempt.cluster.config.renewal(self.attempt.claim.ttl())
    }

    fn now(&self) -> Instant {
        self.attempt.cluster.runtime.now()
    }

    fn term(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Term {
    fn end(&mut self, lost: Lost, now: Instant) {
        if self.end.is_none() {
            // Whoever is told the margin before the end can still see how much time is left.
            self.would_end = Some(self.valid_until);
            if !matches!(lost, Lost::Expired { .. } | Lost::HoldLimit) {
                self.valid_until = self.valid_until.min(now);
            }
            self.end = Some(lost);
        }
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Waits on a timer of its own: nothing that nodes or other tasks do, or do not do, delays it.
pub(crate) async fn lost(tenure: Arc<Tenure>) -> Lost {
    loop {
        match tenure.notice() {
            Ok(notice) if planted!("lost_waits_for_the_nodes") => {
                tenure.ended_by(saturating_add(notice, Duration::MAX)).await;
            }
            Ok(notice) => tenure.ended_by(notice).await,
            Err(lost) => return lost,
        }
    }
}
