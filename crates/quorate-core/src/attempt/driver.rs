//! Drives the machine of an attempt: calls, replies, timers.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use event_listener::EventListener;

use super::Attempt;
use super::state::State;
use crate::algorithm::attempt::{Action, CallId, Operation, Outcome, RoundId};
use crate::algorithm::quorum::NodeId;
use crate::backend::BackendError;
use crate::nodes::{Change, Nodes, Reply};
use crate::runtime::BoxFuture;
use crate::telemetry;

/// Drives the machine of an attempt, and owns the calls whose commands it took from the machine.
///
/// When a driver is dropped with calls in flight, or as the last one of an attempt that has ended and is not
/// quiescent, a background task goes on in its place: see [`finish`](Self::finish).
pub(crate) struct Driver {
    attempt: Arc<Attempt>,
    calls: Vec<Call>,
    timer: Option<(Instant, BoxFuture<'static, ()>)>,
    changed: Option<EventListener>,
    /// To be reported when the mutex is free: a subscriber may ask for the lease, or block.
    reports: Vec<Report>,
    is_background: bool,
    /// Whether it no longer counts among the drivers.
    has_left: bool,
}

/// What became of a call.
enum Report {
    Settled(Call, Outcome, Option<BackendError>),
    /// The node has not replied to other calls for so long.
    Silent(NodeId, Operation, Duration),
    GivenUp(NodeId, Operation),
}

/// A call in flight.
struct Call {
    id: CallId,
    operation: Operation,
    round: RoundId,
    start: Instant,
    future: BoxFuture<'static, Reply>,
}

impl Driver {
    pub(crate) fn new(attempt: &Arc<Attempt>) -> Self {
        attempt.lock().drivers += 1;
        Self {
            attempt: Arc::clone(attempt),
            calls: Vec::new(),
            timer: None,
            changed: None,
            reports: Vec::new(),
            is_background: false,
            has_left: false,
        }
    }

    /// Drives until `done` has a result.
    pub(super) async fn run<T>(
        &mut self,
        mut done: impl FnMut(&mut State, Instant) -> Option<T>,
    ) -> T {
        poll_fn(|context| self.poll(context, &mut |state, _, now| done(state, now))).await
    }

    /// Drives until the gate owes no answer to the undo, the release is decided, or the machine is
    /// quiescent.
    pub(crate) async fn left(&mut self, gate: Option<NodeId>) {
        self.run(|state, _| {
            let node = |gate: NodeId| state.machine.nodes().nth(gate.index());
            let is_clean = gate.and_then(node).is_some_and(|(_, node)| node.has_answered_undo());
            (is_clean || state.released.is_some() || state.machine.is_quiescent()).then_some(())
        })
        .await;
    }

    /// Goes on in the background until the calls of this driver have settled. The last driver also goes on
    /// until an attempt that has ended is quiescent. What is in flight then is given up: the ttl is the
    /// backstop.
    pub(crate) fn finish(mut self) -> impl Future<Output = ()> + Send {
        // Before the first poll: a runtime that has ended drops the task at once.
        self.is_background = true;
        async move { self.finish_in_background().await }
    }

    async fn finish_in_background(&mut self) {
        let attempt = Arc::clone(&self.attempt);
        let start = attempt.cluster.now();
        let left = poll_fn(|context| {
            self.poll(context, &mut |state, has_calls, now| {
                let is_last = state.machine.has_ended() && state.drivers == 1;
                if !state.machine.is_quiescent() && (has_calls || is_last) {
                    return None;
                }
                // Under the mutex: of two drivers, only one finds that the other is still there.
                state.drivers -= 1;
                let unanswered = state.machine.nodes().filter(|(_, node)| node.is_busy()).count();
                Some(is_last.then(|| (now.saturating_duration_since(start), unanswered)))
            })
        })
        .await;
        self.has_left = true;
        if let Some((took, unanswered)) = left {
            telemetry::cleaned_up(attempt.claim.keys(), took, unanswered);
        }
    }

    /// Handles the replies that are there, then the time, then sends; and again until nothing changes.
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        done: &mut impl FnMut(&mut State, bool, Instant) -> Option<T>,
    ) -> Poll<T> {
        loop {
            // Before the state is read, so that no change is missed.
            let attempt = Arc::clone(&self.attempt);
            let changed = self.changed.get_or_insert_with(|| attempt.changed.listen());
            if Pin::new(changed).poll(context).is_ready() {
                self.changed = None;
                continue;
            }
            let replies = self.poll_calls(context);
            let has_progressed = !replies.is_empty();
            let now = attempt.cluster.now();
            let mut state = attempt.lock();
            if planted!("timer_comes_before_the_replies") {
                state.machine.handle_timeout(now);
            }
            self.handle(&mut state, replies, now);
            if state.machine.next_timeout().is_some_and(|due| due <= now) {
                state.machine.handle_timeout(now);
                state.follow(now);
            }
            let has_replies = self.send(&mut state, context, now);
            let mut is_decided = false;
            while let Some(decision) = state.machine.poll_decision() {
                // A reply to a first poll may have come later than `now` (T2).
                state.keep(decision, attempt.cluster.now());
                is_decided = true;
            }
            let next = state.machine.next_timeout();
            let has_others = state.drivers > 1;
            let result = done(&mut state, !self.calls.is_empty(), now);
            let node_timeout = state.node_timeout;
            drop(state);
            self.report(node_timeout, now);
            // Another driver may wait for a decision, or for the answers to an undo.
            if is_decided || (has_progressed && has_others) {
                attempt.notify();
            }
            if let Some(result) = result {
                return Poll::Ready(result);
            }
            if !has_replies && !is_decided {
                ready!(self.poll_timer(context, next));
            }
        }
    }

    /// Takes out the calls that have settled.
    fn poll_calls(&mut self, context: &mut Context<'_>) -> Vec<(Call, Reply)> {
        let mut replies = Vec::new();
        let mut at = 0;
        while let Some(call) = self.calls.get_mut(at) {
            match call.future.as_mut().poll(context) {
                Poll::Ready(reply) => replies.push((self.calls.remove(at), reply)),
                Poll::Pending => at += 1,
            }
        }
        replies
    }

    fn handle(&mut self, state: &mut State, replies: Vec<(Call, Reply)>, now: Instant) {
        for (call, reply) in replies {
            let (outcome, error) = (reply.outcome, reply.error.clone());
            state.handle_reply(call.id, call.operation, call.round, reply, now);
            self.reports.push(Report::Settled(call, outcome, error));
        }
    }

    fn report(&mut self, node_timeout: Duration, now: Instant) {
        let nodes = &self.attempt.cluster.nodes;
        for report in self.reports.drain(..) {
            match report {
                Report::Settled(call, outcome, error) => {
                    report_settled(nodes, &call, outcome, error.as_ref(), node_timeout, now);
                }
                Report::Silent(id, operation, silent) => {
                    if nodes.health(id).note_failure(now) == Change::Fails {
                        telemetry::node_silent(nodes.name(id), operation.name(), silent);
                    }
                }
                Report::GivenUp(id, operation) => {
                    let name = nodes.name(id);
                    telemetry::call_settled(name, operation.name(), "silent", None, None);
                }
            }
        }
    }

    /// Sends what the machine asks for. The first poll of a call, here under the mutex, fixes its place
    /// in the order of calls to its node (C3). Returns whether a call has settled at once.
    fn send(&mut self, state: &mut State, context: &mut Context<'_>, now: Instant) -> bool {
        let mut has_replies = false;
        while let Some((node, action)) = state.machine.poll_send() {
            match action {
                Action::Call(id, operation) => {
                    state.note_sent(node, operation);
                    let attempt = &self.attempt;
                    let (claim, options) =
                        (attempt.claim.clone(), attempt.call_options(node, operation));
                    let nodes = &attempt.cluster.nodes;
                    let silent = nodes.health(node).silent_for(now);
                    if let Some(silent) = silent.filter(|silent| *silent >= state.node_timeout) {
                        self.reports.push(Report::Silent(node, operation, silent));
                    }
                    let future = nodes.call(node, claim, operation, options, now);
                    let mut call = Call { id, operation, round: state.round(), start: now, future };
                    match call.future.as_mut().poll(context) {
                        Poll::Ready(reply) => {
                            has_replies = true;
                            let now = self.attempt.cluster.now();
                            self.handle(state, vec![(call, reply)], now);
                        }
                        Poll::Pending => self.calls.push(call),
                    }
                }
                Action::GiveUp(id) => {
                    if let Some(at) = self.calls.iter().position(|call| call.id == id) {
                        let call = self.calls.remove(at);
                        self.reports.push(Report::GivenUp(node, call.operation));
                    }
                }
            }
        }
        has_replies
    }

    /// Ready when the time has come; pending after the timer is registered.
    fn poll_timer(&mut self, context: &mut Context<'_>, next: Option<Instant>) -> Poll<()> {
        let Some(next) = next else {
            self.timer = None;
            return Poll::Pending;
        };
        if self.timer.as_ref().is_none_or(|(at, _)| *at != next) {
            self.timer = Some((next, self.attempt.cluster.runtime.sleep_until(next)));
        }
        let Some((_, timer)) = &mut self.timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(context));
        self.timer = None;
        Poll::Ready(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.has_left {
            return self.attempt.notify();
        }
        let mut state = self.attempt.lock();
        state.drivers -= 1;
        let is_last = state.drivers == 0;
        let has_work = is_last && state.machine.has_ended() && !state.machine.is_quiescent();
        drop(state);
        // A background task that is dropped was dropped by its runtime, which has ended (A1).
        if self.is_background || (self.calls.is_empty() && !has_work) {
            self.attempt.notify();
            return;
        }
        let mut successor = Self::new(&self.attempt);
        successor.calls = std::mem::take(&mut self.calls);
        self.attempt.cluster.tasks.spawn(successor.finish());
    }
}

/// Reports a settled call, and whether its node begins to fail or has recovered.
fn report_settled(
    nodes: &Nodes,
    call: &Call,
    outcome: Outcome,
    error: Option<&BackendError>,
    node_timeout: Duration,
    now: Instant,
) {
    let id = call.id.node();
    nodes.health(id).note_settled(now);
    let (name, operation) = (nodes.name(id), call.operation.name());
    let latency = now.saturating_duration_since(call.start);
    let vote = match outcome {
        _ if latency > node_timeout => "silent",
        Outcome::Granted(_) => "granted",
        Outcome::Refused => "refused",
        Outcome::Failed | Outcome::NotSent => "failed",
    };
    telemetry::call_settled(name, operation, vote, Some(latency), error);
    let change = match (error, vote) {
        (None, "granted" | "refused") => nodes.health(id).note_answer(now),
        _ => nodes.health(id).note_failure(now),
    };
    match (change, error) {
        (Change::None, _) => {}
        (Change::Recovers { after }, _) => telemetry::node_recovered(name, operation, after),
        (Change::Fails, Some(error)) => telemetry::node_failing(name, operation, error),
        (Change::Fails, None) => telemetry::node_silent(name, operation, latency),
    }
}
