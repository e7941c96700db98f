//! The way of a call to its node, and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::{Attempt, Effects, Input, State};
use crate::algorithm::attempt::{CallId, Message, NodeSet, Outcome};
use crate::algorithm::lease::Ttl;
use crate::algorithm::quorum::NodeId;
use crate::cluster::nodes::{Change, outcome};
use crate::resource::Key;
use crate::seam::backend::{
    AcquireOptions, Answered, BackendError, Call, CallKind, CallReply, CallResult, Capabilities,
    ExtendOptions, Operation, ReleaseOptions, Reply, Tag, Vote,
};
use crate::telemetry;
use crate::turns::tickets::Asking;

/// The number of the hint for the first key. The machine's calls are numbered from 1, and hints down from here.
pub(super) const FIRST_HINT: u32 = u32::MAX;

impl Answered for Attempt {
    fn answered(self: Arc<Self>, tag: Tag, result: CallResult, now: Option<Instant>) {
        self.givers.settled(tag.number);
        self.state.put(&self, (Input::Reply(tag, result), now));
    }

    fn is_given_up(&self, tag: &Tag, task: Option<&Waker>) -> bool {
        self.givers.ask(tag.number, task, || {
            let is_in_front =
                NodeSet::of_bits(self.given_up.load(Ordering::SeqCst)).contains(tag.node);
            is_in_front && tag.kind != CallKind::Release || self.is_over.load(Ordering::SeqCst)
        })
    }

    fn now(&self) -> Option<Instant> {
        Some(self.cluster().now())
    }

    fn note_queued(&self, tag: &Tag, is_queued: bool, is_late: bool) {
        if tag.kind != CallKind::Release {
            return;
        }
        set_bit(&self.queued, tag.node, is_queued);
        set_bit(&self.left_late, tag.node, is_late);
    }
}

impl State {
    pub(super) fn begin_call(
        &mut self,
        attempt: &Arc<Attempt>,
        id: CallId,
        message: Message,
        now: Instant,
        effects: &mut Effects,
    ) {
        let (cluster, node) = (attempt.cluster(), id.node());
        let (operation, kind) = operation(attempt, node, message);
        let tag = Tag { node, number: id.number(), begun: now, kind, asks_server: false };
        let call = Call::new(operation, tag.clone(), Arc::<Attempt>::clone(attempt));
        match cluster.nodes.begin(node, call, &*cluster.runtime, now) {
            Ok(silent) => {
                if silent >= attempt.node_timeout()
                    && cluster.nodes.note_silent(node, now) == Change::Fails
                {
                    effects.tell(move |attempt| {
                        let name = attempt.cluster().nodes.name(node);
                        telemetry::node_silent(name, kind.name(), silent);
                    });
                }
            }
            Err(not_sent) => {
                let change = cluster.nodes.note_silent(node, now);
                self.handle_outcome(
                    attempt,
                    &tag,
                    Outcome::NotSent(not_sent.error),
                    change,
                    now,
                    effects,
                );
            }
        }
    }

    pub(super) fn handle_reply(
        &mut self,
        attempt: &Arc<Attempt>,
        tag: &Tag,
        result: CallResult,
        now: Instant,
        effects: &mut Effects,
    ) {
        let cluster = attempt.cluster();
        let settled = cluster.nodes.settled(tag, result, now);
        effects.wake.merge(cluster.attempts.tell_back(tag.node, settled.await_back));
        if tag.kind == CallKind::Waiting {
            return self.handle_hint(attempt, tag.number, settled.result, now);
        }
        if let Ok(CallReply::Voted(Reply { vote: Vote::Refused, holder: Some(holder), .. })) =
            &settled.result
            && attempt.won.get().is_none()
        {
            self.holders.push((tag.node, holder.clone()));
        }
        self.handle_outcome(attempt, tag, outcome(settled.result), settled.change, now, effects);
    }

    /// A call has settled.
    fn handle_outcome(
        &mut self,
        attempt: &Attempt,
        tag: &Tag,
        outcome: Outcome<BackendError>,
        change: Change,
        now: Instant,
        effects: &mut Effects,
    ) {
        if telemetry::IS_ON {
            let (latency, kind, node) =
                (now.saturating_duration_since(tag.begun), tag.kind, tag.node);
            let outcome = outcome.clone();
            effects
                .tell(move |attempt| tell_settled(attempt, node, kind, outcome, latency, change));
        }
        if tag.kind == CallKind::Release {
            set_bit(&attempt.queued, tag.node, false);
        }
        // The answer to a round that is lost already: the error of the request says it (A4).
        let votes = matches!(tag.kind, CallKind::SetsTtl(_));
        if votes && self.machine.has_ended() && attempt.won.get().is_none() {
            self.late.push((tag.node, outcome.clone()));
        }
        self.machine.handle_reply(CallId::new(tag.node, tag.number), outcome, now);
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
        effects.givers.append(&mut attempt.givers.take());
        self.note_may_hold(attempt, node, now);
        effects.tell(move |attempt| {
            let name = attempt.cluster().nodes.name(node);
            telemetry::call_settled(name, "acquire", "silent", None, None);
        });
    }

    pub(super) fn note_may_hold(&self, attempt: &Attempt, node: NodeId, now: Instant) {
        if let Some(until) = now.checked_add(self.machine.longest_ttl().as_duration()) {
            attempt.cluster().nodes.may_hold_until(node, until);
        }
    }
}

/// Puts a node into a set of bits, or takes it out. Mostly nothing changes, and a look is cheap.
fn set_bit(nodes: &AtomicU64, node: NodeId, is_in: bool) {
    let set = NodeSet::from_iter([node]);
    if NodeSet::of_bits(nodes.load(Ordering::Relaxed)).contains(node) != is_in {
        match is_in {
            true => nodes.fetch_or(set.bits(), Ordering::Relaxed),
            false => nodes.fetch_and(!set.bits(), Ordering::Relaxed),
        };
    }
}

/// Asks the gate of a key whether others wait.
pub(super) fn ask_gate(attempt: &Arc<Attempt>, key: &Key, number: u32, now: Instant) -> Asking {
    let (cluster, mode) = (attempt.cluster(), attempt.claim.mode());
    let Some(node) = cluster.nodes.gates(key, now).first().copied() else { return Asking::NoGate };
    let tag = Tag { node, number, begun: now, kind: CallKind::Waiting, asks_server: false };
    let hint = Operation::Hint { key: key.clone(), mode };
    let call = Call::new(hint, tag, Arc::<Attempt>::clone(attempt));
    match cluster.nodes.begin(node, call, &*cluster.runtime, now) {
        Ok(_) => Asking::Asked,
        Err(_) => Asking::Answered,
    }
}

/// The operation of a message to a node.
fn operation(attempt: &Attempt, node: NodeId, message: Message) -> (Operation, CallKind) {
    let claim = |ttl: Ttl| attempt.claim.with_ttl(ttl);
    match message {
        Message::Acquire { ttl } => {
            (Operation::Acquire(claim(ttl), attempt.acquire), CallKind::SetsTtl("acquire"))
        }
        // No fencing number, and no guard: the votes of the others prove who the holder is.
        Message::Repair { ttl } => {
            (Operation::Acquire(claim(ttl), AcquireOptions::default()), CallKind::Other("repair"))
        }
        Message::Extend { ttl } => {
            (Operation::Extend(claim(ttl), ExtendOptions::default()), CallKind::SetsTtl("extend"))
        }
        Message::Raise { token } => {
            (Operation::Raise(attempt.claim.clone(), token), CallKind::Other("raise"))
        }
        Message::Release { highest } => {
            // An adopted lock has a token also where a node keeps no numbers.
            let can_raise = attempt.cluster().nodes.can(node, Capabilities::FENCING);
            let options = ReleaseOptions { raise_to: highest.filter(|_| can_raise) };
            (Operation::Release(attempt.claim.clone(), options), CallKind::Release)
        }
    }
}

fn tell_settled(
    attempt: &Attempt,
    node: NodeId,
    kind: CallKind,
    outcome: Outcome<BackendError>,
    latency: Duration,
    change: Change,
) {
    let (vote, error) = match outcome {
        Outcome::Granted(_) => ("granted", None),
        Outcome::Refused => ("refused", None),
        Outcome::Failed(error) | Outcome::Lost(error) | Outcome::NotSent(error) => {
            ("failed", Some(error))
        }
    };
    let vote = if latency > attempt.node_timeout() { "silent" } else { vote };
    let (node, operation) = (attempt.cluster().nodes.name(node), kind.name());
    telemetry::call_settled(node, operation, vote, Some(latency), error.as_ref());
    match (change, &error) {
        (Change::None, _) => {}
        (Change::Recovers { after }, _) => telemetry::node_recovered(node, operation, after),
        (Change::Fails, Some(error)) => telemetry::node_failing(node, operation, error),
        (Change::Fails, None) => telemetry::node_silent(node, operation, latency),
    }
}
