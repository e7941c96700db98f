//! A connection of our own: one fred client for each, and a new client after it broke.
//!
//! A fred client that reconnects is also one that queues commands meanwhile, without a limit in
//! time, and that goes on calling itself connected until its first attempt has begun. A client
//! without a policy does none of that: when its connection breaks, the task that drives it fails
//! what was sent, cancels what was queued, and ends with the reason. What comes after that would
//! stay in its queue for ever, so each call is told of the end, too.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use fred::clients::{Client, WithOptions};
use fred::error::Error;
use fred::interfaces::{ClientLike, EventInterface};
use fred::types::config::{
    Config, ConnectionConfig, Options, PerformanceConfig, Server, TcpConfig, UnresponsiveConfig,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Shared, WeakShared, select};
use quorate_core::protocol::{self, Reply, Wire};
use quorate_core::{BackendError, BackendErrorKind};
use socket2::TcpKeepalive;
use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::task::{AbortHandle, JoinError, JoinHandle};

use crate::carrier::{Carried, Carrier, Way};
use crate::error;
use crate::frame::{Command, exchange};
use crate::window::{Place, Window};

/// How long the peer's machine may leave our bytes, or our probes, unacknowledged.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a connection ended, when it has.
pub(crate) type Closed = Shared<BoxFuture<'static, BackendError>>;

/// Most of the time it has been noted before.
pub(crate) fn note(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}

/// Polls a future to its end, though all who asked for it may be gone: else whoever comes next, hours
/// later perhaps, would be told how it ended then.
pub(crate) fn seen_through<T: Clone + Send + Sync + 'static>(
    shared: &Shared<BoxFuture<'static, T>>,
) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(shared.clone().map(drop)));
    }
}

/// Begins to connect. The attempt goes on by itself in `runtime`; the future tells how it ended.
pub(crate) fn dial(
    config: Config,
    performance: PerformanceConfig,
    timeout: Duration,
    runtime: &Handle,
) -> impl Future<Output = Result<Arc<Link>, BackendError>> + Send + use<> {
    let client = Client::new(config, Some(performance), Some(connection_config(timeout)), None);
    let connected = client.reconnect_rx();
    let task = {
        let _entered = runtime.enter();
        client.connect()
    };
    let router = task.abort_handle();
    let client = client.with_options(&options());
    let closed = end_of(task).boxed().shared();
    let window = Arc::<Window>::default();
    let (is_broken, has_answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let way = Way {
        client: client.clone(),
        closed: closed.clone(),
        window: Arc::clone(&window),
        is_broken: Arc::clone(&is_broken),
        has_answered: Arc::clone(&has_answered),
        runtime: runtime.clone(),
    };
    let carrier = Carrier::start(way);
    let timer = Timer::start(timeout, runtime);
    let runtime = runtime.clone();
    let identity = Mutex::default();
    let link = Arc::new(Link {
        client,
        router,
        is_broken,
        has_answered,
        carrier,
        closed,
        window,
        identity,
        runtime,
    });
    async move {
        let outcome = reached(&link, connected, timer, timeout).await;
        outcome.map(|()| link)
    }
}

/// Waits until the node is reached and has let us in.
async fn reached(
    link: &Link,
    mut connected: Receiver<Server>,
    timer: Timer,
    timeout: Duration,
) -> Result<(), BackendError> {
    let connected = connected.recv().boxed();
    match select(connected, select(link.closed.clone(), timer)).await {
        Either::Left((Ok(_), _)) => Ok(()),
        Either::Left((Err(_), _)) => Err(link.closed.clone().await),
        Either::Right((Either::Left((reason, _)), _)) => Err(reason),
        Either::Right((Either::Right((Ok(()), _)), _)) => {
            let told = format!("no connection within {timeout:?}");
            Err(BackendError::new(BackendErrorKind::TimedOut, told))
        }
        // So did fred's, or it was lost with the same runtime.
        Either::Right((Either::Right((Err(_), _)), _)) => Err(link.closed.clone().await),
    }
}

/// Ready after a while. In a task: a runtime without a timer makes it panic.
pub(crate) struct Timer(JoinHandle<()>);

impl Timer {
    pub(crate) fn start(after: Duration, runtime: &Handle) -> Self {
        Self(runtime.spawn(async move { tokio::time::sleep(after).await }))
    }
}

impl Future for Timer {
    type Output = Result<(), JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(context)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why fred's task ended.
async fn end_of(router: JoinHandle<Result<(), Error>>) -> BackendError {
    match router.await {
        Ok(Err(error)) => error::of_client(&error),
        Ok(Ok(())) => error::lost("the connection was closed"),
        Err(task) if task.is_panic() => error::lost("the client's task panicked"),
        Err(_) => error::lost("the tokio runtime of the connection has shut down"),
    }
}

/// A connection, and the fred client that has no other.
pub(crate) struct Link {
    client: WithOptions<Client>,
    router: AbortHandle,
    /// Set by the first call that fails: fred tells the calls before its task has ended.
    is_broken: Arc<AtomicBool>,
    /// Whether the node has answered anything that was asked of it here.
    has_answered: Arc<AtomicBool>,
    carrier: Carrier,
    closed: Closed,
    window: Arc<Window>,
    /// The question who the node is, while somebody waits for the answer.
    identity: Mutex<Option<WeakShared<BoxFuture<'static, Identity>>>>,
    /// That of fred's task.
    runtime: Handle,
}

pub(crate) type Identity = Result<Option<String>, BackendError>;

impl Link {
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::Relaxed) && !self.router.is_finished()
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    pub(crate) const fn client(&self) -> &WithOptions<Client> {
        &self.client
    }

    /// Why the connection ended, when it has.
    pub(crate) fn closed(&self) -> Closed {
        self.closed.clone()
    }

    /// Sends a command once and waits for the reply, or for the end of the connection.
    ///
    /// While too much is under way, it waits before that, and is not sent if it is dropped.
    pub(crate) async fn call(&self, command: Command) -> Result<Reply, BackendError> {
        let size = command.size();
        let place = match self.window.place(size) {
            Some(place) => place,
            None => self.room(size).await?,
        };
        let mut exchange = pin!(exchange(&self.client, command));
        let result = self.unless_closed(exchange.as_mut()).await;
        let result = match result {
            Some(result) => result,
            None => {
                let reason = self.closed.clone().await;
                // The answer may have come while we looked away. If there is none, there will be none.
                exchange.now_or_never().ok_or(reason)?
            }
        };
        self.window.answered(place);
        match result {
            Ok(answer) => {
                note(&self.has_answered);
                answer
            }
            Err(error) => {
                self.is_broken.store(true, Ordering::Relaxed);
                match error.is_canceled() {
                    // What the ending task found in its queue: the reason is where it ends.
                    true => Err(self.closed.clone().await),
                    false => Err(error::of_client(&error)),
                }
            }
        }
    }
}

impl Link {
    /// Waits for what comes over the connection, or for its end. The task that carries calls is told
    /// of it; where that task has no place for us, we look ourselves.
    async fn unless_closed<T>(&self, mut answer: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let loner = self.carrier.alone();
        if !loner.is_told() {
            return match select(answer, self.closed.clone()).await {
                Either::Left((answer, _)) => Some(answer),
                Either::Right(_) => None,
            };
        }
        poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => loner.poll_end(context).map(|()| None),
        })
        .await
    }

    /// Carries a call, together with others, or gives it back if the connection has ended.
    pub(crate) fn carry(&self, carried: Carried) -> Result<(), Carried> {
        self.carrier.carry(carried)
    }

    /// Asks who the node is, or waits with who has asked.
    pub(crate) fn identity(self: Arc<Self>) -> Shared<BoxFuture<'static, Identity>> {
        let link = Arc::clone(&self);
        let mut latest = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = latest.as_ref().and_then(WeakShared::upgrade);
        if let Some(asked) = asked.filter(|asked| asked.peek().is_none()) {
            return asked;
        }
        let asked = async move { protocol::server_id(&Held(link)).await }.boxed().shared();
        *latest = asked.downgrade();
        asked
    }

    /// Whether a call would have others to travel with.
    pub(crate) fn has_company(&self) -> bool {
        self.carrier.has_company()
    }

    /// Waits for a place. Apart from [`call`](Self::call), whose future would be larger for it.
    fn room(&self, size: u64) -> BoxFuture<'_, Result<Place, BackendError>> {
        let (client, window) = (self.client.clone(), Arc::clone(&self.window));
        let wait = room(client, self.closed.clone(), window, self.runtime.clone(), size).boxed();
        let closed = self.closed.clone();
        let room = async move {
            match select(wait, closed).await {
                Either::Left((place, _)) => Ok(place),
                Either::Right((reason, _)) => Err(reason),
            }
        };
        room.boxed()
    }
}

/// A connection of which somebody keeps hold.
struct Held(Arc<Link>);

impl Wire for Held {
    type Command = Command;

    fn pack(&self, command: &[&[u8]]) -> Command {
        Command::of(command)
    }

    async fn send(&self, command: Command) -> Result<Reply, BackendError> {
        self.0.call(command).await
    }
}

/// Waits for a place in the window of a connection.
pub(crate) async fn room(
    client: WithOptions<Client>,
    closed: Closed,
    window: Arc<Window>,
    runtime: Handle,
    size: u64,
) -> Place {
    let ask = move || {
        let (client, closed) = (client.clone(), closed.clone());
        async move {
            let asked = pin!(exchange(&client, Command::of(&[b"PING"])));
            select(asked, closed).await;
        }
    };
    window.wait(size, &runtime, ask).await
}

impl Drop for Link {
    /// fred's task keeps the client alive that it belongs to, so it would outlive us.
    fn drop(&mut self) {
        self.router.abort();
    }
}

/// One attempt, and no timeout but the connection's end.
fn options() -> Options {
    Options { max_attempts: Some(1), timeout: Some(Duration::ZERO), ..Options::default() }
}

/// A peer that vanished is noticed by TCP, which asks the machine. fred's own check asks the
/// process, and would take one that is stopped, or busy with a script, for one that is gone: it
/// closes the connection, and the acquire that was in it is carried out after the release that
/// came over the next one.
fn connection_config(timeout: Duration) -> ConnectionConfig {
    // Ours is over before. fred's make it panic where there is no timer, which ends the attempt.
    let backstop = timeout.saturating_mul(2).max(Duration::from_millis(1));
    let keepalive = TcpKeepalive::new().with_time(PEER_TIMEOUT / 2).with_interval(PEER_TIMEOUT / 5);
    #[cfg(unix)]
    let keepalive = keepalive.with_retries(3);
    ConnectionConfig {
        connection_timeout: backstop,
        internal_command_timeout: backstop,
        max_command_attempts: 1,
        reconnect_on_auth_error: false,
        unresponsive: UnresponsiveConfig { max_timeout: None, ..UnresponsiveConfig::default() },
        tcp: TcpConfig {
            nodelay: Some(true),
            keepalive: Some(keepalive),
            #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
            user_timeout: Some(PEER_TIMEOUT),
            ..TcpConfig::default()
        },
        ..ConnectionConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Only a broken link takes that long.
    const LIMIT: Duration = Duration::from_secs(120);

    #[tokio::test]
    async fn what_is_sent_after_the_end_fails_and_does_not_wait_in_a_queue() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let node = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            // To PING, CLIENT ID and INFO, before they are asked.
            connection.write_all(b"+PONG\r\n:1\r\n$-1\r\n").unwrap();
            connection
        });
        let config = Config::from_url(&format!("redis://{address}")).unwrap();
        let runtime = Handle::current();
        let dialled = dial(config, PerformanceConfig::default(), LIMIT, &runtime).await;
        let Ok(link) = dialled else { panic!("there is a node") };
        drop(node.join().unwrap());
        let reason = link.closed.clone().await;
        for _ in 0..3 {
            let call = tokio::time::timeout(LIMIT, link.call(Command::of(&[b"SET"])));
            let error = call.await.unwrap().unwrap_err();
            assert_eq!(error.to_string(), reason.to_string());
        }
    }

    #[tokio::test]
    async fn a_node_that_hangs_up_instead_of_answering_the_login_is_no_garbage() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let node = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            // All of it: what is left unread would make the end another.
            let mut login = [0; b"*2\r\n$4\r\nAUTH\r\n$7\r\nhunter2\r\n".len()];
            connection.read_exact(&mut login).unwrap();
        });
        let config = Config::from_url(&format!("redis://:hunter2@{address}")).unwrap();
        let runtime = Handle::current();
        let dialled = dial(config, PerformanceConfig::default(), LIMIT, &runtime).await;
        let Err(error) = dialled else { panic!("it has hung up") };
        assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}");
        assert!(error.to_string().contains("closed the connection"), "{error}");
        node.join().unwrap();
    }

    #[test]
    fn a_peer_that_vanished_is_noticed_and_one_that_is_stopped_keeps_its_connection() {
        let config = connection_config(LIMIT);
        assert!(config.tcp.keepalive.is_some());
        #[cfg(target_os = "linux")]
        assert_eq!(config.tcp.user_timeout, Some(PEER_TIMEOUT));
        assert_eq!(config.unresponsive.max_timeout, None);
    }
}
