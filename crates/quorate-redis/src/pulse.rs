//! What is known of a connection without asking: whether it is there, and who travels on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use quorate_core::protocol::{Company, Seats};

/// For how long a connection that answered is taken to be there.
const WARM: Duration = Duration::from_millis(20);

/// What is known of a connection.
pub(crate) struct Pulse {
    start: Instant,
    /// When it last answered, in nanoseconds since the start.
    last: AtomicU64,
    company: Company,
    broken: AtomicBool,
    /// Whether somebody wants the task to keep watch.
    watch_wanted: AtomicBool,
    watchman: AtomicWaker,
    /// Of those who travel alone. They are told if they were forgotten.
    seats: Seats,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
            company: Company::default(),
            broken: AtomicBool::new(false),
            watch_wanted: AtomicBool::new(false),
            watchman: AtomicWaker::new(),
            seats: Seats::default(),
        }
    }

    pub(crate) const fn company(&self) -> &Company {
        &self.company
    }

    /// It has answered.
    pub(crate) fn beat(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Whether it can be taken to be there without a closer look.
    pub(crate) fn is_warm(&self) -> bool {
        self.was_warm(self.now())
    }

    fn was_warm(&self, now: u64) -> bool {
        let since = now.saturating_sub(self.last.load(Ordering::Relaxed));
        Duration::from_nanos(since) < WARM
    }

    pub(crate) fn end(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// The task is to be woken by this if somebody wants it to keep watch.
    pub(crate) fn watched_by(&self, waker: &Waker) {
        self.watchman.register(waker);
    }

    pub(crate) fn wants_watch(&self) -> bool {
        self.watch_wanted.load(Ordering::SeqCst)
    }

    /// The task has looked. It goes on as long as something travels alone.
    pub(crate) fn has_watched(&self) {
        self.watch_wanted.store(false, Ordering::SeqCst);
        if self.company.alone() > 0 {
            self.watch_wanted.store(true, Ordering::SeqCst);
        }
    }

    /// Tells all who travel alone that they will never hear anything.
    pub(crate) fn forget(&self) {
        self.seats.end();
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Somebody whose command travels alone.
pub(crate) struct Loner<'a> {
    pulse: &'a Pulse,
    seat: usize,
    /// When it set out.
    since: u64,
}

impl<'a> Loner<'a> {
    /// `None` where a command would have company, where the connection is to be looked at first, or
    /// where too many travel alone.
    pub(crate) fn set_out(pulse: &'a Pulse) -> Option<Self> {
        let since = pulse.now();
        if pulse.company.is_there() || !pulse.was_warm(since) {
            return None;
        }
        let seat = pulse.seats.take()?;
        pulse.company.sets_out_alone();
        if !pulse.wants_watch() {
            pulse.watch_wanted.store(true, Ordering::SeqCst);
            pulse.watchman.wake();
        }
        Some(Self { pulse, seat, since })
    }

    /// Ready when it is known that no answer will come.
    pub(crate) fn poll_forgotten(&self, context: &Context<'_>) -> Poll<()> {
        self.pulse.seats.poll_end(self.seat, context)
    }

    /// Its answer has come: the connection was there after it had set out.
    pub(crate) fn beat(&self) {
        self.pulse.last.store(self.since, Ordering::Relaxed);
    }
}

impl Drop for Loner<'_> {
    fn drop(&mut self) {
        self.pulse.company.was_alone();
        self.pulse.seats.leave(self.seat);
    }
}
