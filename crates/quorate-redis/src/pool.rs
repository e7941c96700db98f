//! A bb8 pool as a transport: calls to one node over several connections, in no order.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bb8::{ManageConnection, RunError};
use quorate_core::runtime::TokioContext;
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{
    Admission, Command, Connection as _, Failure, Features, Purpose, Reply, Transport,
};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::connection::RedisConnection;

/// Carries commands over the connections of a bb8 pool: one connection for each call.
///
/// Clones share the pool.
#[derive(Clone)]
pub struct Pooled {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    tokio: TokioContext,
    pool: Box<dyn Lend>,
    /// Found out by the first call, and anew after a connection was lost.
    features: StdMutex<Option<Features>>,
}

impl Pooled {
    /// A transport over `pool`.
    pub(crate) fn new<M: ManageConnection>(
        name: String,
        tokio: TokioContext,
        pool: bb8::Pool<M>,
        reads: Reads<M>,
    ) -> Self {
        let pool = Box::new(Source { pool, reads, failure: Mutex::new(None) });
        Self { shared: Arc::new(Shared { name, tokio, pool, features: StdMutex::default() }) }
    }
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl Transport for Pooled {
    const IS_ORDERED: bool = false;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.shared.name)
    }

    async fn call(&self, command: Command, _: Admission) -> Result<Reply, Failure> {
        let shared = &*self.shared;
        shared.tokio.enter(shared.pool.call(command, &shared.features)).await
    }

    fn features(&self) -> Features {
        known(&self.shared.features).clone().unwrap_or_default()
    }
}

/// A pool, whatever its manager is.
#[async_trait]
trait Lend: Send + Sync {
    /// Sends a command on a connection that is held until the reply has arrived.
    async fn call(
        &self,
        command: Command,
        features: &StdMutex<Option<Features>>,
    ) -> Result<Reply, Failure>;
}

struct Source<M: ManageConnection> {
    pool: bb8::Pool<M>,
    reads: Reads<M>,
    /// When the latest connect of ours failed, and why. Locked during a connect.
    failure: Mutex<Option<(Instant, BackendError)>>,
}

/// A connection, and its place in the pool.
struct Lent<'a, M: ManageConnection> {
    connection: RedisConnection,
    _pooled: bb8::PooledConnection<'a, M>,
}

/// How to read what a manager makes.
pub(crate) struct Reads<M: ManageConnection> {
    pub(crate) connection: fn(&M::Connection) -> RedisConnection,
    pub(crate) error: fn(M::Error) -> BackendError,
}

impl<M: ManageConnection> Source<M> {
    async fn check_out(&self) -> Result<Lent<'_, M>, BackendError> {
        loop {
            self.fill().await?;
            match self.pool.get().await {
                Ok(pooled) => {
                    let connection = (self.reads.connection)(&pooled);
                    if !connection.is_closed() {
                        return Ok(Lent { connection, _pooled: pooled });
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
}

#[async_trait]
impl<M: ManageConnection> Lend for Source<M> {
    async fn call(
        &self,
        command: Command,
        features: &StdMutex<Option<Features>>,
    ) -> Result<Reply, Failure> {
        let lent = self.check_out().await.map_err(Failure::NotSent)?;
        let connection = &lent.connection;
        if known(features).is_none() {
            let found = Purpose::Commands.ask(connection).await.map_err(Failure::NotSent)?;
            *known(features) = Some(found);
        }
        let reply = connection.send(vec![command]).await.pop();
        let reply = reply.unwrap_or_else(|| Err(Failure::lost("no reply")));
        if reply.is_err() {
            // The next connection may be to another version, or the user may have other permissions.
            *known(features) = None;
        }
        reply
    }
}

fn known(features: &StdMutex<Option<Features>>) -> MutexGuard<'_, Option<Features>> {
    features.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For how long a failed connect is not tried again.
const PAUSE: Duration = Duration::from_millis(50);
