//! What is known of a connection without asking: whether it is there, and who travels on it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

/// How many commands may travel alone at the same time. One task by itself has two under way to a
/// node that is slower than the others: it goes on without it.
const FEW: usize = 2;

/// After how many requests of few commands no more are expected.
const COMPANY: usize = 16;

/// For how long a connection that answered is taken to be there.
const WARM: Duration = Duration::from_millis(20);

/// What is known of a connection.
pub(crate) struct Pulse {
    start: Instant,
    /// When it last answered, in nanoseconds since the start.
    last: AtomicU64,
    /// How many commands travel alone.
    alone: AtomicUsize,
    /// How many commands the task has not looked at yet.
    waiting: AtomicUsize,
    /// How many it had on its hands when it last looked.
    carried: AtomicUsize,
    /// For how many requests to come there may be company again.
    together: AtomicUsize,
    broken: AtomicBool,
    /// Whether somebody wants the task to keep watch.
    watch_wanted: AtomicBool,
    watchman: AtomicWaker,
    /// What travels alone was forgotten.
    forgotten: Notify,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
            alone: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            carried: AtomicUsize::new(0),
            together: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            watch_wanted: AtomicBool::new(false),
            watchman: AtomicWaker::new(),
            forgotten: Notify::new(),
        }
    }

    /// Whether a command would not be the only one: there are others, which it must not overtake, or
    /// there were just now, and they come again together.
    pub(crate) fn has_company(&self) -> bool {
        self.alone.load(Ordering::Relaxed) >= FEW
            || self.waiting.load(Ordering::Relaxed) > 0
            || self.carried.load(Ordering::Relaxed) > 0
            || self.together.load(Ordering::Relaxed) > 0
    }

    /// Notes that the task was given one more to look at.
    pub(crate) fn waits(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes how many commands the task has on its hands, after it has taken in some more.
    pub(crate) fn holds(&self, commands: usize, taken: usize) {
        self.carried.store(commands, Ordering::Relaxed);
        // What goes on after a first answer comes in uncounted.
        let less = |waiting: usize| Some(waiting.saturating_sub(taken));
        let _ = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Notes that some commands leave together.
    pub(crate) fn leaves(&self, commands: usize) {
        let others = self.alone.load(Ordering::Relaxed);
        let together = match commands + others {
            0..=FEW => self.together.load(Ordering::Relaxed).saturating_sub(1),
            _ => COMPANY,
        };
        self.together.store(together, Ordering::Relaxed);
    }

    pub(crate) fn beat(&self) {
        self.last.store(self.now(), Ordering::Relaxed);
    }

    /// Whether it can be taken to be there without a closer look.
    pub(crate) fn is_warm(&self) -> bool {
        let since = self.now().saturating_sub(self.last.load(Ordering::Relaxed));
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
        if self.alone.load(Ordering::SeqCst) > 0 {
            self.watch_wanted.store(true, Ordering::SeqCst);
        }
    }

    /// Tells all who travel alone that they will never hear anything.
    pub(crate) fn forget(&self) {
        self.forgotten.notify_waiters();
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Somebody whose command travels alone.
pub(crate) struct Loner(Arc<Pulse>);

impl Loner {
    pub(crate) fn new(pulse: &Arc<Pulse>) -> Self {
        pulse.alone.fetch_add(1, Ordering::SeqCst);
        if !pulse.wants_watch() {
            pulse.watch_wanted.store(true, Ordering::SeqCst);
            pulse.watchman.wake();
        }
        Self(Arc::clone(pulse))
    }

    /// Waits until it is known that no answer will come.
    pub(crate) fn forgotten(&self) -> impl Future<Output = ()> + use<'_> {
        self.0.forgotten.notified()
    }

    /// Its answer has come.
    pub(crate) fn beat(&self) {
        self.0.beat();
    }
}

impl Drop for Loner {
    fn drop(&mut self) {
        self.0.alone.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_the_task_is_not_overtaken() {
        let pulse = Pulse::new();
        assert!(!pulse.has_company());
        pulse.waits();
        assert!(pulse.has_company(), "it has not left");
        pulse.holds(1, 1);
        assert!(pulse.has_company(), "it is under way");
        pulse.waits();
        pulse.holds(0, 0);
        assert!(pulse.has_company(), "one came after the task looked");
        pulse.holds(0, 1);
        assert!(!pulse.has_company());
    }

    #[test]
    fn those_who_came_together_are_expected_again_for_a_while() {
        let pulse = Arc::new(Pulse::new());
        let loner = Loner::new(&pulse);
        assert!(!pulse.has_company(), "one more may go alone");
        let another = Loner::new(&pulse);
        assert!(pulse.has_company());
        pulse.leaves(1);
        drop((loner, another));
        for _ in 0..COMPANY {
            assert!(pulse.has_company());
            pulse.leaves(1);
        }
        assert!(!pulse.has_company());
    }
}
