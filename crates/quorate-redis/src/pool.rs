//! A bb8 pool as a carrier: calls to one node over several connections, in no order.

use std::borrow::Cow;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::{self, Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bb8::{ManageConnection, RunError};
use futures_util::future::{BoxFuture, Either, select};
use quorate_core::backend::{Call, CallReply, CallResult, Capabilities, NotSent, Operation};
use quorate_core::runtime::{Runtime, TokioRuntime};
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{
    Carrier, Connection as _, Dial as _, Features, LEAST_LIFE, LatestList, Limits, SILENT,
    exchange, exchange_list, handshake,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Known, RedisConnection};
use crate::dial::RedisDial;

/// Carries calls over the connections of a bb8 pool: one connection for each call.
///
/// Clones share the pool.
#[derive(Clone)]
pub struct Pooled {
    name: Arc<str>,
    runtime: TokioRuntime,
    connect_limit: Duration,
    pool: Arc<dyn Lend>,
}

impl Pooled {
    /// A carrier over `pool`. A connection without a reply within the limit is over.
    pub(crate) fn new<M: ManageConnection>(
        name: String,
        runtime: TokioRuntime,
        pool: bb8::Pool<M>,
        limits: Limits,
        reads: Reads<M>,
    ) -> Self {
        let (reply_limit, connect_limit) = (limits.reply, limits.connect);
        let (failure, moved_at, left, features, list) = Default::default();
        let pool =
            Arc::new(Source { pool, reads, reply_limit, failure, moved_at, left, features, list });
        Self { name: name.into(), runtime, connect_limit, pool }
    }
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Carrier for Pooled {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    fn connect_limit(&self) -> Duration {
        self.connect_limit
    }

    fn begin(&self, call: Call) -> Result<(), NotSent> {
        if let Operation::Watch { .. } = call.operation() {
            return Err(call.not_sent(BackendError::unsupported("a pool cannot watch keys")));
        }
        call.note_queued();
        self.runtime.spawn(Arc::clone(&self.pool).carry_out(call));
        Ok(())
    }
}

/// A pool, whatever its manager is.
trait Lend: Send + Sync {
    /// Carries a call out on a connection that it has to itself, and answers it.
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, ()>;
}

struct Source<M: ManageConnection> {
    pool: bb8::Pool<M>,
    reads: Reads<M>,
    reply_limit: Duration,
    /// When the latest connect of ours failed, and why. Locked during a connect.
    failure: Mutex<Option<(Instant, BackendError)>>,
    /// When the group had another primary. No connection from before is used again.
    moved_at: sync::Mutex<Option<Instant>>,
    /// Since when connections to a replica are counted, and how many there were. Not kept with each
    /// connection, since those of a user's pool have no place for it.
    left: sync::Mutex<Option<(Instant, u32)>>,
    /// Of a user's pool, whose connections have no place for it.
    features: Known,
    list: LatestList,
}

/// A connection, and its place in the pool.
struct Lent<M: ManageConnection> {
    connection: RedisConnection,
    pooled: bb8::PooledConnection<'static, M>,
}

/// How to read what a manager makes.
pub(crate) struct Reads<M: ManageConnection> {
    pub(crate) connection: fn(&M::Connection, &Known) -> RedisConnection,
    pub(crate) error: fn(M::Error) -> BackendError,
    /// Of a pool of ours: its manager, which drops a connection that was closed.
    pub(crate) dial: Option<RedisDial>,
}

impl<M: ManageConnection> Lend for Source<M> {
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let is_late = self.pool.state().idle_connections == 0;
            let lent = match unless(call.given_up(), self.check_out()).await {
                Some(Ok(lent)) => lent,
                Some(Err(error)) => return call.answer(Err(error.particular().not_sent())),
                None => return,
            };
            call.note_left(is_late);
            let settled = self.settle(&lent.connection, &call).await;
            let is_old = Instant::now() >= lent.connection.made_at() + LEAST_LIFE;
            let is_unproven =
                |features: &Features| features.is_denied() || is_old && features.has_no_vote();
            let is_unproven = known(lent.connection.features()).as_ref().is_some_and(is_unproven);
            let is_over = is_unproven
                || lent.connection.is_closed()
                || settled.as_ref().is_err_and(|error| self.ends(error.kind()));
            if is_over {
                lent.connection.close();
                *known(lent.connection.features()) = None;
            }
            call.answer(settled);
            if is_over && self.reads.dial.is_none() {
                self.replace(lent).await;
            }
        })
    }
}

impl<M: ManageConnection> Source<M> {
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

    /// Awaits the reply to a call for as long as the limit says, for a second after the call was
    /// given up, and until the group has another primary.
    async fn settle(&self, connection: &RedisConnection, call: &Call) -> CallResult {
        let given_up = async {
            call.given_up().await;
            sleep(GRACE).await;
        };
        let late = async {
            drop(timeout(self.reply_limit, given_up).await);
            let text = format!("no reply within {:?}", self.reply_limit);
            BackendError::new(BackendErrorKind::TimedOut, text)
        };
        let moved = async {
            self.moves(connection).await;
            let text = "no reply, and the group has another primary";
            BackendError::new(BackendErrorKind::Connection, text)
        };
        let (late, moved) = (pin!(late), pin!(moved));
        match select(pin!(self.perform(connection, call)), select(late, moved)).await {
            Either::Left((result, _)) => result,
            Either::Right((first, _)) => Err(first.factor_first().0),
        }
    }

    /// Ready when the group has another primary than the one that `connection` leads to.
    async fn moves(&self, connection: &RedisConnection) {
        let Some(dial) = self.reads.dial.as_ref().filter(|dial| dial.can_move()) else {
            return pending().await;
        };
        loop {
            sleep(SILENT).await;
            if dial.has_moved(connection).await {
                *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(Instant::now());
                return;
            }
        }
    }

    /// Whether the connection led to an earlier primary of the group.
    fn is_left(&self, connection: &RedisConnection) -> bool {
        let moved_at = *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
        moved_at.is_some_and(|at| connection.made_at() < at)
    }

    async fn perform(&self, connection: &RedisConnection, call: &Call) -> CallResult {
        let operation = call.operation();
        // A user's pool replaces connections without notice, and the next one may lead to another
        // server.
        let asks_server = call.asks_server() || matches!(operation, Operation::ServerId);
        let is_fresh = asks_server && self.reads.dial.is_none();
        let found = known(connection.features()).clone().filter(|_| !is_fresh);
        let mut features = match found {
            Some(features) => features,
            None => {
                let group = self.reads.dial.as_ref().and_then(RedisDial::group);
                handshake(connection, group).await.map_err(BackendError::not_sent)?
            }
        };
        if let Some(dial) = &self.reads.dial {
            exchange_list(dial, connection, &mut features, call, &self.list).await;
        }
        let mut answer = exchange(connection, &mut features, operation).await;
        *known(connection.features()) = Some(features);
        if let (Ok(CallReply::Voted(reply)), false) =
            (&mut answer, asks_server || self.reads.dial.is_some())
        {
            (reply.server, reply.is_nameless) = (None, false);
        }
        answer
    }

    async fn check_out(&self) -> Result<Lent<M>, BackendError> {
        loop {
            self.fill().await?;
            match self.pool.get_owned().await {
                Ok(pooled) => {
                    let connection = (self.reads.connection)(&pooled, &self.features);
                    if self.is_left(&connection) {
                        connection.close();
                    }
                    if !connection.is_closed() {
                        return Ok(Lent { connection, pooled });
                    }
                }
                Err(RunError::User(error)) => return Err((self.reads.error)(error)),
                Err(RunError::TimedOut) => {
                    // The connections may have been found dead, and no others could be made.
                    self.fill().await?;
                    let text = "no connection of the pool was free within its connection_timeout";
                    return Err(BackendError::new(BackendErrorKind::TimedOut, text));
                }
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
                let error = (self.reads.error)(error);
                *failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Puts another connection in the place of one that is over. redis-rs' own manager would lend
    /// it again.
    async fn replace(&self, mut lent: Lent<M>) {
        for _ in 0..RETRIES {
            if let Ok(connection) = self.pool.dedicated_connection().await {
                *lent.pooled = connection;
                return;
            }
            sleep(RETRY).await;
        }
    }
}

/// What `future` returns; `None` if `end` comes first.
async fn unless<T>(end: impl Future<Output = ()>, future: impl Future<Output = T>) -> Option<T> {
    match select(pin!(future), pin!(end)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

fn known(features: &Known) -> MutexGuard<'_, Option<Features>> {
    features.lock().unwrap_or_else(PoisonError::into_inner)
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
