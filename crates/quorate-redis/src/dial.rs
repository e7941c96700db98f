//! How a node is connected to: a server, or the one that is the primary of its group.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bb8::ManageConnection;
use futures_util::StreamExt as _;
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{ConnectError, Connection as _, CredentialSource, Dial, Limits, Push};
use redis::Client;
use tokio::time::timeout;

use crate::address::IntoClient;
use crate::connection::RedisConnection;
use crate::sentinel::{self, Group};
use crate::server::Server;

/// How to connect to one node through redis-rs.
///
/// `Debug` shows the name and nothing secret.
#[derive(Clone)]
pub struct RedisDial {
    server: Server,
    /// Of a primary whose address its sentinels know.
    group: Option<Group>,
    /// Of a connect for a pool, and for the sentinels. A batcher has a limit of its own.
    limit: Duration,
}

impl RedisDial {
    /// The node at an address. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] names an address that cannot be used, without its secrets.
    pub fn new(address: impl IntoClient) -> Result<Self, ConnectError> {
        Ok(Self::of(Server::new(address)?, None))
    }

    /// The primary of a group. See [`sentinel`](crate::sentinel).
    ///
    /// # Errors
    ///
    /// [`ConnectError`] names an address that cannot be used, without its secrets.
    pub fn sentinel(
        primary: impl AsRef<str>,
        sentinels: impl IntoIterator<Item = impl IntoClient>,
    ) -> Result<Self, ConnectError> {
        let (info, group) = sentinel::read(primary.as_ref(), sentinels)?;
        let server = Server::of(group.node_name(info.redis_settings().db()), &info)?;
        Ok(Self::of(server, Some(group)))
    }

    fn of(server: Server, group: Option<Group>) -> Self {
        Self { server, group, limit: Limits::default().connect }
    }

    /// Asks `source` for the login of each new connection. That of the address is not used.
    #[must_use]
    pub fn with_credentials(mut self, source: CredentialSource) -> Self {
        self.server.credentials = Some(source);
        self
    }

    /// Connects to the primary of a group, and makes sure that it is one.
    async fn open_primary(
        &self,
        clients: &[Client; 2],
        host: &str,
        port: u16,
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<RedisConnection, BackendError> {
        let [resp3, resp2] = clients.each_ref().map(|client| sentinel::moved(client, host, port));
        let unusable = |error: ConnectError| {
            BackendError::new(BackendErrorKind::Connection, error.to_string())
        };
        let clients = [resp3.map_err(unusable)?, resp2.map_err(unusable)?];
        let connection = self.server.open(clients, push).await?;
        sentinel::check_role(&connection).await?;
        Ok(connection)
    }

    pub(crate) fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }
}

impl fmt::Debug for RedisDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisDial").field("name", &self.server.name).finish_non_exhaustive()
    }
}

impl Dial for RedisDial {
    type Connection = RedisConnection;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.server.name)
    }

    async fn connect(
        &self,
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<RedisConnection, BackendError> {
        let clients = self.server.clients().await?;
        let Some(group) = &self.group else { return self.server.open(clients, push).await };
        let push = Arc::new(push);
        let mut reasons = Vec::new();
        let mut answers = group.primaries(self.limit);
        while let Some((place, found)) = answers.next().await {
            let push = Arc::clone(&push);
            let connected = match found {
                Ok((host, port)) => {
                    let opening =
                        self.open_primary(&clients, &host, port, move |pushed| push(pushed));
                    // A sentinel may name a primary that is gone. Then there is time to ask another one.
                    let opened = within(self.limit / 2, opening).await;
                    opened.map(|connection| connection.of_primary(host, port))
                }
                Err(error) => Err(error),
            };
            match connected {
                // Another sentinel changes nothing about a wrong password.
                Err(error) if !error.kind().is_permanent() => {
                    reasons.push((place, error.to_string()));
                }
                outcome => return outcome,
            }
        }
        reasons.sort();
        let reasons: Vec<String> = reasons.into_iter().map(|(_, reason)| reason).collect();
        Err(BackendError::new(BackendErrorKind::Connection, reasons.join("; ")))
    }

    fn can_move(&self) -> bool {
        self.group.is_some()
    }

    async fn has_moved(&self, connection: &RedisConnection) -> bool {
        let Some(group) = &self.group else { return false };
        let mut answers = group.primaries(self.limit);
        while let Some((_, found)) = answers.next().await {
            if found.is_ok_and(|primary| connection.primary() != Some(&primary)) {
                return true;
            }
        }
        false
    }
}

async fn within(
    limit: Duration,
    connecting: impl Future<Output = Result<RedisConnection, BackendError>>,
) -> Result<RedisConnection, BackendError> {
    timeout(limit, connecting).await.unwrap_or_else(|_| {
        let text = format!("no connection within {limit:?}");
        Err(BackendError::new(BackendErrorKind::TimedOut, text))
    })
}

/// One connection of a pool.
impl ManageConnection for RedisDial {
    type Connection = RedisConnection;
    type Error = BackendError;

    async fn connect(&self) -> Result<RedisConnection, BackendError> {
        within(self.limit, Dial::connect(self, drop)).await
    }

    async fn is_valid(&self, connection: &mut RedisConnection) -> Result<(), BackendError> {
        let text = "the connection has ended";
        let error = || BackendError::new(BackendErrorKind::Connection, text);
        if connection.is_closed() { Err(error()) } else { Ok(()) }
    }

    fn has_broken(&self, connection: &mut RedisConnection) -> bool {
        connection.is_closed()
    }
}
