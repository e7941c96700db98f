//! What the lock of an attempt guards: the machine, and what its decisions leave behind.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::end::Why;
use super::giving::{Giving, Releases};
use super::identity::{Owner, Won};
use super::messages::operation;
use super::renewing::Renewing;
use super::report::Report;
use crate::algorithm::attempt::{
    Action, AttemptMachine, CallId, Decision, End, Loss, Message, Outcome, RoundId, Vote,
};
use crate::algorithm::lease::Ttl;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::attempts::{RenewalPermit, Slot, Wake};
use crate::backend::{BackendError, Call, CallKind, CallResult, Tag};
use crate::error::{Lost, QuorumFailure, ReleaseError};
use crate::late::Actor;
use crate::nodes::{Change, outcome};
use crate::remote_wait::{RemoteWait, WaitInput};
use crate::telemetry;
use crate::tickets::Ticket;
use crate::waiting::Awaited;
use crate::wakers::Wakers;

/// The machine of an attempt, and what its callers look at.
pub(crate) struct State {
    pub(super) machine: AttemptMachine<BackendError>,
    /// The first round, once it is decided.
    pub(super) first: Option<Result<(), Loss>>,
    /// The request has heard of the first round, and has the lock.
    pub(super) is_taken: bool,
    /// What nodes have answered to a first round after it was lost.
    late: Vec<(NodeId, Outcome<BackendError>)>,
    /// The latest extension that was won, and the latest that failed.
    pub(super) extended: Option<RoundId>,
    pub(super) failed: Option<(RoundId, QuorumFailure)>,
    pub(super) lost: Option<Lost>,
    pub(super) released: Option<Result<(), ReleaseError>>,
    /// The undo of a lost round needs no more waiting; or a quorum of nodes owes nothing.
    pub(super) is_undone: bool,
    is_cleared: bool,
    /// The request or the guard is gone, or has no result to come.
    pub(super) is_left: bool,
    pub(super) is_closed: bool,
    renewing: Option<Renewing>,
    pub(super) giving: Giving,
    wakers: Wakers,
    /// When the last of the caller's results was there: what follows is background work.
    background_since: Option<Instant>,
    /// What the timekeeper knows.
    served: Option<Instant>,
    pub(super) is_over: bool,
}

/// What happens to an attempt, apart from what a caller does under the lock.
pub(crate) enum Input {
    Reply(Tag, CallResult),
    /// The request or the guard is gone. A request that had taken the tickets gives them back.
    Leave(Vec<Ticket>),
    Renewal,
    Back(NodeId),
    Close(Duration),
}

/// What is done after the lock is free.
#[derive(Default)]
pub(crate) struct Effects {
    /// The reading of the clock for inputs that bring none: one for all that are handled together.
    now: Option<Instant>,
    pub(super) tickets: Vec<Ticket>,
    /// The wait between processes of a lock that was won.
    won: Option<Arc<RemoteWait>>,
    permits: Vec<RenewalPermit>,
    wakers: Wakers,
    /// Tasks of the backend whose calls were given up.
    given_up: Vec<Waker>,
    pub(super) wake: Wake,
    pub(super) reports: Vec<Report>,
    /// Attempts to be told that a node answers again.
    back: Vec<(NodeId, Slot)>,
    is_over: bool,
}

impl Effects {
    /// Gives a permit back when the lock is free.
    fn give_back(&mut self, permit: Option<RenewalPermit>) {
        self.permits.extend(permit);
    }

    fn now(&mut self, attempt: &dyn Owner) -> Instant {
        *self.now.get_or_insert_with(|| attempt.cluster().now())
    }
}

impl Actor for State {
    type Input = (Input, Option<Instant>);
    type Effects = Effects;
    type Owner = dyn Owner;

    fn handle(
        &mut self,
        attempt: &dyn Owner,
        (input, now): (Input, Option<Instant>),
        effects: &mut Effects,
    ) {
        let now = now.unwrap_or_else(|| effects.now(attempt));
        match input {
            Input::Reply(tag, result) => self.handle_reply(attempt, &tag, result, now, effects),
            Input::Leave(tickets) => {
                self.giving.add(tickets);
                self.leave(attempt, now);
            }
            Input::Renewal => self.renew(attempt, now, effects),
            Input::Back(node) => self.machine.handle_back(node, now),
            Input::Close(grace) => {
                self.is_closed = true;
                self.machine.close(grace, now);
                self.wake(effects);
            }
        }
        self.follow(attempt, now, effects);
    }

    fn perform(attempt: &dyn Owner, effects: Effects) {
        let Effects {
            now: _,
            tickets,
            won,
            permits,
            wakers,
            given_up,
            wake,
            reports,
            back,
            is_over,
        } = effects;
        attempt.cluster().attempts.tell_back(back);
        drop(tickets);
        if let Some(wait) = won {
            wait.input(WaitInput::Won);
        }
        drop(permits);
        attempt.cluster().attempts.wake(wake);
        wakers.wake();
        given_up.into_iter().for_each(Waker::wake);
        for report in reports {
            report.emit(attempt);
        }
        if is_over {
            attempt.cluster().attempts.remove(attempt.slot);
        }
    }
}

impl Awaited for State {
    fn wakers(&mut self) -> &mut Wakers {
        &mut self.wakers
    }

    fn due(&self) -> Option<Instant> {
        if self.is_over {
            return None;
        }
        let renewal = self.renewing.as_ref().and_then(Renewing::due);
        [self.machine.next_timeout(), renewal, self.giving.due()].into_iter().flatten().min()
    }

    fn handle_due(&mut self, attempt: &dyn Owner, now: Instant, effects: &mut Effects) {
        let queued = attempt.queued.load(Ordering::Relaxed);
        self.machine.note_queued(NodeSet::of_bits(queued));
        self.machine.handle_timeout(now);
        if let Some(renewing) = &mut self.renewing {
            effects.give_back(renewing.begin_if_due(attempt, &mut self.machine, now));
        }
        self.follow(attempt, now, effects);
    }
}

/// What happens.
impl State {
    pub(super) fn new(machine: AttemptMachine<BackendError>, tickets: Vec<Ticket>) -> Self {
        Self {
            machine,
            first: None,
            is_taken: false,
            late: Vec::new(),
            extended: None,
            failed: None,
            lost: None,
            released: None,
            is_undone: false,
            is_cleared: false,
            is_left: false,
            is_closed: false,
            renewing: None,
            giving: Giving::new(tickets),
            wakers: Wakers::default(),
            background_since: None,
            served: None,
            is_over: false,
        }
    }

    fn handle_reply(
        &mut self,
        attempt: &dyn Owner,
        tag: &Tag,
        result: CallResult,
        now: Instant,
        effects: &mut Effects,
    ) {
        let cluster = attempt.cluster();
        let settled = cluster.nodes.settled(tag, result, now);
        effects.back.extend(settled.await_back.into_iter().map(|slot| (tag.node, slot)));
        if tag.kind == CallKind::Waiting {
            self.giving.handle_hint(attempt, tag, settled.result, now);
            return;
        }
        let outcome = outcome(settled.result);
        if telemetry::IS_ON {
            let latency = now.saturating_duration_since(tag.begun);
            effects.reports.push(Report::settled(tag, &outcome, latency, settled.change));
        }
        self.note_late(attempt, tag, &outcome);
        self.machine.handle_reply(CallId::new(tag.node, tag.number), outcome, now);
    }

    /// Keeps the answer to a round that is lost already: the error of the request says it (A4).
    fn note_late(&mut self, attempt: &dyn Owner, tag: &Tag, outcome: &Outcome<BackendError>) {
        let votes = matches!(tag.kind, CallKind::SetsTtl(_));
        if votes && self.machine.has_ended() && attempt.won.get().is_none() {
            self.late.push((tag.node, outcome.clone()));
        }
    }

    /// Nobody waits for a result any more.
    pub(super) fn leave(&mut self, attempt: &dyn Owner, now: Instant) {
        self.is_left = true;
        self.background_since.get_or_insert(now);
        if attempt.won.get().is_some() && attempt.end.check(now).is_ok() {
            attempt.end.end(Why::Released, now);
        }
        self.machine.cancel(now);
    }

    pub(super) fn release(&mut self, attempt: &dyn Owner, now: Instant, effects: &mut Effects) {
        self.is_left = true;
        if attempt.end.check(now).is_ok() {
            attempt.end.end(Why::Released, now);
        }
        self.machine.release(now);
        self.follow(attempt, now, effects);
    }

    pub(super) fn extend(
        &mut self,
        attempt: &dyn Owner,
        ttl: Ttl,
        effects: &mut Effects,
    ) -> Option<RoundId> {
        let now = attempt.cluster().now();
        let is_held = attempt.end.check(now).is_ok();
        let round = if is_held { self.machine.extend(ttl, now) } else { None };
        self.follow(attempt, now, effects);
        round
    }

    pub(super) fn detach(
        &mut self,
        attempt: &dyn Owner,
        effects: &mut Effects,
    ) -> Result<(), Lost> {
        let now = attempt.cluster().now();
        let is_held = attempt.end.check(now).is_ok();
        self.machine.detach(now);
        if is_held {
            attempt.end.end(Why::Detached, now);
            effects.tickets.extend(self.giving.take());
        }
        self.is_left = true;
        self.follow(attempt, now, effects);
        if is_held { Ok(()) } else { Err(self.lost(attempt)) }
    }

    pub(super) fn abandon(&mut self, attempt: &dyn Owner, effects: &mut Effects) {
        let now = attempt.cluster().now();
        self.is_left = true;
        attempt.end.end(Why::Detached, now);
        self.machine.abandon(now);
        if !self.machine.has_ended() {
            // Its round is not decided yet.
            self.machine.cancel(now);
        }
        self.follow(attempt, now, effects);
    }

    /// Begins the calls that the machine asks for, keeps what it decides, and looks at what follows from that.
    pub(super) fn follow(&mut self, attempt: &dyn Owner, now: Instant, effects: &mut Effects) {
        // A look may have found the end before the machine has heard of it.
        if attempt.won.get().is_some() && !self.machine.has_ended() && attempt.end.ended().is_some()
        {
            self.machine.close(Duration::MAX, now);
        }
        loop {
            while let Some((node, action)) = self.machine.poll_send() {
                match action {
                    Action::Send(id, message) => {
                        self.begin_call(attempt, node, id, message, now, effects)
                    }
                    Action::GiveUp(id) => self.give_up(attempt, node, id, now, effects),
                }
            }
            match self.machine.poll_decision() {
                Some(decision) => self.decided(attempt, decision, now, effects),
                None => break,
            }
        }
        let is_over = self.machine.is_quiescent();
        if (is_over || self.machine.is_releasing()) && !self.is_result_to_come() {
            let releases = Releases { is_decided: self.is_release_decided(), is_over };
            effects.tickets.extend(self.giving.give(attempt, releases, now));
        }
        for node in self.machine.awaits_back().iter() {
            attempt.cluster().nodes.await_back(node, attempt.slot);
        }
        if let Some(valid_until) = self.machine.valid_until() {
            attempt.end.publish(valid_until, self.machine.is_limited());
        } else if self.renewing.is_some() && self.machine.has_ended() {
            effects.give_back(self.renewing.take().and_then(Renewing::stop));
        }
        self.end_if_quiescent(attempt, now, effects);
        self.serve(attempt, effects);
    }

    fn begin_call(
        &mut self,
        attempt: &dyn Owner,
        node: NodeId,
        id: CallId,
        message: Message,
        now: Instant,
        effects: &mut Effects,
    ) {
        let cluster = attempt.cluster();
        let (operation, kind) = operation(attempt, node, message);
        let tag = Tag { node, number: id.number(), begun: now, kind, asks_server: false };
        let call = Call::new(operation, tag.clone(), attempt.sender());
        match cluster.nodes.begin(node, call, &*cluster.runtime, now) {
            Ok(silent) => {
                if silent >= attempt.node_timeout
                    && cluster.nodes.note_silent(node, now) == Change::Fails
                    && telemetry::IS_ON
                {
                    effects.reports.push(Report::Silent { node, kind, silent });
                }
            }
            Err(not_sent) => {
                if telemetry::IS_ON {
                    let outcome = Outcome::NotSent(not_sent.error.clone());
                    let change = cluster.nodes.note_silent(node, now);
                    effects.reports.push(Report::settled(&tag, &outcome, Duration::ZERO, change));
                }
                let outcome = Outcome::NotSent(not_sent.error);
                self.note_late(attempt, &tag, &outcome);
                self.machine.handle_reply(id, outcome, now);
            }
        }
    }

    fn give_up(
        &mut self,
        attempt: &dyn Owner,
        node: NodeId,
        id: CallId,
        now: Instant,
        effects: &mut Effects,
    ) {
        effects.given_up.extend(attempt.given_up.add(id.number()));
        if let Some(until) = now.checked_add(attempt.claim.ttl().as_duration()) {
            attempt.cluster().nodes.may_hold_until(node, until);
        }
        if telemetry::IS_ON {
            effects.reports.push(Report::GivenUp { node });
        }
    }

    fn decided(
        &mut self,
        attempt: &dyn Owner,
        decision: Decision,
        now: Instant,
        effects: &mut Effects,
    ) {
        match decision {
            Decision::Won { valid_until, token } => {
                self.first = Some(Ok(()));
                attempt.end.publish(valid_until, self.machine.is_limited());
                let _ = attempt.won.set(Won { at: now, token });
                effects.won = self.giving.end_wait(now);
                if let Some(renewing) = &mut self.renewing {
                    renewing.plan(attempt, &self.machine, true, now);
                }
            }
            Decision::NotWon(loss) => {
                self.first = Some(Err(loss));
                self.background_since = Some(now);
            }
            Decision::Undone => self.is_undone = true,
            Decision::Cleared => self.is_cleared = true,
            Decision::Extended { round, valid_until } => {
                self.extended = Some(round);
                attempt.end.publish(valid_until, self.machine.is_limited());
                self.extension_decided(attempt, round, None, now, effects);
            }
            Decision::ExtendFailed { round } => {
                let failure = self.failure(attempt);
                self.failed = Some((round, failure.clone()));
                self.extension_decided(attempt, round, Some(failure), now, effects);
            }
            Decision::LeaseLost(end) => self.lease_lost(attempt, end, now, effects),
            Decision::Released => self.release_decided(Ok(()), now),
            Decision::LostBefore => {
                let lost =
                    self.lost.clone().unwrap_or_else(|| Lost::NotHeld(self.failure(attempt)));
                self.release_decided(Err(ReleaseError::Lost(lost)), now);
            }
            Decision::Unconfirmed => {
                let failure = self.failure(attempt);
                self.release_decided(Err(ReleaseError::Unconfirmed(failure)), now);
            }
        }
        self.wake(effects);
    }

    fn extension_decided(
        &mut self,
        attempt: &dyn Owner,
        round: RoundId,
        failure: Option<QuorumFailure>,
        now: Instant,
        effects: &mut Effects,
    ) {
        if let Some(renewing) = &mut self.renewing {
            let decided = (round, failure.is_none());
            effects.give_back(renewing.handle_decided(attempt, &self.machine, decided, now));
        }
        if telemetry::IS_ON {
            let left = attempt.end.valid_until().saturating_duration_since(now);
            effects.reports.push(Report::Extension { took: self.machine.waited(), left, failure });
        }
    }

    /// Renews the lease from now on, if it is not renewed yet.
    pub(super) fn renew_from_now_on(&mut self, attempt: &dyn Owner, now: Instant) {
        if self.renewing.is_none() && !self.machine.has_ended() {
            let renewing = self.renewing.insert(Renewing::new(attempt));
            renewing.plan(attempt, &self.machine, true, now);
        }
    }

    /// A renewal that waited for others may begin.
    fn renew(&mut self, attempt: &dyn Owner, now: Instant, effects: &mut Effects) {
        if let Some(renewing) = &mut self.renewing {
            effects.give_back(renewing.begin(attempt, &mut self.machine, now));
        }
    }

    fn release_decided(&mut self, result: Result<(), ReleaseError>, now: Instant) {
        self.background_since = Some(now);
        self.released.get_or_insert(result);
    }

    fn lease_lost(&mut self, attempt: &dyn Owner, end: End, now: Instant, effects: &mut Effects) {
        let at = now.min(attempt.end.valid_until());
        attempt.end.end(
            match end {
                End::Expired => Why::Expired,
                End::HoldLimit => Why::HoldLimit,
                End::NotOurs => Why::NotOurs,
                End::Closed => Why::Closed,
            },
            at,
        );
        let (why, at) = attempt.end.ended().unwrap_or((Why::Expired, at));
        self.lost = Some(match why {
            Why::NotOurs => Lost::NotHeld(self.failure(attempt)),
            Why::Expired => Lost::Expired { last: self.failure(attempt) },
            why => lost_of(why),
        });
        if telemetry::IS_ON {
            let held = attempt.held(at);
            let lost = self.lost.clone();
            effects.reports.extend(lost.map(|lost| Report::Lost { lost, held }));
        }
    }

    fn end_if_quiescent(&mut self, attempt: &dyn Owner, now: Instant, effects: &mut Effects) {
        if !self.machine.is_quiescent() || mem::replace(&mut self.is_over, true) {
            return;
        }
        let unsettled = self.machine.unsettled();
        if let Some(until) = now.checked_add(attempt.claim.ttl().as_duration()) {
            unsettled.iter().for_each(|node| attempt.cluster().nodes.may_hold_until(node, until));
        }
        effects.given_up.extend(attempt.given_up.add_all());
        effects.is_over = true;
        self.wake(effects);
        if let (true, Some(since)) = (telemetry::IS_ON, self.background_since) {
            let took = now.saturating_duration_since(since);
            effects.reports.push(Report::CleanedUp { took, unanswered: unsettled.iter().count() });
        }
    }

    fn wake(&mut self, effects: &mut Effects) {
        self.wakers.move_into(&mut effects.wakers);
    }

    /// Tells the timekeeper of the next due time, if it is earlier than what it knows.
    fn serve(&mut self, attempt: &dyn Owner, effects: &mut Effects) {
        if let Some(due) = self.due()
            && self.served.is_none_or(|served| due < served)
        {
            self.served = Some(due);
            effects.wake.merge(attempt.cluster().attempts.serve(attempt.slot, due));
        }
    }

    /// The timekeeper has served the due time that it knew.
    pub(super) const fn note_served(&mut self) {
        self.served = None;
    }
}

/// What it knows.
impl State {
    /// Whether the release is decided; after a lost round or a drop, whether the undo is.
    pub(super) const fn is_release_decided(&self) -> bool {
        self.released.is_some() || self.is_cleared || self.is_undone
    }

    /// Whether the request has to hear of its round. With a lost one, or an expired win, it takes the tickets.
    pub(super) const fn is_result_to_come(&self) -> bool {
        self.first.is_some() && !self.is_taken && !self.is_left && !self.is_closed
    }

    /// Why the lease has ended.
    pub(super) fn lost(&self, attempt: &dyn Owner) -> Lost {
        let why = attempt.end.ended().map_or(Why::Expired, |(why, _)| why);
        match &self.lost {
            Some(lost) if why.is_loss() => lost.clone(),
            _ => lost_of(why),
        }
    }

    /// What each node answered in the last round that was decided, or after it if that is the first round.
    pub(super) fn failure(&self, attempt: &dyn Owner) -> QuorumFailure {
        let (nodes, waited) = (&attempt.cluster().nodes, self.machine.waited());
        if self.late.is_empty() {
            return nodes.failure(self.machine.votes(), waited);
        }
        let mut votes = self.machine.votes().to_vec();
        for (node, outcome) in &self.late {
            if let Some(vote @ Vote::Open) = votes.get_mut(node.index()) {
                *vote = outcome.clone().into();
            }
        }
        nodes.failure(&votes, waited)
    }
}

/// Why a lease has ended, where no node said anything about it.
pub(super) fn lost_of(why: Why) -> Lost {
    match why {
        Why::Released => Lost::Released,
        Why::Expired => Lost::Expired { last: QuorumFailure::default() },
        Why::NotOurs => Lost::NotHeld(QuorumFailure::default()),
        Why::HoldLimit => Lost::HoldLimit,
        Why::Detached => Lost::Detached,
        Why::Closed => Lost::Closed,
    }
}
