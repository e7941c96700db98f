//! The one task of a manager: it gives the time to all that is due.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{Attempts, Keeper};
use crate::algorithm::lease::saturating_add;
use crate::seam::runtime::BoxFuture;
use crate::telemetry;

/// How long the timekeeper stays without work.
const IDLE: Duration = Duration::from_secs(1);

impl Attempts {
    /// Starts the timekeeper. Without any mutex.
    pub(super) fn start(self: &Arc<Self>) {
        let mut keeper = Timekeeper {
            attempts: Arc::clone(self),
            was_polled: false,
            is_done: false,
            idle_until: None,
            timer: None,
        };
        self.runtime.spawn(Box::pin(poll_fn(move |context| keeper.poll(context))));
    }
}

/// The one task of a manager.
struct Timekeeper {
    attempts: Arc<Attempts>,
    was_polled: bool,
    is_done: bool,
    /// Since there is no work: when it ends.
    idle_until: Option<Instant>,
    timer: Option<(Instant, BoxFuture<'static, ()>)>,
}

impl Timekeeper {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.was_polled = true;
        loop {
            let now = self.attempts.runtime.now();
            self.report_stop(now);
            let mut all = self.attempts.lock();
            let taken = all.take_due(now);
            if !taken.is_empty() {
                all.keeper = Keeper::Runs;
                drop(all);
                taken.into_iter().for_each(|(entry, due)| entry.handle_notice(due, now));
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let until = match all.due.first() {
                Some((at, _)) => {
                    self.idle_until = None;
                    *at
                }
                None => *self.idle_until.get_or_insert_with(|| saturating_add(now, IDLE)),
            };
            if all.due.is_empty() && now >= until {
                all.keeper = Keeper::Absent;
                self.is_done = true;
                return Poll::Ready(());
            }
            let sleeps = Keeper::Sleeps { until, waker: context.waker().clone() };
            let before = mem::replace(&mut all.keeper, sleeps);
            drop(all);
            drop(before);
            let runtime = &self.attempts.runtime;
            let is_kept = self.timer.as_ref().is_some_and(|(at, _)| *at == until);
            if self.idle_until.is_none() && !is_kept {
                // After a suspend, all leases depend on this one sleep (T4).
                self.timer = Some((until, runtime.long_sleep_until(until)));
            }
            if runtime.sleep(&mut self.timer, until, context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Reports a timer that is late by more than a node timeout, once. Without any mutex.
    fn report_stop(&mut self, now: Instant) {
        let late = self.timer.as_ref().map(|(until, _)| now.saturating_duration_since(*until));
        if let Some(late) = late.filter(|late| *late > self.attempts.node_timeout) {
            self.timer = None;
            telemetry::stopped(late);
        }
    }
}

impl Drop for Timekeeper {
    /// The runtime has ended, or the task was aborted. A runtime that drops the task before its
    /// first poll has ended: the ttl is the backstop.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let is_needed = {
            let mut all = self.attempts.lock();
            // What waits for a node has a due time as well.
            let is_needed = self.was_polled && !all.due.is_empty();
            all.keeper = if is_needed { Keeper::Runs } else { Keeper::Absent };
            is_needed
        };
        if is_needed {
            self.attempts.start();
        }
    }
}
