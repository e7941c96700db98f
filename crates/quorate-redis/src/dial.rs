//! One attempt to reach a node: transport, TLS and login, within one timeout.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::protocol::Watches;
use quorate_core::{BackendError, BackendErrorKind};
#[cfg(feature = "tls-rustls")]
use redis::ConnectionAddr;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ProtocolVersion, RedisConnectionInfo, Value,
};
#[cfg(feature = "tls-rustls")]
use rustls::crypto::CryptoProvider;

use crate::address::lacks_password;
use crate::ear::Ear;
use crate::error;

/// How long a peer may leave sent bytes without so much as an acknowledgement.
///
/// The kernel of a node acknowledges for a process that is merely stopped, and what was sent to it
/// will be carried out when it wakes up; so only a peer that has gone is given up.
const SILENCE: Duration = Duration::from_secs(5);

/// Commands that wait in the connection before senders have to wait; redis-rs' default is 50.
///
/// It matters when the socket of a hung node is full. Whoever waits, waits the same; a slot costs
/// nothing until it is used.
const QUEUE: usize = 1024;

/// What it takes to reach one node. It holds the password, and so has no `Debug`.
pub(crate) struct Dial {
    /// Without what `login` does.
    transport: ConnectionInfo,
    login: RedisConnectionInfo,
    /// Whether the login names a user and no password.
    lacks_password: bool,
    timeout: Duration,
    purpose: Purpose,
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Commands,
    Watches,
}

impl Dial {
    pub(crate) fn new(info: &ConnectionInfo, timeout: Duration) -> Self {
        let login = info.redis_settings().clone();
        Self {
            transport: transport_of(info),
            login,
            lacks_password: lacks_password(info),
            timeout,
            purpose: Purpose::Commands,
        }
    }

    /// The same place and login, for a connection on which the node tells of changes.
    pub(crate) fn for_watches(info: &ConnectionInfo, timeout: Duration) -> Self {
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.clone().set_redis_settings(settings);
        Self { purpose: Purpose::Watches, ..Self::new(&info, timeout) }
    }

    /// How long an attempt takes at the most.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A connection on which the node answers, or the reason why there is none. If it is one for
    /// watches, `watches` are told what comes on it, and when it ends.
    ///
    /// Never panics: whoever waits for the outcome would wait for ever.
    pub(crate) async fn attempt(
        &self,
        watches: &Watches,
    ) -> Result<MultiplexedConnection, BackendError> {
        // A runtime without timers panics where a timeout is made.
        let attempt = async { tokio::time::timeout(self.timeout, self.connection(watches)).await };
        match AssertUnwindSafe(attempt).catch_unwind().await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(BackendError::new(
                BackendErrorKind::TimedOut,
                format!("no connection within {:?}", self.timeout),
            )),
            Err(_) => Err(BackendError::new(
                BackendErrorKind::Connection,
                "redis-rs panicked while it connected: has the tokio runtime I/O and timers?",
            )),
        }
    }

    async fn connection(&self, watches: &Watches) -> Result<MultiplexedConnection, BackendError> {
        if self.lacks_password {
            return Err(BackendError::new(BackendErrorKind::Auth, error::NO_PASSWORD));
        }
        // A call stays pending as long as the node may carry it out: no response timeout.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        if self.purpose == Purpose::Watches {
            config = config.set_push_sender(Ear::of(watches));
        }
        #[cfg(feature = "tls-rustls")]
        if let ConnectionAddr::TcpTls { .. } = self.transport.addr() {
            provide_crypto();
        }
        let mut connection = Client::open(self.transport.clone())
            .map_err(|error| error::of_redis(&error))?
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| error::of_redis(&error))?;
        // With RESP3 it was HELLO.
        let is_first = !self.login.protocol().supports_resp3();
        self.log_in(&mut Fresh { connection: &mut connection, is_first }).await?;
        if self.purpose == Purpose::Watches {
            let mut asked = Fresh { connection: &mut connection, is_first: false };
            asked.ask(redis::cmd("CLIENT").arg("TRACKING").arg("ON")).await?;
        }
        Ok(connection)
    }

    /// What redis-rs does when it connects, except that the node's own reason is heard: redis-rs
    /// calls any error answer to `AUTH` a failed authentication, a full client table too.
    async fn log_in(&self, connection: &mut Fresh<'_>) -> Result<(), BackendError> {
        if let Some(password) = self.login.password()
            && !self.login.protocol().supports_resp3()
        {
            let user = self.login.username();
            match connection.ask(Cmd::new().arg("AUTH").arg(user).arg(password)).await {
                // A node older than 6 has no users.
                Err(error) if user.is_some() && error.to_string().contains("number of arg") => {
                    connection.ask(Cmd::new().arg("AUTH").arg(password)).await?;
                }
                outcome => outcome?,
            }
        }
        if self.login.db() != 0 {
            connection.ask(Cmd::new().arg("SELECT").arg(self.login.db())).await?;
        }
        if self.login.skip_set_lib_name() {
            return Ok(());
        }
        // Nodes older than 7.2 do not know it, users may not be allowed it. It is sent all the same:
        // a node that answers is a node.
        let name = self.login.lib_name().unwrap_or("quorate");
        let version = self.login.lib_ver().unwrap_or(env!("CARGO_PKG_VERSION"));
        let mut heard = None;
        for (what, text) in [("LIB-NAME", name), ("LIB-VER", version)] {
            let mut command = redis::cmd("CLIENT");
            command.arg("SETINFO").arg(what).arg(text);
            match connection.send(&command).await {
                // What is harmless by itself is not why the connection ends.
                Ok(answer) => {
                    let error = error::reply(answer).err();
                    heard = error.filter(|error| !error.kind().is_permanent());
                }
                // "ERR max number of clients reached" comes before the end.
                Err(error) => return Err(heard.unwrap_or(error)),
            }
        }
        Ok(())
    }
}

/// rustls panics where no provider was chosen and several are compiled in, or none.
#[cfg(feature = "tls-rustls")]
fn provide_crypto() {
    if CryptoProvider::get_default().is_none() {
        // Somebody may have come before us, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// A connection that is being made.
struct Fresh<'a> {
    connection: &'a mut MultiplexedConnection,
    /// Whether nothing has been answered yet.
    is_first: bool,
}

impl Fresh<'_> {
    async fn send(&mut self, command: &Cmd) -> Result<Value, BackendError> {
        let answer = self.connection.send_packed_command(command).await;
        let was_first = std::mem::take(&mut self.is_first);
        let why = if was_first { error::of_first } else { error::of_redis };
        answer.map_err(|error| why(&error))
    }

    async fn ask(&mut self, command: &Cmd) -> Result<(), BackendError> {
        error::reply(self.send(command).await?).map(drop)
    }
}

/// The same place, with as much of the login as RESP3 wants at once.
fn transport_of(info: &ConnectionInfo) -> ConnectionInfo {
    let login = info.redis_settings();
    let mut bare =
        RedisConnectionInfo::default().set_protocol(login.protocol()).set_skip_set_lib_name();
    if login.protocol().supports_resp3() {
        // HELLO carries both.
        if let Some(user) = login.username() {
            bare = bare.set_username(user);
        }
        if let Some(password) = login.password() {
            bare = bare.set_password(password);
        }
    }
    info.clone().set_tcp_settings(tcp_of(info.tcp_settings())).set_redis_settings(bare)
}

/// The user's settings, and ours where the user has none.
fn tcp_of(settings: &TcpSettings) -> TcpSettings {
    // Without it, a command waits for the acknowledgement of the one before.
    let mut settings = settings.clone().set_nodelay(true);
    if settings.keepalive().is_none() {
        let probes = TcpKeepalive::new().with_time(Duration::from_secs(2));
        #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
        let probes = probes.with_interval(Duration::from_secs(1)).with_retries(3);
        settings = settings.set_keepalive(probes);
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if settings.user_timeout().is_none() {
        settings = settings.set_user_timeout(SILENCE);
    }
    settings
}
