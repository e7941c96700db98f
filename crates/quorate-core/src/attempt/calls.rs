//! The way of a call to its node, and back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Attempt, Effects, State, set_bit};
use crate::algorithm::attempt::{CallId, Message, NodeSet, Outcome};
use crate::algorithm::lease::{Ttl, saturating_add};
use crate::algorithm::quorum::NodeId;
use crate::cluster::nodes::{Change, Settled, outcome};
use crate::resource::Key;
use crate::seam::backend::{
    AcquireOptions, BackendError, CallKind, CallReply, CallResult, Capabilities, ExtendOptions,
    Holder, Operation, ReleaseOptions, Tag,
};
use crate::telemetry;
use crate::turns::tickets::Asking;

/// The number of the hint for the first key. The machine's calls are numbered from 1, and hints down from here.
pub(super) const FIRST_HINT: u32 = u32::MAX;

impl State {
    pub(super) fn begin_call(
        &mut self,
        attempt: &Arc<Attempt>,
        id: CallId,
        message: Message,
        now: Instant,
        effects: &mut Effects,
    ) {
        let (cluster, node) = (attempt.cluster(), id.node);
        let (operation, kind) = operation(attempt, node, message);
        let tag = Tag { node, number: id.number, begun: now, kind };
        match attempt.begin_call(operation, tag) {
            Ok(since) => {
                let limit = attempt.node_timeout.saturating_add(cluster.nodes.connect_limit(node));
                if saturating_add(since, limit) <= now
                    && cluster.nodes.note_silent(node, now) == Change::Fails
                {
                    effects.tell(move |attempt| {
                        let name = attempt.cluster().nodes.name(node);
                        let silent = now.saturating_duration_since(since);
                        telemetry::node_silent(name, kind.name(), silent);
                    });
                }
            }
            Err(Settled { result, change, .. }) => {
                self.handle_outcome(attempt, &tag, outcome(result), change, now, effects);
            }
        }
    }

    pub(super) fn handle_reply(
        &mut self,
        attempt: &Attempt,
        tag: &Tag,
        Settled { result, change, .. }: Settled,
        now: Instant,
        effects: &mut Effects,
    ) {
        if tag.kind == CallKind::Waiting {
            return self.handle_hint(attempt, tag.number, result, now);
        }
        let outcome = outcome(result);
        if let Outcome::Marked(Some(mark)) = &outcome {
            self.revoked.get_or_insert_with(|| Box::new(mark.revoked_by()));
        }
        self.handle_outcome(attempt, tag, outcome, change, now, effects);
    }

    /// A call has settled.
    fn handle_outcome(
        &mut self,
        attempt: &Attempt,
        tag: &Tag,
        outcome: Outcome<BackendError, Option<Holder>>,
        change: Change,
        now: Instant,
        effects: &mut Effects,
    ) {
        if telemetry::IS_ON {
            let (tag, outcome) = (*tag, outcome.clone());
            let limit = self.machine.settings().call_limit(tag.node);
            effects.tell(move |attempt| tell_settled(attempt, &tag, outcome, change, limit, now));
        }
        if tag.kind == CallKind::Release {
            set_bit(&attempt.queued, tag.node, false);
        }
        self.machine.handle_reply(CallId { node: tag.node, number: tag.number }, outcome, now);
    }

    /// The gate has answered a hint.
    fn handle_hint(&mut self, attempt: &Attempt, number: u32, result: CallResult, now: Instant) {
        let at = usize::try_from(FIRST_HINT - number).unwrap_or(usize::MAX);
        let Some(key) = attempt.claim.keys().get(at) else { return };
        let others_wait = match result {
            Ok(CallReply::Waiters(others_wait)) => Some(others_wait),
            _ => None,
        };
        self.turn.note_answer(&attempt.manager, key, others_wait, now);
    }

    /// The call in front of the release at a node is given up, with the key that it may set.
    pub(super) fn give_up(
        &mut self,
        attempt: &Attempt,
        node: NodeId,
        now: Instant,
        effects: &mut Effects,
    ) {
        attempt.given_up.fetch_or(NodeSet::from_iter([node]).bits(), Ordering::SeqCst);
        attempt.wake_givers(effects);
        self.note_may_hold(attempt, node, now);
        effects.tell(move |attempt| {
            let name = attempt.cluster().nodes.name(node);
            telemetry::call_settled(name, "acquire", "silent", None, None);
        });
    }

    fn note_may_hold(&self, attempt: &Attempt, node: NodeId, now: Instant) {
        if let Some(until) = now.checked_add(self.machine.longest_ttl().as_duration()) {
            attempt.cluster().nodes.may_hold_until(node, until);
        }
    }

    /// Nothing is left to await.
    pub(super) fn cleaned_up(&self, attempt: &Attempt, now: Instant, effects: &mut Effects) {
        let unsettled = self.machine.unsettled();
        unsettled.iter().for_each(|node| self.note_may_hold(attempt, node, now));
        if let Some(since) = self.background_since {
            let took = now.saturating_duration_since(since);
            effects.tell(move |attempt| {
                telemetry::cleaned_up(attempt.claim.keys(), took, unsettled.iter().count());
            });
        }
    }
}

/// Asks the gate of a key whether others wait.
pub(super) fn ask_gate(attempt: &Arc<Attempt>, key: &Key, number: u32, now: Instant) -> Asking {
    let (cluster, mode) = (attempt.cluster(), attempt.claim.mode());
    let Some(node) = cluster.nodes.gates(key, now).first().copied() else { return Asking::NoGate };
    let tag = Tag { node, number, begun: now, kind: CallKind::Waiting };
    let hint = Operation::Hint { key: key.clone(), mode };
    if attempt.begin_call(hint, tag).is_ok() { Asking::Asked } else { Asking::Answered }
}

/// The operation of a message to a node.
fn operation(attempt: &Attempt, node: NodeId, message: Message) -> (Operation, CallKind) {
    let claim = |ttl: Ttl| attempt.claim.with_ttl(ttl);
    match message {
        Message::Acquire { ttl } => {
            (Operation::Acquire(claim(ttl), attempt.acquire), CallKind::Acquire)
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
            let can_raise = attempt.cluster().nodes.can(node, Capabilities::FENCING);
            let was_held = attempt.won.get().is_some();
            let options = ReleaseOptions { raise_to: highest.filter(|_| can_raise), was_held };
            (Operation::Release(attempt.claim.clone(), options), CallKind::Release)
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
