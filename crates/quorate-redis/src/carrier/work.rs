//! What the task of a connection does: it gathers, sends, and hands out the answers.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::thread::yield_now;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_core::protocol::Joint;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError};
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};

use super::job::{Job, More, Waiter};
use crate::error;
use crate::pulse::Pulse;

/// How many commands one request has at the most: the first of them waits for the last.
const LARGEST: usize = 64;

/// How many requests may be under way before others gather.
const MOST_UNDER_WAY: usize = 8;

/// How often it is looked whether there is still a connection.
const WATCH: Duration = Duration::from_secs(1);

/// How many commands may be kept back before those are thrown out that nobody waits for.
const MANY: usize = 1024;

/// What the task does.
pub(super) struct Work {
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
        while self.last_job().is_some() {}
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
    pub(super) fn new(
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

    /// One of those that are left in the queue when it ends. What comes in that very moment would stay
    /// there for as long as anybody can send, and who waits for it can. So it is waited for: it has
    /// been counted, and is there in nanoseconds.
    fn last_job(&mut self) -> Option<Job> {
        self.jobs.close();
        loop {
            let next = poll_fn(|context| self.jobs.poll_recv(context));
            match unconstrained(next).now_or_never() {
                Some(last) => return last,
                None => yield_now(),
            }
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
pub(super) fn is_closed(connection: &MultiplexedConnection) -> bool {
    let (command, mut connection) = (Cmd::ping(), connection.clone());
    let sent = connection.send_packed_command(&command).now_or_never();
    matches!(sent, Some(Err(_)))
}

#[cfg(test)]
mod tests {
    use std::future::{IntoFuture, pending};
    use std::pin::pin;
    use std::sync::{Mutex, Weak};

    use async_trait::async_trait;
    use futures_util::future::poll_immediate;
    use quorate_core::protocol::{EACH, Exchange};
    use quorate_core::runtime::TokioRuntime;
    use quorate_core::{BackendError, Call, Carry, Claim, LockBackend, LockManager, Vote};
    use redis::{AsyncConnectionConfig, RedisConnectionInfo};
    use tokio::io::{DuplexStream, duplex};
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;
    use crate::carrier::{Carried, Carrier};
    use crate::pulse::Loner;

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

    /// A node that grants everything, and keeps the calls that it is given to carry.
    #[derive(Debug, Default)]
    struct Keeps(Mutex<Vec<Call>>);

    #[async_trait]
    impl LockBackend for Keeps {
        async fn acquire(&self, _: &Claim) -> Result<Vote, BackendError> {
            Ok(Vote::Granted)
        }

        async fn extend(&self, _: &Claim) -> Result<Vote, BackendError> {
            Ok(Vote::Granted)
        }

        async fn release(&self, _: &Claim) -> Result<Vote, BackendError> {
            Ok(Vote::Granted)
        }

        fn carrier(&self) -> Option<&dyn Carry> {
            Some(self)
        }
    }

    impl Carry for Keeps {
        fn carries(&self, _: &Claim) -> bool {
            true
        }

        fn carry(&self, call: Call) {
            self.0.lock().unwrap().push(call);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn releases_go_together_in_front_of_what_takes_keys_and_behind_what_callers_send() {
        let node = Arc::new(Keeps::default());
        let manager =
            LockManager::builder(TokioRuntime::new(), [Arc::clone(&node)]).build().unwrap();
        // Calls are carried from the second on.
        drop(manager.lock("first").await.unwrap());
        let mut calls = Vec::new();
        for name in ["one", "other"] {
            let mut lock = pin!(manager.lock(name).into_future());
            assert!(poll_immediate(lock.as_mut()).await.is_none());
            node.0.lock().unwrap().pop().unwrap().answer(Ok(Vote::Granted));
            drop(lock.await.unwrap());
            calls.push((node.0.lock().unwrap().pop().unwrap(), Exchange::release()));
        }
        let mut lock = pin!(manager.lock("next").into_future());
        assert!(poll_immediate(lock.as_mut()).await.is_none());
        let acquire = node.0.lock().unwrap().pop().unwrap();
        let exchange = Exchange::acquire(acquire.claim());
        calls.insert(1, (acquire, exchange));

        let (connection, _theirs, _driver) = connected().await;
        let (sender, jobs) = unbounded_channel();
        let mut work = Work::new(jobs, sender.downgrade(), connection, Arc::new(Pulse::new()));
        let carried = |(call, exchange)| Job::Call(Carried::new(call, exchange, Weak::new()));
        work.gathered.extend(calls.into_iter().map(carried));
        let (caller, _answer) = oneshot::channel();
        work.gathered.push(Job::Command(Cmd::ping(), caller));
        let sent: Vec<_> = work.commands(4).into_iter().map(|(command, _)| command).collect();
        let shows = |command: &Cmd, what: &str| {
            String::from_utf8_lossy(&command.get_packed_command()).contains(what)
        };
        let [callers, releases, takes] = &*sent else { panic!("three of four: {}", sent.len()) };
        assert!(shows(callers, "PING"));
        assert!(shows(releases, EACH.sha1()) && shows(releases, "one") && shows(releases, "other"));
        assert!(shows(takes, "SET") && shows(takes, "next"));
    }
}
