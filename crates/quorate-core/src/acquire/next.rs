//! Between two attempts: waits until the next one is worth making.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, FutureExt, join, select};

use super::kind::Kind;
use super::split::{self, Split, verdict};
use super::{Competitor, LEAST_UNDO, error_of};
use crate::algorithm::attempt::Loss;
use crate::algorithm::backoff::scale;
use crate::algorithm::lease::saturating_add;
use crate::backend::{Capabilities, Mode};
use crate::error::{LockError, QuorumFailure};
use crate::remote_wait::{RemoteWait, WaitInput};
use crate::tickets::Ticket;

impl Competitor<'_> {
    /// Waits until the next attempt is worth making. `false` at the deadline.
    pub(super) async fn wait_for_turn(&mut self) -> Result<bool, LockError> {
        if let Some(set) = &self.wanted.set {
            return self.choose(set).boxed().await;
        }
        if self.wanted.waits() && (self.last.is_some() || self.others_are_first()) {
            self.fresh_now = None;
            let (cluster, deadline) = (&self.queues.cluster, self.deadline);
            let next = cluster.attempts.unless_closed(self.wait_at_gate());
            match cluster.before(deadline, next).boxed().await {
                Some(None) => return Err(LockError::Closed),
                Some(Some(())) => {}
                None => return Ok(false),
            }
        }
        Ok(self.deadline.is_none_or(|deadline| self.now() < deadline))
    }

    /// Whether this request waits for its turn between processes before it competes.
    pub(super) fn others_are_first(&self) -> bool {
        let (now, readers) = (self.now(), &self.queues.readers);
        match self.kind {
            Kind::Shared(_) => readers.wait_first(&self.wanted.keys, now),
            _ => self.wait_ticket().is_some_and(|ticket| ticket.others_are_first(now)),
        }
    }

    /// Waits at the nodes until the next attempt is worth making.
    pub(super) async fn wait_at_gate(&mut self) {
        if matches!(self.kind, Kind::Shared(_)) {
            return self.wait_with_others().await;
        }
        let (Some(ticket), cluster) = (self.wait_ticket(), self.cluster()) else {
            return;
        };
        if let (Some(attempt), false) = (&self.attempt, cluster.nodes.all_ordered()) {
            // Its own key would refuse the next attempt: on a pool that could overtake the undo.
            attempt.undone(self.node_timeout).await;
        }
        let has_gates = cluster.nodes.having(Capabilities::QUEUE).is_some();
        if let Some(last) = self.last.as_ref().filter(|_| has_gates) {
            // Contenders that split the votes do not meet again.
            let pause = last.took.saturating_add(scale(last.took, cluster.random()));
            cluster.sleep(pause.min(self.node_timeout)).await;
        }
        let kept = ticket.wait().filter(|wait| has_gates && !wait.is_outdated());
        if kept.is_none()
            && let Some(wait) = ticket.end_wait(cluster.now())
        {
            wait.input(WaitInput::Cancel);
        }
        let wait = match kept {
            Some(wait) => {
                wait.input(match self.last {
                    Some(_) => WaitInput::Refused,
                    None => WaitInput::TakeOver(Arc::clone(&self.wanted.keys)),
                });
                Some(wait)
            }
            None if has_gates => self.begin_wait(ticket),
            None => None,
        };
        match (wait, &self.last) {
            (Some(wait), _) if self.wanted.waits() => wait.called().await,
            (Some(wait), _) => wait.gate_answered().await,
            (None, Some(last)) => self.back_off(last.took).await,
            (None, None) => {}
        }
    }

    /// Begins the wait between processes. Its first attempt is the one that was just lost, if there is one.
    fn begin_wait(&self, ticket: &Ticket) -> Option<Arc<RemoteWait>> {
        let (queues, key) = (Arc::clone(self.queues), ticket.key().clone());
        let on_hint = move |others_wait, at| queues.note_hint(&key, others_wait, at);
        let (cluster, mode) = (&self.queues.cluster, Mode::Exclusive);
        let keys = (&self.wanted.keys, self.wanted.set.is_some());
        let is_refused = self.last.is_some();
        let wait = RemoteWait::begin(cluster, keys, mode, self.node_timeout, !is_refused, on_hint)?;
        if is_refused {
            wait.input(WaitInput::Refused);
        }
        ticket.keep_wait(Arc::clone(&wait));
        Some(wait)
    }

    /// Waits without a wait queue: for a random delay, or until a node says that the key was written.
    pub(super) async fn back_off(&self, took: Duration) {
        let cluster = self.cluster();
        let delay = cluster.config.backoff.delay(self.lost_rounds, cluster.random());
        let delay = pin!(cluster.sleep(delay));
        let Some(node) = cluster.nodes.having(Capabilities::WATCH) else { return delay.await };
        let written = pin!(async {
            match cluster.nodes.backend(node).watch(&self.wanted.keys[0], None).await {
                Ok(watched) if watched.is_held() => watched.changed().await,
                // A key that is free here and refused elsewhere is worth no hurry.
                Ok(_) => pending().await,
                Err(error) => {
                    cluster.nodes.note_lack(node, Capabilities::WATCH, &error);
                    pending().await
                }
            }
        });
        if let Either::Left((_, delay)) = select(written, delay).await {
            // All waiters hear of the write at once, and must not split the votes.
            let pause = pin!(cluster.sleep(scale(took, cluster.random())));
            select(pause, delay).await;
        }
    }

    /// Whether a lost round of a request that waits for no holder was a split vote. Then the pause before the next round
    /// is over (O8).
    pub(super) async fn try_again_later(&mut self) -> bool {
        let cluster = &self.queues.cluster;
        let (Some(attempt), Some(last)) = (&self.attempt, &mut self.last) else { return false };
        if matches!(last.loss, Loss::Expired | Loss::NoToken) {
            return false;
        }
        if matches!(self.kind, Kind::OneOf(_)) {
            return last.loss == Loss::Held;
        }
        let limit = last.took.min(self.node_timeout).max(LEAST_UNDO);
        let own = attempt.claim.token();
        let verdict = |failure: &QuorumFailure| verdict(own, failure, self.node_timeout);
        if matches!(verdict(&attempt.failure()), Split::First | Split::Later) {
            // The wait of a task that is gone leaves at the same time: the error waits for both no longer than once (C8).
            let ticket = self.turn.first().filter(|ticket| !ticket.has_local());
            let wait = ticket.and_then(|ticket| ticket.end_wait(cluster.now()));
            let left = async {
                if let Some(wait) = wait {
                    wait.input(WaitInput::Cancel);
                    cluster.within(limit, wait.left()).await;
                }
            };
            join(attempt.undone(limit), left).await;
            last.is_undone = true;
        }
        let failure = attempt.failure();
        let split = verdict(&failure);
        if split == Split::No {
            return false;
        }
        last.error = error_of(cluster, Loss::Held, failure);
        if split == Split::Held
            || self.lost_rounds >= split::MOST_ROUNDS
            || last.error.is_permanent()
        {
            return false;
        }
        let pause = match split {
            Split::Later => split::pause(last.took, self.lost_rounds, cluster.random()),
            _ => Duration::ZERO,
        };
        let next_at = saturating_add(cluster.now(), pause);
        if self.deadline.is_some_and(|deadline| next_at >= deadline) {
            return false;
        }
        if !pause.is_zero() {
            cluster.attempts.unless_closed(cluster.runtime.sleep_until(next_at)).await;
        }
        true
    }
}
