//! What many callers send to one node at the same time travels together.
//!
//! A request through redis-rs costs a message to the task that drives the connection and a message
//! back, far more than a command in it. So a task of our own gathers what is there when it runs, and
//! sends it as one request. A command that has nobody to travel with goes without that task.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_core::protocol::{Exchange, Joint};
use quorate_core::{Ask, BackendError, Call};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{
    UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel,
};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, unconstrained};
use tokio::time::{Sleep, sleep};

use crate::error;
use crate::line::packed;
use crate::pool::Lane;
use crate::pulse::{Loner, Pulse};

/// How many commands one request has at the most: the first of them waits for the last.
const LARGEST: usize = 64;

/// How many requests may be under way before others gather.
const MOST_UNDER_WAY: usize = 8;

/// How often it is looked whether there is still a connection.
const WATCH: Duration = Duration::from_secs(1);

/// How many commands may be kept back before those are thrown out that nobody waits for.
const MANY: usize = 1024;

/// The task that carries commands together over one connection.
pub(crate) struct Carrier {
    connection: MultiplexedConnection,
    pulse: Arc<Pulse>,
    jobs: UnboundedSender<Job>,
    task: JoinHandle<()>,
}

/// What is to be sent.
enum Job {
    Command(Cmd, oneshot::Sender<Result<Value, Trouble>>),
    Call(Carried),
    Calls(Joint, Vec<Carried>),
}

/// A call to carry, and what is next for it.
pub(crate) struct Carried {
    call: Call,
    exchange: Exchange,
    /// Where it goes if it has not left when the connection ends. Who waits for it keeps that.
    lane: Weak<Lane>,
}

/// Who waits for the answer to a command that has left.
enum Waiter {
    Caller(oneshot::Sender<Result<Value, Trouble>>),
    Call(Carried),
    Calls(Joint, Vec<Carried>),
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection has ended, and the command has not left.
    NotSent(Box<Cmd>),
    /// The command may have left.
    Failed(RedisError),
}

impl Trouble {
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Failed(error) => error::ends_connection(error),
        }
    }

    pub(crate) fn told(self) -> BackendError {
        match self {
            Self::NotSent(_) => lost(),
            Self::Failed(error) => error::of_redis(&error),
        }
    }
}

impl Carrier {
    /// Starts the task in the runtime that the caller is in.
    pub(crate) fn start(connection: MultiplexedConnection) -> Self {
        let (sender, jobs) = unbounded_channel();
        let pulse = Arc::new(Pulse::new());
        // Its requests leave when they are first polled, which a budget would keep some from.
        let work = Work::new(jobs, sender.downgrade(), connection.clone(), Arc::clone(&pulse));
        Self { connection, pulse, jobs: sender, task: tokio::spawn(unconstrained(work)) }
    }

    /// Whether nothing is to be sent over the connection any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.pulse.is_broken()
    }

    /// Nothing is to be sent over the connection any more.
    pub(crate) fn give_up(&self) {
        self.pulse.end();
    }

    /// Whether the runtime has ended in which the task was started, and with it the connection:
    /// tokio does not tell otherwise.
    fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Whether no command can be sent any more, as far as is known here. Waits for nothing.
    pub(crate) fn is_closed(&self) -> bool {
        self.has_ended() || is_closed(&self.connection)
    }

    /// Sends a command, together with others if there are any. Gives it back if the task is gone.
    ///
    /// It may not have left before the answer is first polled.
    pub(crate) fn send(&self, command: Cmd) -> Result<Answer, Cmd> {
        if !self.has_ended()
            && let Some(loner) = Loner::set_out(&self.pulse)
        {
            return Ok(Answer::Alone(alone(self.connection.clone(), command, loner)));
        }
        let (caller, answer) = oneshot::channel();
        match self.queue(Job::Command(command, caller)) {
            Ok(()) => Ok(Answer::Carried(answer)),
            Err(SendError(Job::Command(command, _))) => Err(command),
            Err(SendError(_)) => Ok(Answer::Carried(answer)),
        }
    }

    /// Whether a command would have others to travel with.
    pub(crate) fn has_company(&self) -> bool {
        self.pulse.company().is_there() && !self.has_ended()
    }

    /// Sends the commands of a call, together with others. If the task is gone, the call is, too.
    pub(crate) fn carry(&self, carried: Carried) {
        let _ = self.queue(Job::Call(carried));
    }

    fn queue(&self, job: Job) -> Result<(), SendError<Job>> {
        self.pulse.company().waits();
        self.jobs.send(job)
    }
}

/// The answer to one command, once it is there.
pub(crate) enum Answer {
    Alone(BoxFuture<'static, Result<Value, Trouble>>),
    Carried(oneshot::Receiver<Result<Value, Trouble>>),
}

impl Future for Answer {
    type Output = Result<Value, Trouble>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Alone(answer) => answer.as_mut().poll(context),
            Self::Carried(answer) => answer.poll_unpin(context).map(|answer| {
                // The task was lost with its runtime.
                answer.unwrap_or_else(|_| Err(Trouble::Failed(gone())))
            }),
        }
    }
}

fn alone(
    mut connection: MultiplexedConnection,
    command: Cmd,
    loner: Loner,
) -> BoxFuture<'static, Result<Value, Trouble>> {
    Box::pin(async move {
        let mut sent = pin!(connection.send_packed_command(&command));
        poll_fn(|context| match sent.as_mut().poll(context) {
            Poll::Ready(answer) => {
                if answer.is_ok() {
                    loner.beat();
                }
                Poll::Ready(answer.map_err(Trouble::Failed))
            }
            Poll::Pending => loner.poll_forgotten(context).map(|()| Err(Trouble::Failed(gone()))),
        })
        .await
    })
}

impl Carried {
    pub(crate) const fn new(call: Call, exchange: Exchange, lane: Weak<Lane>) -> Self {
        Self { call, exchange, lane }
    }

    /// Makes of an answer what is next, if anything is.
    fn heard(self, answer: Result<Value, BackendError>) -> Option<Self> {
        match self.exchange.heard(answer.and_then(error::reply)) {
            ControlFlow::Continue(exchange) => Some(Self { exchange, ..self }),
            ControlFlow::Break(answer) => {
                self.call.answer(answer);
                None
            }
        }
    }

    fn is_release_of_one(&self) -> bool {
        self.call.ask() == Ask::Release && Joint::takes(self.exchange, self.call.claim())
    }

    fn command(&self) -> Cmd {
        self.exchange.command(self.call.claim(), packed)
    }

    /// Goes on over another connection, unless it is given up: what undoes it may have gone before
    /// it then.
    async fn go_on(self) {
        if let Some(lane) = self.lane.upgrade() {
            lane.carry_anew(self).await;
        }
    }

    /// There is no connection for it.
    pub(crate) fn fails(self, error: BackendError) {
        self.call.answer(Err(error));
    }
}

impl Job {
    fn is_wanted(&self) -> bool {
        match self {
            Self::Command(_, caller) => !caller.is_closed(),
            Self::Call(carried) => carried.call.is_wanted(),
            Self::Calls(_, calls) => calls.iter().any(|carried| carried.call.is_wanted()),
        }
    }

    fn set_out(self) -> (Cmd, Waiter) {
        match self {
            Self::Command(command, caller) => (command, Waiter::Caller(caller)),
            Self::Call(carried) => (carried.command(), Waiter::Call(carried)),
            Self::Calls(joint, mut calls) => {
                calls.retain(|carried| carried.call.is_wanted());
                let each = calls.iter().map(|carried| (carried.exchange, carried.call.claim()));
                (joint.command(each, packed), Waiter::Calls(joint, calls))
            }
        }
    }

    /// The connection has ended before it could leave.
    fn turn_away(self) {
        match self {
            Self::Command(command, caller) => {
                let _ = caller.send(Err(Trouble::NotSent(Box::new(command))));
            }
            Self::Call(carried) => {
                tokio::spawn(carried.go_on());
            }
            Self::Calls(_, calls) => calls.into_iter().map(Self::Call).for_each(Self::turn_away),
        }
    }
}

impl Waiter {
    /// How many calls, or commands of callers.
    fn count(&self) -> usize {
        match self {
            Self::Caller(_) | Self::Call(_) => 1,
            Self::Calls(_, calls) => calls.len(),
        }
    }

    fn hear(self, answer: Result<Value, RedisError>, more: &More) {
        match self {
            Self::Caller(caller) => {
                let _ = caller.send(answer.map_err(Trouble::Failed));
            }
            Self::Call(carried) => {
                let next = carried.heard(answer.map_err(|error| error::of_redis(&error)));
                if let Some(next) = next {
                    more.send(Job::Call(next));
                }
            }
            Self::Calls(joint, calls) => hear_together(joint, calls, answer, more),
        }
    }
}

fn hear_together(
    joint: Joint,
    calls: Vec<Carried>,
    answer: Result<Value, RedisError>,
    more: &More,
) {
    let answer = match answer {
        Err(error) if error::ends_connection(&error) => {
            let error = error::of_redis(&error);
            return calls.into_iter().for_each(|carried| carried.call.answer(Err(error.clone())));
        }
        Err(error) => Err(error::of_redis(&error)),
        Ok(value) => error::reply(value),
    };
    match joint.heard(calls.len(), answer) {
        ControlFlow::Continue(joint) => more.send(Job::Calls(joint, calls)),
        ControlFlow::Break(Some(answers)) => {
            for (carried, answer) in calls.into_iter().zip(answers) {
                carried.call.answer(answer);
            }
        }
        ControlFlow::Break(None) => {
            more.separately.store(true, Ordering::Relaxed);
            calls.into_iter().for_each(|carried| more.send(Job::Call(carried)));
        }
    }
}

/// For what an answer makes necessary.
#[derive(Clone)]
struct More {
    jobs: WeakUnboundedSender<Job>,
    /// Whether the node will not have calls together.
    separately: Arc<AtomicBool>,
}

impl More {
    fn send(&self, job: Job) {
        if let Some(jobs) = self.jobs.upgrade() {
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the task does.
struct Work {
    jobs: UnboundedReceiver<Job>,
    more: More,
    gathered: Vec<Job>,
    /// With how many those are looked through that nobody waits for any more.
    many: usize,
    connection: MultiplexedConnection,
    pulse: Arc<Pulse>,
    /// In the order in which they left, which is that of their answers.
    under_way: VecDeque<Request>,
    /// Whether others had the chance to join what is gathered.
    yielded: bool,
    /// When to look again whether what is under way was forgotten.
    watch: Option<Pin<Box<Sleep>>>,
}

/// With its runtime, perhaps, and then redis-rs' task is gone, too.
impl Drop for Work {
    fn drop(&mut self) {
        self.pulse.end();
        self.pulse.forget();
    }
}

struct Request {
    answers: BoxFuture<'static, Connection>,
    calls: usize,
}

/// What a request has shown of the connection.
enum Connection {
    Lives,
    Ended,
}

impl Connection {
    fn after(error: &RedisError) -> Self {
        if error::ends_connection(error) { Self::Ended } else { Self::Lives }
    }
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let (done, taken) = this.work(context);
        this.keep_watch(context);
        let under_way: usize = this.under_way.iter().map(|request| request.calls).sum();
        this.pulse.company().holds(this.gathered.len() + under_way, taken);
        done
    }
}

impl Work {
    fn new(
        jobs: UnboundedReceiver<Job>,
        more: WeakUnboundedSender<Job>,
        connection: MultiplexedConnection,
        pulse: Arc<Pulse>,
    ) -> Self {
        let more = More { jobs: more, separately: Arc::default() };
        Self {
            jobs,
            more,
            gathered: Vec::with_capacity(LARGEST),
            many: MANY,
            connection,
            pulse,
            under_way: VecDeque::new(),
            yielded: false,
            watch: None,
        }
    }

    /// redis-rs forgets a command that comes to its queue in the very moment in which the connection
    /// ends there, on another thread: it is neither sent nor ever answered. So while anything is
    /// under way somebody looks, now and then, whether there is a connection at all.
    fn keep_watch(&mut self, context: &mut Context<'_>) {
        self.pulse.watched_by(context.waker());
        loop {
            let watch = match &mut self.watch {
                Some(watch) => watch,
                None if self.under_way.is_empty() && !self.pulse.wants_watch() => return,
                none => none.insert(Box::pin(sleep(WATCH))),
            };
            if watch.as_mut().poll(context).is_pending() {
                return;
            }
            if is_closed(&self.connection) {
                self.under_way.clear();
                self.pulse.end();
                self.pulse.forget();
            }
            self.watch = None;
            self.pulse.has_watched();
        }
    }

    /// The second is how many commands were taken in.
    fn work(&mut self, context: &mut Context<'_>) -> (Poll<()>, usize) {
        while let Some(first) = self.under_way.front_mut()
            && let Poll::Ready(connection) = first.answers.as_mut().poll(context)
        {
            self.under_way.pop_front();
            self.notice(&connection);
        }
        let (mut is_over, mut taken) = (false, 0);
        while let Poll::Ready(count) =
            self.jobs.poll_recv_many(context, &mut self.gathered, LARGEST)
        {
            taken += count;
            is_over = count == 0;
            if is_over {
                break;
            }
        }
        if self.gathered.len() >= self.many {
            self.gathered.retain(Job::is_wanted);
            self.many = (2 * self.gathered.len()).max(MANY);
        }
        while !self.gathered.is_empty() && self.under_way.len() < MOST_UNDER_WAY {
            if !self.under_way.is_empty() && !self.yielded {
                self.yielded = true;
                context.waker().wake_by_ref();
                return (Poll::Pending, taken);
            }
            if self.is_closed() {
                self.pulse.end();
                self.gathered.drain(..).filter(Job::is_wanted).for_each(Job::turn_away);
            } else {
                self.set_out(context);
            }
        }
        self.yielded = false;
        let is_done = is_over && self.under_way.is_empty();
        (if is_done { Poll::Ready(()) } else { Poll::Pending }, taken)
    }

    /// Whether the connection has ended, as far as is known here. Waits for nothing, and looks
    /// closely only if it may have ended unnoticed.
    fn is_closed(&self) -> bool {
        let looks = self.under_way.is_empty() && !self.pulse.is_warm();
        self.pulse.is_broken() || looks && is_closed(&self.connection)
    }

    /// One request with what was gathered and is still waited for. It is polled at once, so that
    /// what leaves first is in front of what leaves later.
    fn set_out(&mut self, context: &mut Context<'_>) {
        let count = self.gathered.len().min(LARGEST);
        self.pulse.company().leaves(count);
        let mut commands = self.commands(count);
        let (connection, more) = (self.connection.clone(), self.more.clone());
        let mut request = match (commands.pop(), commands.is_empty()) {
            (None, _) => return,
            (Some(command), true) => by_itself(connection, command, more),
            (Some(last), false) => {
                commands.push(last);
                together(connection, commands, more)
            }
        };
        match request.answers.as_mut().poll(context) {
            Poll::Pending => self.under_way.push_back(request),
            Poll::Ready(connection) => self.notice(&connection),
        }
    }

    /// The next `count` of what was gathered, if it is still waited for.
    ///
    /// Calls that give keys back are one command, in front of those that take them, among which may
    /// be one that waits for such a key. What they undo does not come behind them: an acquire that is
    /// carried is not wanted any more then, and what callers send by themselves stays in front. A node
    /// takes keys for less by `SET` than by a script, and redis-rs writes many commands at once.
    fn commands(&mut self, count: usize) -> Vec<(Cmd, Waiter)> {
        let together = !self.more.separately.load(Ordering::Relaxed);
        let (mut first, mut releases, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for job in self.gathered.drain(..count).filter(Job::is_wanted) {
            match job {
                Job::Command(..) => first.push(job),
                Job::Call(carried) if together && carried.is_release_of_one() => {
                    releases.push(carried);
                }
                job => others.push(job),
            }
        }
        let releases = match releases.len() {
            0 | 1 => releases.pop().map(Job::Call),
            _ => Some(Job::Calls(Joint::default(), releases)),
        };
        first.into_iter().chain(releases).chain(others).map(Job::set_out).collect()
    }

    fn notice(&self, connection: &Connection) {
        match connection {
            Connection::Lives => self.pulse.beat(),
            Connection::Ended => self.pulse.end(),
        }
    }
}

/// A single command costs less by itself; and if what the node answers makes no sense, it is told
/// so: in a request of several, redis-rs waits for the rest, and only tells that there was none.
fn by_itself(
    mut connection: MultiplexedConnection,
    (command, waiter): (Cmd, Waiter),
    more: More,
) -> Request {
    let calls = waiter.count();
    let answers = Box::pin(async move {
        let answer = connection.send_packed_command(&command).await;
        let connection = answer.as_ref().map_or_else(Connection::after, |_| Connection::Lives);
        waiter.hear(answer, &more);
        connection
    });
    Request { answers, calls }
}

fn together(
    mut connection: MultiplexedConnection,
    commands: Vec<(Cmd, Waiter)>,
    more: More,
) -> Request {
    let count = commands.len();
    let mut pipeline = redis::Pipeline::with_capacity(count);
    let mut waiters = Vec::with_capacity(count);
    for (command, waiter) in commands {
        pipeline.add_command(command);
        waiters.push(waiter);
    }
    let calls = waiters.iter().map(Waiter::count).sum();
    let answers = Box::pin(async move {
        match connection.send_packed_commands(&pipeline, 0, count).await {
            Ok(answers) => {
                for (waiter, answer) in waiters.into_iter().zip(answers) {
                    waiter.hear(Ok(answer), &more);
                }
                Connection::Lives
            }
            Err(error) => {
                for waiter in waiters {
                    waiter.hear(Err(error.clone()), &more);
                }
                Connection::after(&error)
            }
        }
    });
    Request { answers, calls }
}

/// A connection that the node closed is told by its refusal to queue a command, and by nothing
/// else. One that is open queues it, and then skips it, since nobody waits for the answer; or
/// it is quicker, one time in ten thousand, and a `PING` goes out that harms nobody.
fn is_closed(connection: &MultiplexedConnection) -> bool {
    let (command, mut connection) = (Cmd::ping(), connection.clone());
    let sent = connection.send_packed_command(&command).now_or_never();
    matches!(sent, Some(Err(_)))
}

/// That the connection was lost.
pub(crate) fn lost() -> BackendError {
    error::of_redis(&gone())
}

fn gone() -> RedisError {
    RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::future::poll_immediate;
    use redis::{AsyncConnectionConfig, RedisConnectionInfo};
    use tokio::io::{DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;

    /// A connection to nobody, its other end, and what drives it.
    async fn connected() -> (MultiplexedConnection, DuplexStream, JoinHandle<()>) {
        let (ours, theirs) = duplex(4096);
        let info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let made = MultiplexedConnection::new_with_config(&info, ours, config).await;
        let (connection, driver) = made.unwrap();
        (connection, theirs, tokio::spawn(driver))
    }

    #[tokio::test(start_paused = true)]
    async fn who_travels_alone_and_was_forgotten_is_told_when_the_connection_is_gone() {
        let (connection, _theirs, driver) = connected().await;
        let carrier = Carrier::start(connection);
        carrier.pulse.beat();
        let loner = Loner::set_out(&carrier.pulse).unwrap();
        let mut told = pin!(poll_fn(|context| loner.poll_forgotten(context)));
        assert_eq!(poll_immediate(told.as_mut()).await, None);
        sleep(10 * WATCH).await;
        assert_eq!(poll_immediate(told.as_mut()).await, None, "the node is slow, and there");
        driver.abort();
        timeout(10 * WATCH, told).await.unwrap();
        assert!(carrier.is_broken());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_carried_and_forgotten_is_dropped_when_the_connection_is_gone() {
        let (connection, _theirs, driver) = connected().await;
        let (sender, jobs) = unbounded_channel();
        let pulse = Arc::new(Pulse::new());
        let mut work = Work::new(jobs, sender.downgrade(), connection, Arc::clone(&pulse));
        let (caller, answer) = oneshot::channel::<()>();
        let answers = Box::pin(async move {
            let _caller = caller;
            pending().await
        });
        work.under_way.push_back(Request { answers, calls: 1 });
        let work = tokio::spawn(work);
        let mut answer = pin!(answer);
        sleep(10 * WATCH).await;
        assert_eq!(poll_immediate(answer.as_mut()).await, None, "the node is slow, and there");
        driver.abort();
        assert!(timeout(10 * WATCH, answer).await.unwrap().is_err());
        assert!(pulse.is_broken());
        work.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_at_rest_is_not_watched() {
        let (connection, _theirs, driver) = connected().await;
        let carrier = Carrier::start(connection);
        carrier.pulse.beat();
        drop(Loner::set_out(&carrier.pulse).unwrap());
        sleep(10 * WATCH).await;
        assert!(!carrier.pulse.wants_watch());
        driver.abort();
        sleep(10 * WATCH).await;
        assert!(!carrier.is_broken(), "nobody looked");
    }
}
