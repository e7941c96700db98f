//! Connecting to one node.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fred::types::RespVersion;
use fred::types::config::{
    Blocking, Config, ConnectionConfig, Server, ServerConfig, TcpConfig, UnresponsiveConfig,
};
use quorate_core::BackendError;
use quorate_protocol::{ConnectError, Credentials, Dial, Host, Push, lacks_resp3};
use socket2::TcpKeepalive;

use crate::address::{lacks_password, name_of, parse};
use crate::connection::FredConnection;

/// Makes connections to one node with fred. `Debug` shows its name and no secret.
#[derive(Clone)]
pub struct FredDial {
    name: String,
    config: Config,
}

impl FredDial {
    /// The node at an address that [`connect`](crate::connect) takes.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] names the address, without its password.
    pub fn at(address: &str) -> Result<Self, ConnectError> {
        Self::new(parse(address)?)
    }

    /// The node of a configuration of fred: for TLS settings, say, or a credential provider.
    ///
    /// The address, the login, the database and TLS are used. The rest is for clients that
    /// reconnect.
    ///
    /// # Errors
    ///
    /// - [`ConnectError::NotOneNode`] for a cluster, or servers behind sentinels.
    /// - [`ConnectError::InvalidAddress`] for a user without a password, also where a credential
    ///   provider knows both: fred would leave the user out.
    pub fn new(config: Config) -> Result<Self, ConnectError> {
        let name = name_of(&config)?;
        if lacks_password(&config) {
            return Err(ConnectError::no_password(&name));
        }
        Ok(Self { name, config })
    }

    /// What errors and events call the node: its address without secrets.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.name
    }

    /// A connection over RESP3, or over RESP2 where the server has no other.
    async fn open_either(
        config: Config,
        push: Arc<impl Fn(Push) + Send + Sync + 'static>,
    ) -> Result<FredConnection, BackendError> {
        match Self::open(config.clone(), RespVersion::RESP3, Arc::clone(&push)).await {
            Err(error) if lacks_resp3(&error) => Self::open(config, RespVersion::RESP2, push).await,
            outcome => outcome,
        }
    }

    async fn open(
        mut config: Config,
        version: RespVersion,
        push: Arc<impl Fn(Push) + Send + Sync + 'static>,
    ) -> Result<FredConnection, BackendError> {
        if version == RespVersion::RESP3 {
            config.username = config.username.as_deref().map(inline);
            config.password = config.password.as_deref().map(inline);
        }
        config.version = version;
        // Without a policy, `false` means: never even try.
        config.fail_fast = true;
        config.blocking = Blocking::Block;
        FredConnection::open(config, connection_config(), push).await
    }
}

impl fmt::Debug for FredDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FredDial").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Dial for FredDial {
    type Connection = FredConnection;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    /// fred drops what a flush pushes, which names no key.
    fn pushes_flushes(&self) -> bool {
        false
    }

    async fn connect(
        &self,
        login: Option<&Credentials>,
        limit: Duration,
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<FredConnection, BackendError> {
        let (mut config, push) = (self.config.clone(), Arc::new(push));
        if let Some(login) = login {
            config.username.clone_from(&login.user);
            config.password = Some(login.password.clone());
        }
        let ServerConfig::Centralized { server } = &config.server else {
            return Self::open_either(config, push).await;
        };
        let host = Host::new(&server.host, server.port, config.uses_tls());
        let open = |address| Self::open_either(at(&config, server, address), Arc::clone(&push));
        host.connect(limit, open).await
    }
}

/// The same configuration at one address of its host. The name stays that of TLS.
///
/// fred would look the name up in the pool of the runtime, and give one address all of the time.
fn at(config: &Config, server: &Server, address: SocketAddr) -> Config {
    let mut found = server.clone();
    #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
    found.tls_server_name.get_or_insert_with(|| server.host.clone());
    // With brackets for IPv6, and with its zone.
    let text = address.to_string();
    found.host = text.rsplit_once(':').map_or(&*text, |(host, _)| host).into();
    Config { server: ServerConfig::Centralized { server: found }, ..config.clone() }
}

/// A part of an inline command, as which fred sends `HELLO` with the login. There the server splits
/// at spaces and line breaks, and reads quotes. An empty part is one only in quotes.
fn inline(part: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'');
    if !part.is_empty() && part.bytes().all(is_plain) {
        return part.to_owned();
    }
    let escaped: String = part.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{escaped}\"")
}

/// One attempt, and no timeout but the end of the connection.
///
/// A peer that vanished is noticed by TCP, which asks its machine. The check of fred asks its
/// process, and would end the connection to one that is stopped, or busy with a script: then the
/// acquire in it is executed after the release that came over the next connection (C3).
fn connection_config() -> ConnectionConfig {
    let keepalive = TcpKeepalive::new().with_time(PEER_TIMEOUT / 2).with_interval(PEER_TIMEOUT / 5);
    #[cfg(unix)]
    let keepalive = keepalive.with_retries(3);
    ConnectionConfig {
        connection_timeout: Duration::ZERO,
        internal_command_timeout: Duration::ZERO,
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

/// How long the machine of the node may leave our bytes, or our probes, unacknowledged.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
