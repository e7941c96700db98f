//! The way of a call to its node, and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Attempt, Effects, State};
use crate::algorithm::attempt::{CallId, Message, Outcome};
use crate::algorithm::lease::Ttl;
use crate::algorithm::quorum::NodeId;
use crate::cluster::nodes::{Change, Settled, outcome};
use crate::seam::backend::{
    AcquireOptions, BackendError, CallKind, CallReply, Capabilities, ExtendOptions, Holder,
    Operation, ReleaseOptions, Tag, Waiters,
};
use crate::seam::runtime::lock;
use crate::telemetry;

impl State {
    /// Returns whether the end of the lease has moved back, since the call was not sent.
    pub(super) fn begin_call(
        &mut self,
        attempt: &Arc<Attempt>,
        id: CallId,
        message: Message,
        now: Instant,
        effects: &mut Effects,
    ) -> bool {
        let (cluster, node) = (attempt.cluster(), id.node);
        if let Message::Release { .. } = message {
            self.begin_releases(attempt, now);
        }
        let (operation, kind) = self.operation(attempt, node, message);
        let tag = Tag { node, number: id.number, begun: now, kind, asks_server: false };
        match attempt.begin_call(operation, tag) {
            Ok(since) => {
                let silent = now.saturating_duration_since(since);
                let note = || {
                    let mut health = cluster.nodes.health(node);
                    let is_silent = silent >= attempt.node_timeout.saturating_add(health.connect);
                    is_silent && health.note_silent(now) == Change::Fails
                };
                if silent >= attempt.node_timeout && note() {
                    effects.tell(move |attempt| {
                        let name = attempt.cluster().nodes.name(node);
                        telemetry::node_silent(name, kind.name(), silent);
                    });
                }
                false
            }
            Err(settled) => {
                self.handle_reply(attempt, &tag, *settled, now, effects);
                self.publish_end(attempt, now)
            }
        }
    }

    /// A call has settled.
    pub(super) fn handle_reply(
        &mut self,
        attempt: &Attempt,
        tag: &Tag,
        Settled { result, change, says, .. }: Settled,
        now: Instant,
        effects: &mut Effects,
    ) {
        let waiters = match &result {
            Ok(CallReply::Voted(reply)) => reply.waiters,
            _ => Waiters::Unknown,
        };
        match tag.kind {
            CallKind::Release => {
                self.turn.note_released(&attempt.manager, tag.node, waiters, now);
                lock(&attempt.noted).queued.remove(tag.node);
            }
            CallKind::Acquire if attempt.acquire.asks => {
                self.turn.note_acquired(tag.node, waiters);
                effects.is_changed = true;
            }
            _ => {}
        }
        if says.is_some() {
            self.voted.resize(attempt.cluster().nodes.count.get(), None);
            self.voted[tag.node.index()] = says;
        }
        self.judge(attempt, now);
        let outcome = outcome(result);
        if let Outcome::Marked(Some(mark)) = &outcome {
            self.revoked.get_or_insert_with(|| Box::new(mark.revoked_by()));
        }
        if telemetry::IS_ON {
            let (tag, outcome) = (*tag, outcome.clone());
            let limit = self.machine.settings().call_limit(tag.node);
            effects.tell(move |attempt| tell_settled(attempt, &tag, outcome, change, limit, now));
        }
        if let (true, CallKind::Acquire, Outcome::NotSent(error)) =
            (attempt.acquire.asks, tag.kind, &outcome)
        {
            // It may not look into the queue. The next round does not ask it.
            attempt.cluster().nodes.note_lack(tag.node, Capabilities::QUEUE, error);
        }
        self.machine.handle_reply(CallId { node: tag.node, number: tag.number }, outcome, now);
    }

    /// Judges all votes by what is known now: another node may have answered meanwhile, and the
    /// connection of one that has voted may have ended (N3).
    pub(super) fn judge(&mut self, attempt: &Attempt, now: Instant) {
        if let Some((strangers, is_unlisted)) = attempt.cluster().nodes.groups.judge(&self.voted) {
            self.machine.judge(strangers, is_unlisted, now);
        }
    }

    /// The call in front of the release at a node is given up, with the key that it may set.
    pub(super) fn give_up(
        &mut self,
        attempt: &Attempt,
        node: NodeId,
        now: Instant,
        effects: &mut Effects,
    ) {
        lock(&attempt.noted).given_up.insert(node);
        attempt.wake_given_up(effects);
        self.note_may_hold(attempt, node, now);
        effects.tell(move |attempt| {
            let name = attempt.cluster().nodes.name(node);
            telemetry::call_settled(name, "acquire", "silent", None, None);
        });
    }

    fn note_may_hold(&self, attempt: &Attempt, node: NodeId, now: Instant) {
        if let Some(until) = now.checked_add(self.machine.longest_ttl().as_duration()) {
            attempt.cluster().nodes.health(node).note_may_hold(until);
        }
    }

    /// Nothing is left to await.
    pub(super) fn cleaned_up(&self, attempt: &Attempt, now: Instant, effects: &mut Effects) {
        let unsettled = self.machine.unsettled();
        unsettled.iter().for_each(|node| self.note_may_hold(attempt, node, now));
        for node in self.machine.owing().iter() {
            attempt.cluster().nodes.health(node).forget_back(attempt.slot);
        }
        if let Some(since) = self.background_since {
            let took = now.saturating_duration_since(since);
            effects.tell(move |attempt| {
                telemetry::cleaned_up(attempt.claim.keys(), took, unsettled.iter().count());
            });
        }
    }

    /// The operation of a message to a node.
    fn operation(
        &self,
        attempt: &Attempt,
        node: NodeId,
        message: Message,
    ) -> (Operation, CallKind) {
        let claim = |ttl: Ttl| attempt.claim.with_ttl(ttl);
        let nodes = &attempt.cluster().nodes;
        match message {
            Message::Acquire { ttl } => {
                let asks = attempt.acquire.asks && nodes.has(node, Capabilities::QUEUE);
                let options = AcquireOptions { asks, ..attempt.acquire };
                (Operation::Acquire(claim(ttl), options), CallKind::Acquire)
            }
            // No fencing number, and no guard: the votes of the others prove who the holder is.
            Message::Repair { ttl } => {
                (Operation::Acquire(claim(ttl), AcquireOptions::default()), CallKind::Repair)
            }
            Message::Extend { ttl } => {
                (Operation::Extend(claim(ttl), ExtendOptions::default()), CallKind::Extend)
            }
            Message::Look => (Operation::Look(attempt.claim.clone()), CallKind::Look),
            Message::Raise { token } => {
                (Operation::Raise(attempt.claim.clone(), token), CallKind::Raise)
            }
            Message::Release { highest } => {
                // An adopted lock has a token also where a node keeps no numbers.
                let can_raise = nodes.can(node, Capabilities::FENCING);
                let options = ReleaseOptions {
                    raise_to: highest.filter(|_| can_raise),
                    was_held: attempt.won.get().is_some(),
                    asks: self.turn.asks(node, attempt.claim.shared_keys()),
                };
                (Operation::Release(attempt.claim.clone(), options), CallKind::Release)
            }
        }
    }
}

fn tell_settled(
    attempt: &Attempt,
    tag: &Tag,
    outcome: Outcome<BackendError, Option<Holder>>,
    change: Change,
    limit: Duration,
    now: Instant,
) {
    if tag.kind.is_extra()
        && let Outcome::NotSent(error) = &outcome
        && error.is_lack()
    {
        return;
    }
    let latency = now.saturating_duration_since(tag.begun);
    let (vote, error) = match outcome {
        Outcome::Granted(_) => ("granted", None),
        Outcome::Refused(_) | Outcome::Marked(_) => ("refused", None),
        Outcome::Failed(error) | Outcome::Lost(error) | Outcome::NotSent(error) => {
            ("failed", Some(error))
        }
    };
    let vote = if latency > limit { "silent" } else { vote };
    let (node, operation) = (attempt.cluster().nodes.name(tag.node), tag.kind.name());
    telemetry::call_settled(node, operation, vote, Some(latency), error.as_ref());
    attempt.cluster().nodes.tell_change(tag, change, error.as_ref());
}
