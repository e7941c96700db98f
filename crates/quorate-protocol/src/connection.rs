//! What a client brings: a way to make a connection, and the connection.

use std::borrow::Cow;
use std::fmt;
use std::future::ready;
use std::time::Duration;

use quorate_core::{BackendError, BackendErrorKind};
use tokio::time::timeout;

use crate::command::Command;
use crate::credentials::Credentials;
use crate::value::{Push, Value, no_reply, read};

/// How long no reply has come when [`Dial::has_moved`] is asked, and between two questions.
pub const SILENT: Duration = Duration::from_millis(500);

/// How old a connection is at least before the word of its server that it is a replica, or that it
/// releases nothing, ends it: else a node that stays so would get a new connection with each call.
pub const LEAST_LIFE: Duration = Duration::from_secs(1);

/// Makes one connection, and the next one after it has ended.
pub trait Dial: Clone + fmt::Debug + Send + Sync + 'static {
    /// A connection of this client.
    type Connection: Connection;

    /// What errors and events call the node: its address without secrets (A6).
    fn name(&self) -> Cow<'_, str>;

    /// Whether the client passes on the push of a flush. Otherwise a watched key is read every two
    /// seconds.
    fn pushes_flushes(&self) -> bool {
        true
    }

    /// Makes a connection, once: a failure is reported and not retried here. It may take `limit`,
    /// of which each address of a host name has its part.
    ///
    /// It selects the database, logs in, and uses RESP3 where the server has it. `login` takes the
    /// place of the login that the dial has. `push` is called with each invalidation message and at
    /// the end of the connection. On RESP2 it is never called, and nothing can be watched.
    ///
    /// # Errors
    ///
    /// There is no connection, and why. The client's own error belongs into
    /// [`with_source`](BackendError::with_source), and no secret into the text.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    fn connect(
        &self,
        login: Option<&Credentials>,
        limit: Duration,
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> impl Future<Output = Result<Self::Connection, BackendError>> + Send;

    /// Whether the node can become another server, as the primary of a group. Then
    /// [`has_moved`](Self::has_moved) is asked while a connection is silent.
    fn can_move(&self) -> bool {
        false
    }

    /// Whether the node is another server by now than the one that `connection` leads to. A connect
    /// may take `limit`.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    fn has_moved(
        &self,
        _: &Self::Connection,
        _limit: Duration,
    ) -> impl Future<Output = bool> + Send {
        ready(false)
    }
}

/// One connection. It never reconnects (C3, C6).
///
/// A command that was given up must not leave after a reconnect: it could set a key after the
/// release that undoes it.
pub trait Connection: Send + Sync + 'static {
    /// A command in the form of this client; [`Parts`](crate::Parts) if it has none.
    type Command: Command;

    /// Sends commands as one pipeline, and returns what came back for each, in order.
    ///
    /// The **first poll** hands all commands to the client, behind those of every earlier first
    /// poll. The future ends when the last reply has arrived or the connection has ended, and never
    /// by a timeout. An error is [not sent](BackendError::not_sent) only if its command can never
    /// leave.
    ///
    /// # Errors
    ///
    /// Each command has its own: it was not sent, or its reply was lost with the connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future after its first poll may or may not stop the commands.
    fn send(
        &self,
        commands: Vec<Self::Command>,
    ) -> impl Future<Output = Vec<Result<Value, BackendError>>> + Send;

    /// Sends one command alone. An error reply is an error.
    ///
    /// # Errors
    ///
    /// As those of [`send`](Self::send), and the meaning of an error reply.
    ///
    /// # Cancel safety
    ///
    /// As that of [`send`](Self::send).
    fn ask(
        &self,
        command: Self::Command,
    ) -> impl Future<Output = Result<Value, BackendError>> + Send {
        async { read(self.send(vec![command]).await.pop().unwrap_or_else(no_reply)) }
    }

    /// Whether the connection has ended. Once true, it stays true, and every [`send`](Self::send)
    /// ends.
    fn is_closed(&self) -> bool;

    /// Whether what the server pushes arrives. On RESP2 it does not, and nothing can be watched,
    /// though the server accepts client tracking.
    fn receives_pushes(&self) -> bool {
        true
    }
}

/// Awaits what is to come within `limit`.
///
/// # Errors
///
/// [`BackendErrorKind::TimedOut`], with the text *no `what` within `limit`*; or that of the future.
///
/// # Cancel safety
///
/// Dropping the future drops the one in it.
pub async fn within<T>(
    limit: Duration,
    what: &str,
    future: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    timeout(limit, future).await.unwrap_or_else(|_| {
        let text = format!("no {what} within {limit:?}");
        Err(BackendError::new(BackendErrorKind::TimedOut, text))
    })
}
