//! Ways to a node: what carries one command there and one answer back.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bb8::{ManageConnection, RunError};
use futures_util::future::BoxFuture;
use quorate_core::runtime::TokioContext;
use quorate_core::{BackendError, BackendErrorKind};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Value};

use crate::error;
use crate::pool::{Lane, Live};

/// A way to one node.
pub(crate) enum Line {
    /// On a connection of our own.
    Own(Arc<Lane>),
    /// On what the user has made.
    Theirs(Box<dyn Theirs>),
}

impl Line {
    /// Our own connection, if there is one.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        match self {
            Self::Own(lane) => lane.live(),
            Self::Theirs(_) => None,
        }
    }

    /// Why there is no connection of our own, if there is none.
    pub(crate) fn obstacle(&self) -> Option<BackendError> {
        match self {
            Self::Own(lane) => lane.obstacle(),
            Self::Theirs(_) => None,
        }
    }

    /// Sends `command` once. An error answer may come as a value or as an error.
    ///
    /// Our own connection is made for it, or looked at: seldom, and much to keep in a future.
    pub(crate) fn send_anew<'a>(
        &'a self,
        command: Cmd,
        tokio: &'a TokioContext,
    ) -> BoxFuture<'a, Result<Value, BackendError>> {
        match self {
            Self::Own(lane) => Box::pin(tokio.enter(lane.send_anew(command))),
            Self::Theirs(line) => Box::pin(tokio.enter(async move { line.send(&command).await })),
        }
    }
}

/// What the user has made.
#[async_trait]
pub(crate) trait Theirs: Send + Sync {
    async fn send(&self, command: &Cmd) -> Result<Value, BackendError>;
}

/// A pool of the user's: a connection is held during the call.
#[async_trait]
impl<M> Theirs for bb8::Pool<M>
where
    M: ManageConnection,
    M::Connection: ConnectionLike,
{
    async fn send(&self, command: &Cmd) -> Result<Value, BackendError> {
        let mut connection = self.get().await.map_err(|error| match error {
            RunError::TimedOut => BackendError::new(
                BackendErrorKind::TimedOut,
                "the pool had no connection within its connection_timeout",
            ),
            // Of the manager's error nothing is known, not even that it shows no password.
            RunError::User(_) => {
                BackendError::new(BackendErrorKind::Connection, "the manager of the pool failed")
            }
        })?;
        connection.req_packed_command(command).await.map_err(|error| error::of_redis(&error))
    }
}

/// A connection of the user's.
pub(crate) struct Fixed(MultiplexedConnection);

impl Fixed {
    pub(crate) fn new(mut connection: MultiplexedConnection) -> Self {
        // The nearest to none that a clone can be given. The user's own clones keep theirs.
        connection.set_response_timeout(Duration::MAX);
        Self(connection)
    }
}

#[async_trait]
impl Theirs for Fixed {
    async fn send(&self, command: &Cmd) -> Result<Value, BackendError> {
        self.0.clone().send_packed_command(command).await.map_err(|error| error::of_redis(&error))
    }
}

/// A command, its name first, as redis-rs sends it.
pub(crate) fn packed(command: &[&[u8]]) -> Cmd {
    let size = command.iter().map(|part| part.len()).sum();
    let mut packed = Cmd::with_capacity(command.len(), size);
    for part in command {
        packed.arg(*part);
    }
    packed
}
