//! A bb8 pool of a user as a carrier: calls to one node over several connections, in no order.

use std::borrow::Cow;
use std::fmt;
use std::pin::pin;
use std::sync::{self, Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bb8::{ManageConnection, PooledConnection, RunError};
use futures_util::future::{Either, select};
use quorate_core::backend::{Call, CallReply, CallResult, Capabilities, NotSent, Operation};
use quorate_core::runtime::{Runtime, TokioRuntime};
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{
    Carrier, Connection as _, Features, LEAST_LIFE, Limits, exchange, handshake,
};
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::RedisConnection;
use crate::error::of_connect;

/// Carries calls over the connections of a bb8 pool: one connection for each call.
pub(crate) struct Pooled<M: ManageConnection> {
    name: String,
    runtime: TokioRuntime,
    limits: Limits,
    pool: bb8::Pool<M>,
    /// When the latest connect of ours failed, and why. Locked during a connect.
    failure: Mutex<Option<(Instant, BackendError)>>,
    /// Since when connections to a replica are counted, and how many there were.
    left: sync::Mutex<Option<(Instant, u32)>>,
    /// What a handshake found out; `None` before it. The connections have no place for it.
    features: sync::Mutex<Option<Features>>,
}

impl<M: ManageConnection> fmt::Debug for Pooled<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<M> Carrier for Pooled<M>
where
    M: ManageConnection<Connection = MultiplexedConnection, Error = RedisError>,
{
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    fn connect_limit(&self) -> Duration {
        self.limits.connect
    }

    fn begin(self: Arc<Self>, call: Call) -> Result<(), NotSent> {
        if let Operation::Watch { .. } = call.operation() {
            return Err(call.not_sent(BackendError::unsupported("a pool cannot watch keys")));
        }
        call.note_queued();
        let this = Arc::clone(&self);
        self.runtime.spawn(Box::pin(async move { this.carry_out(call).await }));
        Ok(())
    }
}

impl<M> Pooled<M>
where
    M: ManageConnection<Connection = MultiplexedConnection, Error = RedisError>,
{
    /// A carrier over `pool`.
    pub(crate) fn new(name: String, pool: bb8::Pool<M>) -> Self {
        let (runtime, limits) = (TokioRuntime::new(), Limits::default());
        let (failure, left, features) = Default::default();
        Self { name, runtime, limits, pool, failure, left, features }
    }

    /// Carries a call out on a connection that it has to itself, and answers it.
    async fn carry_out(&self, call: Call) {
        let is_late = self.pool.state().idle_connections == 0;
        let lent = match unless(call.given_up(), self.check_out()).await {
            Some(Ok(lent)) => lent,
            Some(Err(error)) => return call.answer(Err(error.particular().not_sent())),
            None => return,
        };
        call.note_left(is_late);
        let connection = RedisConnection::of_user(&lent);
        let settled = self.settle(&connection, &call).await;
        let is_over = self.features().as_ref().is_some_and(Features::is_denied)
            || connection.is_closed()
            || settled.as_ref().is_err_and(|error| self.ends(error.kind()));
        if is_over {
            *self.features() = None;
        }
        call.answer(settled);
        if is_over {
            self.replace(lent).await;
        }
    }

    /// Whether a connection is over after an error of this kind: a reply may still come, or none is
    /// to be trusted, or the address may lead to another server.
    fn ends(&self, kind: BackendErrorKind) -> bool {
        match kind {
            BackendErrorKind::Connection
            | BackendErrorKind::Protocol
            | BackendErrorKind::TimedOut => true,
            BackendErrorKind::ReadOnly => self.leaves_replica(),
            _ => false,
        }
    }

    /// Whether a connection to a replica is over. Within [`LEAST_LIFE`], each connection of the
    /// pool can be so once: else a node that stays a replica would get a new connection with each
    /// call.
    fn leaves_replica(&self) -> bool {
        let now = Instant::now();
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) =
            left.filter(|(since, _)| now < *since + LEAST_LIFE).unwrap_or((now, 0));
        *left = Some((since, count + 1));
        count < self.pool.state().connections
    }

    /// Awaits the reply to a call for as long as the limit says, and for a second after the call
    /// was given up.
    async fn settle(&self, connection: &RedisConnection, call: &Call) -> CallResult {
        let given_up = async {
            call.given_up().await;
            sleep(GRACE).await;
        };
        let late = async { drop(timeout(self.limits.reply, given_up).await) };
        unless(late, self.perform(connection, call)).await.unwrap_or_else(|| {
            let text = format!("no reply within {:?}", self.limits.reply);
            Err(BackendError::new(BackendErrorKind::TimedOut, text))
        })
    }

    async fn perform(&self, connection: &RedisConnection, call: &Call) -> CallResult {
        let operation = call.operation();
        // The pool replaces connections without notice, and the next one may lead to another
        // server.
        let asks_server = call.asks_server() || matches!(operation, Operation::ServerId);
        let found = self.features().clone().filter(|_| !asks_server);
        let mut features = match found {
            Some(features) => features,
            None => handshake(connection).await.map_err(BackendError::not_sent)?,
        };
        let mut answer = exchange(connection, &mut features, operation).await;
        *self.features() = Some(features);
        if let (Ok(CallReply::Voted(reply)), false) = (&mut answer, asks_server) {
            (reply.server, reply.is_nameless) = (None, false);
        }
        answer
    }

    async fn check_out(&self) -> Result<PooledConnection<'static, M>, BackendError> {
        self.fill().await?;
        match self.pool.get_owned().await {
            Ok(lent) => Ok(lent),
            Err(RunError::User(error)) => Err(of_connect(&error)),
            Err(RunError::TimedOut) => {
                // The connections may have been found dead, and no others could be made.
                self.fill().await?;
                let text = "no connection of the pool was free within its connection_timeout";
                Err(BackendError::new(BackendErrorKind::TimedOut, text))
            }
        }
    }

    /// Makes the first connection here: bb8 reports a failed connect to no waiter.
    async fn fill(&self) -> Result<(), BackendError> {
        let is_filled = || self.pool.state().connections > 0;
        if is_filled() {
            return Ok(());
        }
        let mut failure = self.failure.lock().await;
        match &*failure {
            _ if is_filled() => return Ok(()),
            Some((at, error)) if at.elapsed() < PAUSE => return Err(error.clone()),
            _ => {}
        }
        match self.pool.dedicated_connection().await {
            Ok(connection) => {
                *failure = None;
                // The pool may have made one meanwhile, and be full.
                drop(self.pool.add(connection));
                Ok(())
            }
            Err(error) => {
                let error = of_connect(&error);
                *failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Puts another connection in the place of one that is over. redis-rs' own manager would lend
    /// it again.
    async fn replace(&self, mut lent: PooledConnection<'static, M>) {
        for _ in 0..RETRIES {
            if let Ok(connection) = self.pool.dedicated_connection().await {
                *lent = connection;
                return;
            }
            sleep(RETRY).await;
        }
    }

    fn features(&self) -> MutexGuard<'_, Option<Features>> {
        self.features.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What `future` returns; `None` if `end` comes first.
async fn unless<T>(end: impl Future<Output = ()>, future: impl Future<Output = T>) -> Option<T> {
    match select(pin!(future), pin!(end)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// How long the reply to a call that was given up is awaited. With it, the connection goes back to
/// the pool.
const GRACE: Duration = Duration::from_secs(1);

/// For how long a failed connect is not tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// Between two attempts to replace a connection.
const RETRY: Duration = Duration::from_secs(1);

/// Then the connection goes to the pool as it is: the pool may have no user left.
const RETRIES: usize = 60;
