//! What goes on in the background once an operation is decided, or was cancelled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::Attempt;
use super::calling::{Operation, set_out_aside};
use super::calls::{Calls, Settled};
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::{NodeId, Vote};
use crate::backend::Claim;
use crate::observe;

/// What is left to do on the nodes when a flight ends.
#[derive(Clone, Debug)]
pub(super) enum Aftermath {
    /// Wait for the late answers.
    Drain,
    /// Give the keys back to the nodes that turn out to have lost them, while the lease lasts.
    Repair(Claim, Instant),
    /// See the release on every node through.
    Release,
    /// Release on every node, the silent and the refusing ones too.
    Undo,
}

impl Aftermath {
    pub(super) const fn releases(&self) -> bool {
        matches!(self, Self::Release | Self::Undo)
    }

    /// Makes the call that a late answer calls for.
    pub(super) fn follow_up(&self, attempt: &Arc<Attempt>, settled: &Settled, calls: &mut Calls) {
        if let (Self::Repair(claim, until), Ok(Vote::Refused)) = (self, &settled.answer) {
            let operation = Operation::Repair(claim.clone(), *until);
            set_out_aside(attempt, operation, settled.node, calls);
        }
    }
}

/// Waits in the background until the calls have settled, up to the cleanup bound.
///
/// A release that failed is sent again to a node that is known to have granted, until the bound.
/// After it, acquires that hang are given up, which lets the releases go that wait for them; those
/// get one more node timeout.
pub(super) fn settle(
    attempt: Arc<Attempt>,
    mut calls: Calls,
    aftermath: Aftermath,
    mut again: Vec<NodeId>,
) -> impl Future<Output = ()> + Send + 'static {
    let running = attempt.cluster.background().enter();
    async move {
        let _running = running;
        let cleanup = observe::Cleanup::begin(&attempt);
        let cluster = &attempt.cluster;
        let runtime = &*cluster.runtime;
        let bound = if planted!("cleanup_goes_on_until_it_succeeds") {
            Duration::MAX
        } else {
            attempt.cleanup_timeout()
        };
        let mut now = runtime.now();
        let deadline = saturating_add(now, bound);
        let mut pause = (bound / 50).min(FIRST_PAUSE);
        let once = planted!("failed_release_is_not_repeated");
        again.retain(|node| attempt.releases_again(*node) && !once);
        loop {
            let next = saturating_add(now, pause);
            let goes_again = !again.is_empty() && next < deadline;
            // What has failed does not wait for those that have yet to answer.
            let mut timer = runtime.sleep_until(if goes_again { next } else { deadline });
            let mut is_first = false;
            while !is_first && let Some(settled) = calls.next(&mut timer).await {
                aftermath.follow_up(&attempt, &settled, &mut calls);
                let failed = settled.passing_failure().filter(|_| aftermath.releases());
                if let Some(node) = failed.filter(|node| attempt.releases_again(*node) && !once) {
                    is_first = again.is_empty();
                    again.push(node);
                }
            }
            if goes_again {
                runtime.sleep_until(next).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                attempt.set_out(&mut calls, &Operation::Release, again.drain(..), runtime.now());
            } else if !is_first {
                break;
            }
            now = runtime.now();
        }
        calls.give_up_superseded();
        if aftermath.releases() && !calls.have_settled() {
            let grace = cluster.config.node_timeout(attempt.claim.ttl());
            let mut timer = runtime.sleep_until(saturating_add(runtime.now(), grace));
            while calls.next(&mut timer).await.is_some() {}
        }
        cleanup.ended(&attempt, calls.unsettled());
    }
}

/// How long it takes at first until what failed is sent again, and in the end.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);
