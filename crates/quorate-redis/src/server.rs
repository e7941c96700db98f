//! One server, and how a connection to it is made: transport, TLS and login.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use quorate_core::BackendError;
use quorate_protocol::{
    Command, ConnectError, Connection as _, CredentialSource, Credentials, Push, Value,
};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::address::{IntoClient, name, refused};
use crate::connection::{Listener, RedisConnection};
use crate::error::{lacks_resp3, of_connect};

/// A server by its address, or by the address that it will have. `Debug` shows the name alone.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) name: String,
    database: i64,
    resp3: Client,
    resp2: Client,
    pub(crate) credentials: Option<CredentialSource>,
}

impl Server {
    pub(crate) fn new(address: impl IntoClient) -> Result<Self, ConnectError> {
        let client = address.into_client()?;
        let info = client.get_connection_info();
        Self::of(name(info), info)
    }

    pub(crate) fn of(name: String, info: &ConnectionInfo) -> Result<Self, ConnectError> {
        let open = |protocol| {
            let tcp = tcp_of(info.tcp_settings());
            let login = login_of(info.redis_settings()).set_protocol(protocol);
            let client = Client::open(info.clone().set_tcp_settings(tcp).set_redis_settings(login));
            client.map_err(|error| refused(&name, &error))
        };
        Ok(Self {
            database: info.redis_settings().db(),
            resp3: open(ProtocolVersion::RESP3)?,
            resp2: open(ProtocolVersion::RESP2)?,
            credentials: None,
            name,
        })
    }

    /// The clients of one connection: for RESP3, and for servers without it.
    pub(crate) async fn clients(&self) -> Result<[Client; 2], BackendError> {
        let clients = [self.resp3.clone(), self.resp2.clone()];
        let Some(source) = &self.credentials else { return Ok(clients) };
        let login = source.credentials(&self.name).await?;
        let [resp3, resp2] = clients.map(|client| logged_in(&client, &login));
        Ok([resp3?, resp2?])
    }

    /// Makes one connection with one of these clients: for RESP3, and for servers without it.
    pub(crate) async fn open(
        &self,
        [resp3, resp2]: [Client; 2],
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<RedisConnection, BackendError> {
        #[cfg(feature = "tls-rustls")]
        provide_crypto(&resp3);
        // A call stays pending as long as the node may execute it, and the caller has the deadlines.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let is_closed = Arc::<AtomicBool>::default();
        let made = {
            let listener = Listener { push, is_closed: Arc::clone(&is_closed) };
            let hear = move |info| {
                listener.hear(info);
                Ok::<(), redis::aio::SendError>(())
            };
            let config = config.clone().set_push_sender(hear);
            resp3.get_multiplexed_async_connection_with_config(&config).await
        };
        let connection = match made {
            Ok(connection) => RedisConnection::new(connection, true, is_closed),
            Err(error) if lacks_resp3(&error) => {
                let made = resp2.get_multiplexed_async_connection_with_config(&config).await;
                let made = made.map_err(|error| of_connect(&error))?;
                RedisConnection::new(made, false, Arc::default())
            }
            Err(error) => return Err(of_connect(&error)),
        };
        if self.database != 0 {
            let database = self.database.to_string();
            let select = Command::new("SELECT", database.len()).arg(database);
            if let Some(Value::Error(text)) =
                connection.send(vec![select]).await.pop().transpose()?
            {
                return Err(quorate_protocol::error_of_reply(&text));
            }
        }
        Ok(connection)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

/// rustls panics where no provider was chosen and several are compiled in, or none.
#[cfg(feature = "tls-rustls")]
fn provide_crypto(client: &Client) {
    use rustls::crypto::{CryptoProvider, ring};

    let is_tls =
        matches!(client.get_connection_info().addr(), redis::ConnectionAddr::TcpTls { .. });
    if is_tls && CryptoProvider::get_default().is_none() {
        // The program may have installed one meanwhile, which is as good.
        let _ = ring::default_provider().install_default();
    }
}

/// The client with another login.
fn logged_in(client: &Client, login: &Credentials) -> Result<Client, BackendError> {
    let info = client.get_connection_info();
    let old = info.redis_settings();
    let mut new = RedisConnectionInfo::default().set_protocol(old.protocol());
    new = match (old.lib_name(), old.lib_ver()) {
        (Some(name), Some(version)) => new.set_lib_name(name, version),
        _ => new.set_skip_set_lib_name(),
    };
    if let Some(user) = login.user() {
        new = new.set_username(user);
    }
    let info = info.clone().set_redis_settings(new.set_password(login.password()));
    Client::open(info).map_err(|error| of_connect(&error))
}

/// The user's login without the database: redis-rs reports each error of `SELECT` as the same one.
fn login_of(login: &RedisConnectionInfo) -> RedisConnectionInfo {
    let login = login.clone().set_db(0);
    if login.lib_name().is_some() {
        return login;
    }
    login.set_lib_name("quorate", env!("CARGO_PKG_VERSION"))
}

/// The user's settings, and ours where the user has none.
fn tcp_of(settings: &TcpSettings) -> TcpSettings {
    // Otherwise a command waits until the one before is acknowledged.
    let mut settings = settings.clone().set_nodelay(true);
    if settings.keepalive().is_none() {
        let probes = TcpKeepalive::new().with_time(Duration::from_secs(2));
        #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
        let probes = probes.with_interval(Duration::from_secs(1)).with_retries(3);
        settings = settings.set_keepalive(probes);
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if settings.user_timeout().is_none() {
        // The kernel of a node acknowledges for a process that is merely stopped, until its buffer is full.
        settings = settings.set_user_timeout(Duration::from_secs(5));
    }
    settings
}
