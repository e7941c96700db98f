//! The life of one connection: pipelines out, replies back to their calls.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{self, Duration};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use quorate_core::backend::{Call, CallResult, ListTask, Operation};
use quorate_core::{BackendError, BackendErrorKind};
use tokio::time::{Instant, Sleep, sleep_until};

use super::shared::Batcher;
use super::sharing::Sharing;
use crate::connection::{Connection, Dial, LEAST_LIFE, SILENT};
use crate::error_reply::error_of_reply;
use crate::features::Features;
use crate::handshake::{Purpose, loads};
use crate::operation::{self, Form, Step};
use crate::script::By;
use crate::value::{Push, Value, no_reply};

/// A command in the form of the client.
type CommandOf<D> = <<D as Dial>::Connection as Connection>::Command;

type Answers = Vec<Result<Value, BackendError>>;

/// One connection, until it has ended.
pub(super) struct Serving<'a, D: Dial> {
    shared: &'a Batcher<D>,
    connection: &'a D::Connection,
    features: Features,
    /// Replies come in order, so only the oldest is polled.
    in_flight: VecDeque<Pipeline<'a>>,
    /// Second commands of calls. They leave first.
    again: VecDeque<(Call, CommandOf<D>, Form)>,
    sharing: Sharing,
    has_replied: bool,
    has_yielded: bool,
    made_at: Instant,
    /// The server has become a replica. Nothing leaves any more, and the connection ends when all
    /// is answered.
    is_demoted: bool,
    /// The user may not choose any more what the server tracks.
    is_untracked: bool,
    /// The window was full, and calls wait since then.
    is_behind: bool,
    /// When something was last received, or when the first command left after all had been
    /// answered.
    active_at: Instant,
    /// When the last watch was there.
    watched_at: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the node is another server by now, and when that was last asked.
    moving: Option<BoxFuture<'a, bool>>,
    asked_at: Instant,
}

struct Pipeline<'a> {
    sending: MaybeDone<BoxFuture<'a, Answers>>,
    /// Commands in front that belong to no call: those that load scripts,
    loads: usize,
    /// and those about the list of the node's group.
    lists: usize,
    task: ListTask,
    sent: Vec<Sent>,
}

/// A command that has left.
struct Sent {
    call: Call,
    form: Form,
    /// The other calls of its script.
    others: Vec<Call>,
    /// A command in front makes the server track its keys.
    is_tracked: bool,
}

impl Sent {
    const fn new(call: Call, form: Form) -> Self {
        Self { call, form, others: Vec::new(), is_tracked: false }
    }
}

impl<'a, D: Dial> Serving<'a, D> {
    pub(super) fn new(
        shared: &'a Batcher<D>,
        connection: &'a D::Connection,
        features: Features,
    ) -> Self {
        let now = Instant::now();
        Self {
            shared,
            connection,
            features,
            in_flight: VecDeque::with_capacity(WINDOW),
            again: VecDeque::new(),
            sharing: Sharing::default(),
            has_replied: false,
            has_yielded: false,
            made_at: now,
            is_demoted: false,
            is_untracked: false,
            is_behind: false,
            active_at: now,
            watched_at: now,
            timer: None,
            moving: None,
            asked_at: now,
        }
    }

    /// Ready when the connection has ended: with an error if it was of no use.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BackendError>> {
        loop {
            if self.shared.queue.is_abandoned() {
                return Poll::Ready(Ok(()));
            }
            while let Poll::Ready(answered) = self.poll_replies(context) {
                match answered {
                    Some(Ok(())) => {}
                    Some(Err(Nonsense)) => return Poll::Ready(self.end()),
                    None => break,
                }
            }
            // Replies that came before the end still arrive.
            let is_over = self.is_demoted || self.connection.is_closed() || self.is_unproven();
            if is_over && self.in_flight.is_empty() {
                return Poll::Ready(self.end());
            }
            let mut is_answered = false;
            while !is_over && self.in_flight.len() < WINDOW && self.has_calls() {
                // The tasks that can run go first, once before each pipeline: the acquire of a task
                // that a release wakes then leaves in the pipeline of that release.
                if !std::mem::replace(&mut self.has_yielded, true) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                self.has_yielded = false;
                is_answered |= self.send(context);
            }
            self.is_behind = self.in_flight.len() >= WINDOW;
            if let Poll::Ready(ended) = self.poll_timer(context) {
                return Poll::Ready(ended);
            }
            let awaits_calls = !is_over && self.in_flight.len() < WINDOW;
            if !is_answered && !self.shared.queue.register(context, awaits_calls) {
                return Poll::Pending;
            }
        }
    }

    fn has_calls(&self) -> bool {
        !self.again.is_empty() || !self.shared.queue.is_empty()
    }

    /// Hands the next pipeline to the client. Returns whether it is answered already.
    fn send(&mut self, context: &mut Context<'_>) -> bool {
        let commands = self.shared.limits().commands;
        let again = self.again.len().min(commands);
        let taken = self.shared.queue.take(commands - again);
        let mut sent = Vec::with_capacity(again + taken.len());
        let mut commands = Vec::with_capacity(sent.capacity());
        if std::mem::take(&mut self.features.must_load) {
            commands.extend(loads(self.features.runs_when_full));
        }
        let loads = commands.len();
        let task = self.list_task(&taken);
        if let Some(group) = &self.shared.way.settings.group {
            let compares = self.features.compare_and_delete.is_some();
            commands.extend(group.commands(&task, compares));
        }
        let front = commands.len();
        for (call, command, form) in self.again.drain(..again) {
            commands.push(command);
            sent.push(Sent::new(call, form));
        }
        self.sharing.clear();
        for call in taken {
            let operation = call.operation();
            if let Some(script) = self.sharing.join(operation, &self.features) {
                self.note_left(&call);
                sent[script].others.push(call);
                continue;
            }
            match operation::first(operation, &self.features) {
                Step::Send(command, form) => {
                    self.sharing.begin(operation, &self.features, sent.len());
                    self.note_left(&call);
                    commands.push(command);
                    sent.push(Sent::new(call, form));
                }
                Step::Done(answer) => call.answer(answer),
            }
        }
        if sent.is_empty() && front == loads {
            self.features.must_load |= loads > 0;
            return false;
        }
        // The last one first: what is sent in front of a command moves those behind.
        for (at, one) in sent.iter_mut().enumerate().rev() {
            if !one.others.is_empty() {
                let calls = std::iter::once(&one.call).chain(&one.others);
                let command = operation::together(calls.map(Call::operation), &self.features);
                commands[front + at] = command;
            }
            one.is_tracked = self.features.opts_in
                && operation::pushed_keys(one.call.operation()).next().is_some();
            if one.is_tracked {
                commands.insert(front + at, operation::tracked());
            }
        }
        if self.in_flight.is_empty() {
            self.active_at = Instant::now();
            if self.shared.purpose == Purpose::Watches {
                // That of an idle connection may be later than what is due now.
                self.timer = None;
            }
        }
        let mut sending = maybe_done(self.connection.send(commands).boxed());
        // The first poll hands it over.
        let is_answered = sending.poll_unpin(context).is_ready();
        let lists = front - loads;
        self.in_flight.push_back(Pipeline { sending, loads, lists, task, sent });
        self.arm();
        is_answered
    }

    /// A call leaves with this pipeline.
    fn note_left(&self, call: &Call) {
        // One that had to wait has spent its time here: its answer has one node timeout more.
        call.note_left(self.is_behind);
        if self.shared.purpose == Purpose::Watches || self.features.tracks {
            for key in operation::pushed_keys(call.operation()) {
                self.shared.tracking.watch(&key, call);
            }
        }
    }

    /// Answers the calls of the oldest pipeline. `None`: nothing is in flight.
    fn poll_replies(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<(), Nonsense>>> {
        let Some(pipeline) = self.in_flight.front_mut() else { return Poll::Ready(None) };
        ready!(pipeline.sending.poll_unpin(context));
        Poll::Ready(self.in_flight.pop_front().map(|pipeline| self.answer(pipeline)))
    }

    /// What is to be done with the list of the node's group, for any of these calls.
    fn list_task(&self, calls: &[Call]) -> ListTask {
        let task = |is_it: fn(&ListTask) -> bool| {
            calls.iter().map(Call::list_task).find(|task| is_it(task)).cloned()
        };
        let keep = task(|task| matches!(task, ListTask::Keep { .. }));
        keep.or_else(|| task(|task| matches!(task, ListTask::Read))).unwrap_or_default()
    }

    fn answer(&mut self, pipeline: Pipeline<'a>) -> Result<(), Nonsense> {
        let Pipeline { mut sending, loads, lists, task, sent } = pipeline;
        let answers = Pin::new(&mut sending).take_output().unwrap_or_default();
        let tracked = sent.iter().filter(|sent| sent.is_tracked).count();
        if answers.len() != loads + lists + sent.len() + tracked {
            return Err(Nonsense);
        }
        self.active_at = Instant::now();
        // One reading of the clock for all.
        let now = sent.iter().find_map(|sent| sent.call.now());
        let mut answers = answers.into_iter();
        let refused = |answer: &Result<_, _>| matches!(answer, Ok(Value::Error(_)));
        let lacks = |answer: &Result<_, _>| match answer {
            Ok(Value::Error(text)) => error_of_reply(text).is_lack(),
            _ => false,
        };
        if answers.by_ref().take(loads).filter(refused).count() > 0 {
            self.features.scripts = self.features.scripts.clone().map(|_| By::Text);
        }
        if let Some(group) = self.shared.way.settings.group.as_ref().filter(|_| lists > 0) {
            let answers = answers.by_ref().take(lists).collect();
            self.features.note_group(group, &self.shared.way.name, answers, &task);
        }
        for Sent { call, form, others, is_tracked } in sent {
            // A server that is busy with a script refuses all for a while.
            if is_tracked && answers.next().is_some_and(|answer| lacks(&answer)) {
                (self.features.opts_in, self.features.tracks) = (false, false);
                self.is_untracked = true;
            }
            let answer = answers.next().unwrap_or_else(no_reply);
            if others.is_empty() {
                self.handle(call, form, answer, now)?;
                continue;
            }
            let calls = std::iter::once(&call).chain(&others);
            let answers = operation::answers(calls.map(Call::operation), answer);
            for (call, answer) in std::iter::once(call).chain(others).zip(answers) {
                self.handle(call, Form::Together, answer, now)?;
            }
        }
        Ok(())
    }

    /// Answers a call, or queues its next command.
    fn handle(
        &mut self,
        call: Call,
        form: Form,
        answer: Result<Value, BackendError>,
        now: Option<time::Instant>,
    ) -> Result<(), Nonsense> {
        let settle = |call: Call, answer| match now {
            Some(now) => call.answer_at(answer, now),
            None => call.answer(answer),
        };
        self.features.report_group(&call);
        let reply = match answer {
            Ok(reply) => reply,
            Err(error) => {
                settle(call, operation::end(form, &self.features).unwrap_or(Err(error)));
                return Ok(());
            }
        };
        self.has_replied = true;
        match operation::next(call.operation(), form, reply, &mut self.features) {
            Step::Send(command, form) => self.again.push_back((call, command, form)),
            Step::Done(answer) => {
                if let Operation::Revoke { key, .. } = call.operation() {
                    // The server pushes no change to the connection that made it.
                    let key = Push::Key(key.as_bytes().to_vec());
                    self.shared.tracking.handle_push(&key);
                }
                self.note_role(&answer);
                let is_nonsense = answer.as_ref().is_err_and(is_nonsense);
                settle(call, answer);
                if is_nonsense {
                    // The replies behind it may belong to other commands.
                    return Err(Nonsense);
                }
            }
        }
        Ok(())
    }

    /// The user may not release or choose what is tracked any more, or the server was a replica:
    /// the next handshake says what is so by now.
    fn is_unproven(&self) -> bool {
        let is_denied = self.features.is_denied() || self.is_untracked;
        let is_unproven = is_denied || self.features.no_vote.is_some();
        is_unproven && Instant::now() >= self.made_at + LEAST_LIFE
    }

    /// A server that has become a replica is left, in case that its address leads to the new
    /// primary.
    fn note_role(&mut self, answer: &CallResult) {
        let is_of_replica = |error: &BackendError| error.kind() == BackendErrorKind::ReadOnly;
        let is_old = self.active_at >= self.made_at + LEAST_LIFE;
        self.is_demoted |= is_old && answer.as_ref().is_err_and(is_of_replica);
    }

    /// The connection has ended. What is queued leaves over the next one, if this one was of any
    /// use.
    fn end(&mut self) -> Result<(), BackendError> {
        let mut waiting = Vec::new();
        for (call, _, form) in std::mem::take(&mut self.again) {
            match operation::end(form, &self.features) {
                Some(answer) => call.answer(answer),
                None => waiting.push(call),
            }
        }
        waiting.iter().for_each(Call::note_queued);
        self.shared.queue.put_back(waiting.into_iter());
        // Where it was asked for votes alone, nothing was sent.
        if self.has_replied || self.features.no_vote.is_some() {
            return Ok(());
        }
        let text = "the connection ended before its first reply";
        Err(BackendError::new(BackendErrorKind::Connection, text))
    }
}

/// A reply that its command does not have.
struct Nonsense;

fn is_nonsense(error: &BackendError) -> bool {
    error.kind() == BackendErrorKind::Protocol
}

/// Time: the reply limit, and what belongs to watches.
impl<D: Dial> Serving<'_, D> {
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BackendError>> {
        while let Some(timer) = &mut self.timer
            && timer.as_mut().poll(context).is_ready()
        {
            self.timer = None;
            if let Some(ended) = self.handle_timeout(Instant::now()) {
                return Poll::Ready(ended);
            }
            self.arm();
        }
        let Some(moving) = &mut self.moving else { return Poll::Pending };
        let has_moved = ready!(moving.poll_unpin(context));
        self.moving = None;
        if has_moved { Poll::Ready(self.end()) } else { Poll::Pending }
    }

    fn handle_timeout(&mut self, now: Instant) -> Option<Result<(), BackendError>> {
        let shared = self.shared;
        shared.queue.sweep();
        if !self.in_flight.is_empty() && now >= self.active_at + shared.limits().reply {
            return Some(self.end());
        }
        if self.asks_at().is_some_and(|at| now >= at) && self.moving.is_none() {
            self.asked_at = now;
            let (dial, connection) = (shared.way.dial(), self.connection);
            let moved = async move { dial.has_moved(connection, shared.limits().connect).await };
            self.moving = Some(moved.boxed());
        }
        if shared.purpose == Purpose::Watches {
            if shared.tracking.purge() {
                self.watched_at = now;
            }
            if !shared.way.dial().pushes_flushes() {
                shared.tracking.handle_push(&Push::AllKeys);
            }
            if self.in_flight.is_empty() && now >= self.watched_at + IDLE_PERIOD {
                return Some(Ok(()));
            }
        }
        None
    }

    /// When the dial is asked whether the node is another server by now: again and again while no
    /// reply comes.
    fn asks_at(&self) -> Option<Instant> {
        let is_asked = !self.in_flight.is_empty() && self.shared.way.dial().can_move();
        is_asked.then(|| self.active_at.max(self.asked_at) + SILENT)
    }

    /// Sets the timer if there is something to wait for. It may fire early, but never late.
    fn arm(&mut self) {
        if self.timer.is_some() {
            return;
        }
        let limit = self.shared.limits().reply;
        let replied = (!self.in_flight.is_empty()).then(|| self.active_at + limit);
        let is_needed = replied.is_some() || self.shared.purpose == Purpose::Watches;
        let period = is_needed.then(|| Instant::now() + PERIOD);
        let due = [replied, period, self.asks_at()].into_iter().flatten().min();
        self.timer = due.map(|due| Box::pin(sleep_until(due)));
    }
}

/// Pipelines in flight.
const WINDOW: usize = 4;

/// How often calls and watches that were given up are dropped, while a reply or a push is awaited.
/// All watches are notified then, too, if the client does not pass on the push of a flush.
const PERIOD: Duration = Duration::from_secs(2);

/// For how long a connection for watches is kept without any.
const IDLE_PERIOD: Duration = Duration::from_secs(60);
