//! What many callers ask of one node at the same time travels together.
//!
//! A command costs fred several times what it costs the node, and each script a write of its own. So
//! a task of ours gathers the calls that are there when it runs, and makes one command of those that
//! can be one. A call that has nobody to travel with goes without that task.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::iter::from_fn;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::yield_now;

use fred::clients::{Client, WithOptions};
use fred::error::Error;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_core::protocol::{Company, Exchange, Joint, Seats};
use quorate_core::{BackendError, Call};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::unconstrained;

use crate::error;
use crate::frame::{Answer, Command, exchange};
use crate::link::{Closed, note, room};
use crate::window::{Place, Window};

/// How many calls one command has at the most: the first of them waits for the last.
const LARGEST: usize = 64;

/// How many commands may be under way before others gather.
const MOST_UNDER_WAY: usize = 8;

/// How many calls may be kept back before those are thrown out that nobody waits for.
const MANY: usize = 1024;

/// The way to the task that carries calls over one connection.
pub(crate) struct Carrier {
    calls: UnboundedSender<Carried>,
    fellows: Arc<Fellows>,
}

/// Who travels over one connection.
#[derive(Default)]
struct Fellows {
    company: Company,
    /// Of those who travel alone. They are told of the end of the connection.
    seats: Seats,
}

/// A call, and what is next for it.
pub(crate) struct Carried {
    call: Call,
    exchange: Exchange,
}

impl Carried {
    pub(crate) const fn new(call: Call, exchange: Exchange) -> Self {
        Self { call, exchange }
    }

    /// Whether anybody waits for the answer still.
    pub(crate) fn is_wanted(&self) -> bool {
        self.call.is_wanted()
    }

    /// There will be no answer.
    pub(crate) fn fails(self, error: &BackendError) {
        self.call.answer(Err(error.clone()));
    }

    fn joins(&self) -> bool {
        Joint::takes(self.exchange, self.call.claim())
    }
}

impl Carrier {
    /// Starts the task.
    pub(crate) fn start(way: Way) -> Self {
        let (sender, calls) = unbounded_channel();
        let fellows = Arc::<Fellows>::default();
        let runtime = way.runtime.clone();
        runtime.spawn(Work::new(calls, way, Arc::clone(&fellows)));
        Self { calls: sender, fellows }
    }

    /// Whether a call would have others to travel with.
    pub(crate) fn has_company(&self) -> bool {
        self.fellows.company.is_there()
    }

    /// Somebody's call travels alone.
    pub(crate) fn alone(&self) -> Loner<'_> {
        self.fellows.company.sets_out_alone();
        Loner { fellows: &self.fellows, seat: self.fellows.seats.take() }
    }

    /// If the task has gone, the call is given back.
    pub(crate) fn carry(&self, carried: Carried) -> Result<(), Carried> {
        self.fellows.company.waits();
        self.calls.send(carried).map_err(|SendError(carried)| carried)
    }
}

/// Somebody whose call travels alone.
pub(crate) struct Loner<'a> {
    fellows: &'a Fellows,
    seat: Option<usize>,
}

impl Loner<'_> {
    /// Whether [`poll_end`](Self::poll_end) is of any use.
    pub(crate) const fn is_told(&self) -> bool {
        self.seat.is_some()
    }

    /// Ready when the connection has ended.
    pub(crate) fn poll_end(&self, context: &Context<'_>) -> Poll<()> {
        match self.seat {
            Some(seat) => self.fellows.seats.poll_end(seat, context),
            None => Poll::Pending,
        }
    }
}

impl Drop for Loner<'_> {
    fn drop(&mut self) {
        self.fellows.company.was_alone();
        if let Some(seat) = self.seat {
            self.fellows.seats.leave(seat);
        }
    }
}

/// A connection, as far as the task needs it.
pub(crate) struct Way {
    pub(crate) client: WithOptions<Client>,
    pub(crate) closed: Closed,
    pub(crate) window: Arc<Window>,
    pub(crate) is_broken: Arc<AtomicBool>,
    pub(crate) has_answered: Arc<AtomicBool>,
    /// That of fred's task.
    pub(crate) runtime: Handle,
}

impl Way {
    /// Waits for a place for about so many bytes.
    fn room(&self, size: u64) -> BoxFuture<'static, Place> {
        let (client, closed) = (self.client.clone(), self.closed.clone());
        room(client, closed, Arc::clone(&self.window), self.runtime.clone(), size).boxed()
    }
}

/// What the task does. It ends with the connection, or when nobody can give it anything any more.
struct Work {
    calls: UnboundedReceiver<Carried>,
    gathered: VecDeque<Job>,
    /// With how many those are looked through that nobody waits for any more.
    many: usize,
    /// In the order in which they left, which is that of their answers.
    under_way: VecDeque<Request>,
    cancelled: Vec<Job>,
    /// For what has no room to leave.
    room: Option<BoxFuture<'static, Place>>,
    /// Whether others had the chance to join what is gathered.
    yielded: bool,
    /// Whether the node will not have calls together.
    separately: bool,
    way: Way,
    fellows: Arc<Fellows>,
}

/// With its runtime, perhaps, and then fred's task is gone, too.
impl Drop for Work {
    fn drop(&mut self) {
        self.way.is_broken.store(true, Ordering::Relaxed);
        self.fellows.seats.end();
        while self.last_call().is_some() {}
    }
}

/// What makes one command.
enum Job {
    Call(Carried),
    Calls(Joint, Vec<Carried>),
}

struct Request {
    answer: BoxFuture<'static, Result<Answer, Error>>,
    job: Job,
    place: Place,
}

impl Job {
    fn count(&self) -> usize {
        match self {
            Self::Call(_) => 1,
            Self::Calls(_, calls) => calls.len(),
        }
    }

    /// Whether it is waited for still, without those that are not.
    fn is_wanted(&mut self) -> bool {
        match self {
            Self::Call(carried) => carried.is_wanted(),
            Self::Calls(_, calls) => {
                calls.retain(Carried::is_wanted);
                !calls.is_empty()
            }
        }
    }

    fn command(&self) -> Command {
        match self {
            Self::Call(carried) => carried.exchange.command(carried.call.claim(), Command::of),
            Self::Calls(joint, calls) => {
                let each = calls.iter().map(|carried| (carried.exchange, carried.call.claim()));
                joint.command(each, Command::of)
            }
        }
    }

    /// There will be no answer.
    fn fails(self, error: &BackendError) {
        match self {
            Self::Call(carried) => carried.fails(error),
            Self::Calls(_, calls) => calls.into_iter().for_each(|carried| carried.fails(error)),
        }
    }
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.hear(context);
        if let Poll::Ready(reason) = this.way.closed.poll_unpin(context) {
            // What was answered before the end.
            this.hear(context);
            this.end(&reason);
            return Poll::Ready(());
        }
        let (taken, is_over) = this.take_in(context);
        this.set_out(context);
        let under_way: usize = this.under_way.iter().map(|request| request.job.count()).sum();
        let gathered = this.gathered.len();
        this.fellows.company.holds(gathered + under_way, taken);
        if is_over && gathered + under_way == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Work {
    const fn new(calls: UnboundedReceiver<Carried>, way: Way, fellows: Arc<Fellows>) -> Self {
        Self {
            calls,
            gathered: VecDeque::new(),
            many: MANY,
            under_way: VecDeque::new(),
            cancelled: Vec::new(),
            room: None,
            yielded: false,
            separately: false,
            way,
            fellows,
        }
    }

    /// Hears the answers that are there.
    fn hear(&mut self, context: &mut Context<'_>) {
        let mut again = Vec::new();
        while let Some(first) = self.under_way.front_mut()
            && let Poll::Ready(result) = first.answer.as_mut().poll(context)
            && let Some(Request { job, place, .. }) = self.under_way.pop_front()
        {
            self.way.window.answered(place);
            match result {
                Ok(answer) => {
                    note(&self.way.has_answered);
                    self.heard(job, answer, &mut again);
                }
                Err(error) => {
                    self.way.is_broken.store(true, Ordering::Relaxed);
                    match error.is_canceled() {
                        // What fred's task found in its queue when it ended: the reason is where it
                        // ends.
                        true => self.cancelled.push(job),
                        false => job.fails(&error::of_client(&error)),
                    }
                }
            }
        }
        // In front of those that came later, in the order in which they left.
        again.into_iter().rev().for_each(|job| self.gathered.push_front(job));
    }

    /// What is to be sent again, or next, goes into `again`.
    fn heard(&mut self, job: Job, answer: Answer, again: &mut Vec<Job>) {
        match job {
            Job::Call(Carried { call, exchange }) => match exchange.heard(answer) {
                ControlFlow::Break(answer) => call.answer(answer),
                ControlFlow::Continue(exchange) => {
                    again.push(Job::Call(Carried { call, exchange }));
                }
            },
            Job::Calls(joint, calls) => match joint.heard(calls.len(), answer) {
                ControlFlow::Continue(joint) => again.push(Job::Calls(joint, calls)),
                ControlFlow::Break(Some(answers)) => {
                    let each = calls.into_iter().zip(answers);
                    each.for_each(|(carried, answer)| carried.call.answer(answer));
                }
                ControlFlow::Break(None) => {
                    self.separately = true;
                    again.extend(calls.into_iter().map(Job::Call));
                }
            },
        }
    }

    /// Takes in what was given: how many, and whether nothing more can come.
    fn take_in(&mut self, context: &mut Context<'_>) -> (usize, bool) {
        let mut taken = 0;
        while let Poll::Ready(carried) = self.calls.poll_recv(context) {
            let Some(carried) = carried else { return (taken, true) };
            self.gathered.push_back(Job::Call(carried));
            taken += 1;
        }
        if self.gathered.len() >= self.many {
            self.gathered.retain_mut(Job::is_wanted);
            self.many = (2 * self.gathered.len()).max(MANY);
        }
        (taken, false)
    }

    /// Sends what is gathered and still waited for, as far as there is room.
    fn set_out(&mut self, context: &mut Context<'_>) {
        while !self.gathered.is_empty() && self.under_way.len() < MOST_UNDER_WAY {
            if !self.under_way.is_empty() && !self.yielded {
                self.yielded = true;
                context.waker().wake_by_ref();
                return;
            }
            let mut place = None;
            if let Some(room) = &mut self.room {
                let Poll::Ready(here) = room.as_mut().poll(context) else { return };
                place = Some(here);
                self.room = None;
            }
            let before = self.gathered.len().min(LARGEST);
            let Some(job) = self.next() else { break };
            let command = job.command();
            let size = command.size();
            let Some(place) = place.or_else(|| self.way.window.place(size)) else {
                self.gathered.push_front(job);
                self.room = Some(self.way.room(size));
                continue;
            };
            self.fellows.company.leaves(before.max(job.count()));
            let client = self.way.client.clone();
            let answer = async move { exchange(&client, command).await };
            let mut request = Request { answer: Box::pin(answer), job, place };
            // It leaves when it is first polled. The answer is heard in its turn.
            let answer = request.answer.as_mut().poll(context);
            if let Poll::Ready(answer) = answer {
                request.answer = Box::pin(std::future::ready(answer));
                context.waker().wake_by_ref();
            }
            self.under_way.push_back(request);
        }
        self.yielded = false;
        if self.gathered.is_empty() {
            // Others may have it.
            self.room = None;
        }
    }

    /// What leaves next: calls that can be one command, as many as there are one after the other.
    fn next(&mut self) -> Option<Job> {
        let mut gathered = from_fn(|| self.gathered.pop_front());
        let first = match gathered.find_map(|mut job| job.is_wanted().then_some(job))? {
            Job::Call(first) if !self.separately && first.joins() => first,
            job => return Some(job),
        };
        let mut calls = vec![first];
        while calls.len() < LARGEST
            && let Some(Job::Call(next)) = self.gathered.front()
            && next.joins()
            && let Some(Job::Call(next)) = self.gathered.pop_front()
        {
            if next.is_wanted() {
                calls.push(next);
            }
        }
        Some(match calls.len() {
            1 => Job::Call(calls.pop()?),
            _ => Job::Calls(Joint::default(), calls),
        })
    }

    fn end(&mut self, reason: &BackendError) {
        self.way.is_broken.store(true, Ordering::Relaxed);
        self.under_way.drain(..).for_each(|request| request.job.fails(reason));
        self.cancelled.drain(..).for_each(|job| job.fails(reason));
        self.gathered.drain(..).for_each(|job| job.fails(reason));
        while let Some(carried) = self.last_call() {
            carried.fails(reason);
        }
    }

    /// One of those that are left in the queue when it ends. What comes in that very moment would stay
    /// there for as long as anybody can send, so it is waited for: it has been counted, and is there
    /// in nanoseconds.
    fn last_call(&mut self) -> Option<Carried> {
        self.calls.close();
        loop {
            let next = poll_fn(|context| self.calls.poll_recv(context));
            match unconstrained(next).now_or_never() {
                Some(last) => return last,
                None => yield_now(),
            }
        }
    }
}
