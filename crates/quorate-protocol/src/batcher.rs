//! One task per node and purpose: it makes one connection after the other, and sends what is queued as pipelines.
//!
//! A call queues its command at its first poll. The task connects at the first call, takes what is
//! queued, at most 64 commands and 64 KiB, and hands it to the client by one poll of
//! [`Connection::send`]. At most four pipelines are in flight. If only one were allowed, the undo would wait in
//! the queue until a slow node had answered the acquire, and would be lost if the program ended (C8).
//!
//! # Order
//!
//! Commands reach the node in the order of the first polls of their calls, over all connections, and
//! a command that was in flight when its connection ended is never sent again (C3, C6).
//!
//! # What a failure means
//!
//! - *Not sent*: refused at the call, since the queue of acquires is full or the task backs off; or still
//!   queued when no connection could be made, when a connection ended without any reply, or when the
//!   runtime ended.
//! - *Lost*: handed to the client before the connection or the runtime ended, even if no reply ever came.
//!
//! What is queued when a connection with replies ends leaves over the next one, in order.
//!
//! While it backs off after a failed connect, the task refuses calls with the reason of that failure.

mod queue;

use std::borrow::Cow;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use quorate_core::runtime::{Runtime, TokioRuntime};
use quorate_core::{BackendError, BackendErrorKind, planted};
use tokio::sync::{Notify, oneshot};
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};

use crate::command::Command;
use crate::connection::{Connection, Dial};
use crate::features::{Features, Purpose};
use crate::reply::{Failure, Push, Reply};
use crate::transport::{Admission, Transport};

use self::queue::{Answer, MAX_ACQUIRES, Queue, Slot};

/// Carries commands over one connection at a time, in order, and connects again when it has ended.
///
/// Clones share the connection. It ends with the last of them.
pub struct Batcher<D: Dial> {
    handle: Arc<Handle<D>>,
}

impl<D: Dial> Batcher<D> {
    /// How many acquires are queued at most.
    pub const MAX_ACQUIRES: usize = MAX_ACQUIRES;

    /// A batcher without a connection: the first call makes one, in `runtime`.
    ///
    /// `listener` is called with what the server pushes, and with [`Push::ConnectionLost`] at the end
    /// of each connection.
    pub fn new(
        dial: Arc<D>,
        runtime: TokioRuntime,
        purpose: Purpose,
        connect_timeout: Duration,
        listener: impl Fn(Push) + Send + Sync + 'static,
    ) -> Self {
        let state = Mutex::new(State::default());
        let (arrived, listener) = (Notify::new(), Arc::new(listener));
        let shared = Shared { dial, runtime, purpose, connect_timeout, listener, state, arrived };
        Self { handle: Arc::new(Handle { shared: Arc::new(shared) }) }
    }
}

impl<D: Dial> Clone for Batcher<D> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<D: Dial> fmt::Debug for Batcher<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl<D: Dial> Transport for Batcher<D> {
    const IS_ORDERED: bool = true;

    fn name(&self) -> Cow<'_, str> {
        self.handle.shared.dial.name()
    }

    async fn call(&self, command: Command, admission: Admission) -> Result<Reply, Failure> {
        let answer = self.handle.shared.enqueue(command, admission)?;
        // A slot is dropped only behind the hand-over, so the command may have left.
        answer.await.unwrap_or_else(|_| Err(Failure::lost("the connection's runtime has ended")))
    }

    fn features(&self) -> Features {
        self.handle.shared.lock().features.clone()
    }
}

/// What the clones of a batcher share. The task does not: it ends when this is dropped.
struct Handle<D: Dial> {
    shared: Arc<Shared<D>>,
}

impl<D: Dial> Drop for Handle<D> {
    fn drop(&mut self) {
        self.shared.lock().is_abandoned = true;
        self.shared.arrived.notify_one();
    }
}

struct Shared<D> {
    dial: Arc<D>,
    runtime: TokioRuntime,
    purpose: Purpose,
    connect_timeout: Duration,
    listener: Arc<dyn Fn(Push) + Send + Sync>,
    state: Mutex<State>,
    /// Wakes the task: something was queued, or the last handle was dropped.
    arrived: Notify,
}

#[derive(Default)]
struct State {
    queue: Queue,
    /// A task is there, or is being spawned.
    is_running: bool,
    is_abandoned: bool,
    /// Why the last connect failed, during the back-off.
    trouble: Option<BackendError>,
    features: Features,
}

impl<D: Dial> Shared<D> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(
        self: &Arc<Self>,
        command: Command,
        admission: Admission,
    ) -> Result<oneshot::Receiver<Answer>, Failure> {
        let mut state = self.lock();
        if let Some(trouble) = &state.trouble {
            return Err(Failure::NotSent(trouble.clone()));
        }
        let answer = state.queue.push(command, admission)?;
        let is_running = std::mem::replace(&mut state.is_running, true)
            && !planted!("each_call_makes_a_connection");
        drop(state);
        if !is_running {
            // Where there is no runtime, the task is dropped at once and refuses what is queued.
            self.runtime.spawn(Box::pin(run(Running(Arc::clone(self)))));
        }
        self.arrived.notify_one();
        Ok(answer)
    }

    /// Waits until something is queued. `false` once the last handle is dropped.
    async fn has_work(&self) -> bool {
        loop {
            {
                let state = self.lock();
                if state.is_abandoned || !state.queue.is_empty() {
                    return !state.is_abandoned;
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Makes a connection and serves it to its end.
    async fn connect_and_serve(&self) -> Result<(), BackendError> {
        let listener = Arc::clone(&self.listener);
        let connect = async {
            let connection = self.dial.connect(move |push| listener(push)).await?;
            let features = self.purpose.ask(&connection).await?;
            Ok((connection, features))
        };
        let limit = self.connect_timeout;
        let (connection, features) = timeout(limit, connect).await.unwrap_or_else(|_| {
            let text = format!("no connection within {limit:?}");
            Err(BackendError::new(BackendErrorKind::TimedOut, text))
        })?;
        self.lock().features = features;
        let end = self.serve(&connection).await;
        (self.listener)(Push::ConnectionLost);
        end
    }

    /// Serves one connection until it has ended or the last handle is dropped.
    ///
    /// A connection that ends before its first reply is an error, so that a server which closes each
    /// connection is not asked for one after the other.
    async fn serve(&self, connection: &D::Connection) -> Result<(), BackendError> {
        let mut in_flight: FuturesUnordered<BoxFuture<'_, bool>> = FuturesUnordered::new();
        let mut has_replied = false;
        let window = if planted!("one_pipeline_at_a_time") { 1 } else { WINDOW };
        loop {
            while in_flight.len() < window && !connection.is_closed() {
                let (commands, slots) = self.lock().queue.take();
                if commands.is_empty() {
                    break;
                }
                let sending = send(connection, commands, slots);
                // A task that has spent its budget would be stopped before the hand-over.
                let mut sending: BoxFuture<'_, bool> = match planted!("budget_delays_the_send") {
                    true => Box::pin(sending),
                    false => Box::pin(unconstrained(sending)),
                };
                match poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await {
                    Poll::Ready(has_reply) => has_replied |= has_reply,
                    Poll::Pending => in_flight.push(sending),
                }
            }
            if connection.is_closed() {
                // Replies that came before the end still arrive. What is queued stays queued.
                while let Some(has_reply) = in_flight.next().await {
                    has_replied |= has_reply;
                }
                let text = "the connection ended before its first reply";
                let error = || BackendError::new(BackendErrorKind::Connection, text);
                return if has_replied { Ok(()) } else { Err(error()) };
            }
            let settled = async {
                match in_flight.next().await {
                    Some(has_reply) => has_reply,
                    None => pending().await,
                }
            };
            match select(pin!(settled), pin!(self.arrived.notified())).await {
                Either::Left((has_reply, _)) => {
                    has_replied |= has_reply;
                    if planted!("window_slots_leak") {
                        in_flight.push(Box::pin(pending()));
                    }
                }
                Either::Right(_) if self.lock().is_abandoned => return Ok(()),
                Either::Right(_) => {}
            }
        }
    }

    /// Half to all of the time for which `failures` in a row are waited out.
    fn back_off(&self, failures: u32) -> Duration {
        let whole = MAX_BACK_OFF.min(MIN_BACK_OFF.saturating_mul(1 << failures.min(16)));
        let mut random = [0];
        // Without randomness there is no lock, and it does not matter when to connect.
        let _ = self.runtime.fill_random(&mut random);
        whole.mul_f64(0.5 + f64::from(random[0]) / 510.0)
    }
}

/// Sends a pipeline and answers its calls. Returns whether any reply came.
async fn send<C: Connection>(connection: &C, commands: Vec<Command>, slots: Vec<Slot>) -> bool {
    let mut replies = connection.send(commands).await;
    if planted!("replies_go_to_any_call") {
        replies.reverse();
    }
    let is_error = |reply: &&Answer| matches!(reply, Ok(Reply::Error(_)));
    if planted!("error_fails_its_pipeline")
        && let Some(error) = replies.iter().find(is_error).cloned()
    {
        replies.fill(error);
    }
    let has_reply = replies.iter().any(Result::is_ok);
    for (slot, reply) in slots.into_iter().zip(replies) {
        let reply = match reply {
            Err(Failure::Lost(error)) if planted!("no_reply_means_not_sent") => {
                Err(Failure::NotSent(error))
            }
            reply => reply,
        };
        // A caller that has gone has no use for its reply.
        drop(slot.send(reply));
    }
    has_reply
}

/// Lives as long as the task, and answers what is queued if the task is dropped with its runtime.
struct Running<D: Dial>(Arc<Shared<D>>);

impl<D: Dial> Drop for Running<D> {
    fn drop(&mut self) {
        let why = BackendError::new(BackendErrorKind::Connection, "the runtime has ended");
        let mut state = self.0.lock();
        if planted!("ended_runtime_drops_what_is_queued") {
            state.queue = Queue::default();
        }
        state.queue.refuse_all(&why);
        state.trouble = None;
        state.is_running = false;
        drop(state);
        (self.0.listener)(Push::ConnectionLost);
    }
}

async fn run<D: Dial>(running: Running<D>) {
    let (shared, mut failures) = (&*running.0, 0);
    while shared.has_work().await {
        let Err(error) = shared.connect_and_serve().await else {
            failures = 0;
            continue;
        };
        {
            let mut state = shared.lock();
            state.queue.refuse_all(&error);
            state.trouble = Some(error);
        }
        sleep(shared.back_off(failures)).await;
        failures += 1;
        shared.lock().trouble = None;
    }
}

/// Pipelines in flight.
const WINDOW: usize = 4;

const MIN_BACK_OFF: Duration = Duration::from_millis(50);

const MAX_BACK_OFF: Duration = Duration::from_secs(1);
