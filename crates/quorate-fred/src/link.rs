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
use std::task::Poll;
use std::time::{Duration, Instant};

use fred::clients::{Client, WithOptions};
use fred::error::Error;
use fred::interfaces::{ClientLike, EventInterface};
use fred::types::RespVersion;
use fred::types::config::{
    Blocking, Config, ConnectionConfig, Options, PerformanceConfig, Server, TcpConfig,
    UnresponsiveConfig,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Shared, select};
use quorate_core::protocol::Reply;
use quorate_core::runtime::TokioContext;
use quorate_core::{BackendError, BackendErrorKind};
use socket2::TcpKeepalive;
use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::task::{AbortHandle, JoinHandle};

use crate::carrier::{Carried, Carrier, Way};
use crate::error;
use crate::frame::{Command, exchange};
use crate::window::{Place, Window};

/// How long a failed attempt answers for the node. A hundred attempts a second cost nothing, and
/// a node that was started again is back before a client notices.
const FAILURE_HOLDS: Duration = Duration::from_millis(10);

/// How long the peer's machine may leave our bytes, or our probes, unacknowledged.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects when there is need, one attempt at a time.
pub(crate) struct Dialer {
    config: Config,
    performance: PerformanceConfig,
    timeout: Duration,
    tokio: TokioContext,
    latest: Mutex<Option<Attempt>>,
}

/// Why a connection ended, when it has.
pub(crate) type Closed = Shared<BoxFuture<'static, BackendError>>;

pub(crate) type Attempt = Shared<BoxFuture<'static, Result<Arc<Link>, Failure>>>;

#[derive(Clone)]
pub(crate) struct Failure {
    pub(crate) error: BackendError,
    at: Instant,
}

impl Dialer {
    pub(crate) fn new(mut config: Config, timeout: Duration, tokio: TokioContext) -> Self {
        // Without a policy, `false` means: never even try.
        config.fail_fast = true;
        config.blocking = Blocking::Block;
        let performance = PerformanceConfig::default();
        Self { config, performance, timeout, tokio, latest: Mutex::new(None) }
    }

    /// For connections on which the node tells of changes.
    pub(crate) fn for_watches(mut config: Config, timeout: Duration, tokio: TokioContext) -> Self {
        config.version = RespVersion::RESP3;
        // One script may delete many keys at once.
        let performance =
            PerformanceConfig { broadcast_channel_capacity: 256, ..PerformanceConfig::default() };
        Self { performance, ..Self::new(config, timeout, tokio) }
    }

    /// How long an attempt takes at the most.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Uses `tokio` from the next call on.
    pub(crate) fn lend(&mut self, tokio: TokioContext) {
        self.tokio = tokio;
    }

    /// Sends a command once and waits for the reply as long as the connection lives.
    ///
    /// Only what makes a connection needs a runtime: not what goes over one.
    pub(crate) async fn call(&self, command: Command) -> Result<Reply, BackendError> {
        let link = match self.link() {
            Some(link) => link,
            None => self.tokio.enter(self.connected().boxed()).await?,
        };
        link.call(command).await
    }

    /// Whether there is a connection on which a call would not be alone.
    pub(crate) fn carries(&self) -> bool {
        self.link().is_some_and(|link| link.has_company())
    }

    /// Carries a call on the connection that there is.
    pub(crate) fn carry(&self, carried: Carried) {
        // If there is none any more, the call is dropped, which is an answer.
        if let Some(link) = self.link() {
            link.carry(carried);
        }
    }

    /// The connection, made if there is none.
    async fn connected(&self) -> Result<Arc<Link>, BackendError> {
        self.attempt()?.await.map_err(|failure| failure.error)
    }

    /// The connection that there is.
    fn link(&self) -> Option<Arc<Link>> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let link = latest.as_ref()?.peek()?.as_ref().ok()?;
        link.is_usable().then(|| Arc::clone(link))
    }

    /// The attempt under way, or the connection that there is, or a new attempt.
    pub(crate) fn attempt(&self) -> Result<Attempt, BackendError> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = latest.as_ref() {
            let still_good = match attempt.peek() {
                None => true,
                Some(Ok(link)) => link.is_usable(),
                Some(Err(failure)) => failure.at.elapsed() < FAILURE_HOLDS,
            };
            if still_good {
                return Ok(attempt.clone());
            }
        }
        let (config, performance) = (self.config.clone(), self.performance.clone());
        let attempt = dial(config, performance, self.timeout)?.boxed().shared();
        seen_through(&attempt);
        Ok(latest.insert(attempt).clone())
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

/// Begins to connect. The attempt goes on by itself; the future tells how it ended.
fn dial(
    config: Config,
    performance: PerformanceConfig,
    timeout: Duration,
) -> Result<impl Future<Output = Result<Arc<Link>, Failure>> + Send + 'static, BackendError> {
    // Only where not even quorate's own thread could be started: fred would panic.
    let runtime = Handle::try_current().map_err(|_| error::lost("there is no tokio runtime"))?;
    let client = Client::new(config, Some(performance), Some(connection_config(timeout)), None);
    let connected = client.reconnect_rx();
    let task = client.connect();
    let router = task.abort_handle();
    let client = client.with_options(&options());
    let closed = end_of(task).boxed().shared();
    let (window, is_broken) = (Arc::<Window>::default(), Arc::<AtomicBool>::default());
    let way = Way {
        client: client.clone(),
        closed: closed.clone(),
        window: Arc::clone(&window),
        is_broken: Arc::clone(&is_broken),
        runtime: runtime.clone(),
    };
    let carrier = Carrier::start(way);
    // In a task: a runtime without a timer makes it panic.
    let timer = runtime.spawn(async move { tokio::time::sleep(timeout).await });
    let link = Arc::new(Link { client, router, is_broken, carrier, closed, window, runtime });
    Ok(async move {
        let is_over = timer.abort_handle();
        let outcome = reached(&link, connected, timer, timeout).await;
        is_over.abort();
        outcome.map(|()| link).map_err(|error| Failure { error, at: Instant::now() })
    })
}

/// Waits until the node is reached and has let us in.
async fn reached(
    link: &Link,
    mut connected: Receiver<Server>,
    timer: JoinHandle<()>,
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
    carrier: Carrier,
    closed: Closed,
    window: Arc<Window>,
    /// That of fred's task.
    runtime: Handle,
}

impl Link {
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::Relaxed) && !self.router.is_finished()
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
            Ok(answer) => answer,
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

    /// Carries a call, together with others.
    pub(crate) fn carry(&self, carried: Carried) {
        self.carrier.carry(carried);
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
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::builder::CONNECT_TIMEOUT;

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
        let Ok(link) = dial(config, PerformanceConfig::default(), CONNECT_TIMEOUT).unwrap().await
        else {
            panic!("there is a node");
        };
        drop(node.join().unwrap());
        let reason = link.closed.clone().await;
        for _ in 0..3 {
            let call =
                tokio::time::timeout(Duration::from_secs(20), link.call(Command::of(&[b"SET"])));
            let error = call.await.unwrap().unwrap_err();
            assert_eq!(error.to_string(), reason.to_string());
        }
    }

    #[test]
    fn a_peer_that_vanished_is_noticed_and_one_that_is_stopped_keeps_its_connection() {
        let config = connection_config(CONNECT_TIMEOUT);
        assert!(config.tcp.keepalive.is_some());
        #[cfg(target_os = "linux")]
        assert_eq!(config.tcp.user_timeout, Some(PEER_TIMEOUT));
        assert_eq!(config.unresponsive.max_timeout, None);
    }
}
