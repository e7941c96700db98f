//! What many callers send to one node at the same time travels together.
//!
//! A request through redis-rs costs a message to the task that drives the connection and a message
//! back, far more than a command in it. So a task of our own gathers what is there when it runs, and
//! sends it as one request.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_core::BackendError;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error;

/// How many commands one request has at the most: the first of them waits for the last.
const LARGEST: usize = 64;

/// How many requests may be under way before others gather.
const MOST_UNDER_WAY: usize = 8;

/// How many commands may be kept back before those are thrown out that nobody waits for.
const MANY: usize = 1024;

/// For how long a connection that answered is taken to be there.
const WARM: Duration = Duration::from_millis(20);

/// The task that carries commands together over one connection.
pub(crate) struct Carrier {
    jobs: UnboundedSender<Job>,
    task: JoinHandle<()>,
}

struct Job {
    command: Cmd,
    caller: oneshot::Sender<Result<Value, Trouble>>,
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
        let work = Work {
            jobs,
            gathered: Vec::with_capacity(LARGEST),
            many: MANY,
            connection,
            under_way: VecDeque::new(),
            yielded: false,
            answered: Instant::now(),
            has_ended: false,
        };
        Self { jobs: sender, task: tokio::spawn(work) }
    }

    /// Whether the runtime has ended in which the task was started, and with it the connection:
    /// tokio does not tell otherwise.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Sends a command together with others. Gives it back if the task is gone.
    pub(crate) fn send(&self, command: Cmd) -> Result<Answer, Cmd> {
        let (caller, answer) = oneshot::channel();
        match self.jobs.send(Job { command, caller }) {
            Ok(()) => Ok(Answer(answer)),
            Err(SendError(job)) => Err(job.command),
        }
    }
}

/// The answer to one command, once it is there.
pub(crate) struct Answer(oneshot::Receiver<Result<Value, Trouble>>);

impl Future for Answer {
    type Output = Result<Value, Trouble>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(context).map(|answer| {
            // The task was lost with its runtime.
            answer.unwrap_or_else(|_| Err(Trouble::Failed(gone())))
        })
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
    gathered: Vec<Job>,
    /// With how many those are looked through that nobody waits for any more.
    many: usize,
    connection: MultiplexedConnection,
    /// In the order in which they left, which is that of their answers.
    under_way: VecDeque<BoxFuture<'static, Connection>>,
    /// Whether others had the chance to join what is gathered.
    yielded: bool,
    /// When the connection last answered.
    answered: Instant,
    has_ended: bool,
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
        while let Some(first) = this.under_way.front_mut()
            && let Poll::Ready(connection) = first.as_mut().poll(context)
        {
            this.under_way.pop_front();
            this.notice(&connection);
        }
        let mut is_over = false;
        while let Poll::Ready(count) =
            this.jobs.poll_recv_many(context, &mut this.gathered, LARGEST)
        {
            is_over = count == 0;
            if is_over {
                break;
            }
        }
        if this.gathered.len() >= this.many {
            this.gathered.retain(|job| !job.caller.is_closed());
            this.many = (2 * this.gathered.len()).max(MANY);
        }
        while !this.gathered.is_empty() && this.under_way.len() < MOST_UNDER_WAY {
            if !this.under_way.is_empty() && !this.yielded {
                this.yielded = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if this.is_closed() {
                this.turn_away();
            } else {
                this.set_out(context);
            }
        }
        this.yielded = false;
        if is_over && this.under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Work {
    /// Whether the connection has ended, as far as is known here. Waits for nothing, and looks
    /// closely only if it may have ended unnoticed.
    fn is_closed(&self) -> bool {
        let looks = self.under_way.is_empty() && self.answered.elapsed() >= WARM;
        self.has_ended || looks && is_closed(&self.connection)
    }

    fn turn_away(&mut self) {
        for Job { command, caller } in self.gathered.drain(..) {
            let _ = caller.send(Err(Trouble::NotSent(Box::new(command))));
        }
    }

    /// One request with what was gathered and is still waited for. It is polled at once, so that
    /// what leaves first is in front of what leaves later.
    fn set_out(&mut self, context: &mut Context<'_>) {
        let (count, connection) = (self.gathered.len().min(LARGEST), self.connection.clone());
        let mut jobs = self.gathered.drain(..count).filter(|job| !job.caller.is_closed());
        let mut request = match (jobs.next(), jobs.next()) {
            (None, _) => return,
            (Some(job), None) => by_itself(connection, job),
            (Some(first), Some(second)) => {
                together(connection, [first, second].into_iter().chain(jobs.by_ref()), count)
            }
        };
        drop(jobs);
        let first = request.as_mut().poll(context);
        match first {
            Poll::Pending => self.under_way.push_back(request),
            Poll::Ready(connection) => self.notice(&connection),
        }
    }

    fn notice(&mut self, connection: &Connection) {
        match connection {
            Connection::Lives => self.answered = Instant::now(),
            Connection::Ended => self.has_ended = true,
        }
    }
}

/// A single command costs less by itself; and if what the node answers makes no sense, it is told
/// so: in a request of several, redis-rs waits for the rest, and only tells that there was none.
fn by_itself(
    mut connection: MultiplexedConnection,
    Job { command, caller }: Job,
) -> BoxFuture<'static, Connection> {
    Box::pin(async move {
        let answer = connection.send_packed_command(&command).await;
        let connection = answer.as_ref().map_or_else(Connection::after, |_| Connection::Lives);
        let _ = caller.send(answer.map_err(Trouble::Failed));
        connection
    })
}

fn together(
    mut connection: MultiplexedConnection,
    jobs: impl Iterator<Item = Job>,
    count: usize,
) -> BoxFuture<'static, Connection> {
    let mut pipeline = redis::Pipeline::with_capacity(count);
    let mut callers = Vec::with_capacity(count);
    for Job { command, caller } in jobs {
        pipeline.add_command(command);
        callers.push(caller);
    }
    let count = callers.len();
    Box::pin(async move {
        match connection.send_packed_commands(&pipeline, 0, count).await {
            Ok(answers) => {
                for (caller, answer) in callers.into_iter().zip(answers) {
                    let _ = caller.send(Ok(answer));
                }
                Connection::Lives
            }
            Err(error) => {
                for caller in callers {
                    let _ = caller.send(Err(Trouble::Failed(error.clone())));
                }
                Connection::after(&error)
            }
        }
    })
}

/// A connection that the node closed is told by its refusal to queue a command, and by nothing
/// else. One that is open queues it, and then skips it, since nobody waits for the answer; or
/// it is quicker, one time in ten thousand, and a `PING` goes out that harms nobody.
pub(crate) fn is_closed(connection: &MultiplexedConnection) -> bool {
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
