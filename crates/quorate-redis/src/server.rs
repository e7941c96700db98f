//! One server, and how a connection to it is made: transport, TLS and login.

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{fmt, iter};

use quorate_core::BackendError;
use quorate_protocol::{Command as _, ConnectError, Connection as _, Credentials, Host, Push};
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
use redis::TlsCertificates;
use redis::io::AsyncDNSResolver;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisFuture,
};

use crate::connection::{Listener, Packed, RedisConnection};
use crate::error::{lacks_resp3, of_connect};

/// A server by its address, or by the address that it will have. `Debug` shows the name alone.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) name: String,
    /// Without the database.
    info: ConnectionInfo,
    database: i64,
}

impl Server {
    /// The server with these settings, and with ours where they have none.
    pub(crate) fn new(name: String, info: ConnectionInfo) -> Result<Self, ConnectError> {
        let login = info.redis_settings();
        if login.password().is_none() && login.username().is_some_and(|user| !user.is_empty()) {
            return Err(ConnectError::no_password(&name));
        }
        let (database, tcp, login) = (login.db(), tcp_of(info.tcp_settings()), login_of(login));
        let info = info.set_tcp_settings(tcp).set_redis_settings(login);
        Ok(Self { name, info, database })
    }

    /// Uses these certificates, if the server is reached over TLS and has none of its own.
    #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
    pub(crate) fn certify(&mut self, certificates: &TlsCertificates) -> Result<(), ConnectError> {
        if matches!(self.info.addr(), ConnectionAddr::TcpTls { tls_params: None, .. }) {
            let client = Client::build_with_tls(self.info.clone(), certificates.clone());
            // The text of the error may quote the file of the key.
            let reason = "the certificates for TLS, or the key, are not PEM";
            let client = client.map_err(|_| ConnectError::InvalidCertificates { reason })?;
            self.info = client.get_connection_info().clone();
        }
        Ok(())
    }

    /// The settings of one connection, with this login if it is given.
    pub(crate) fn info(&self, login: Option<&Credentials>) -> ConnectionInfo {
        let info = self.info.clone();
        let Some(login) = login else { return info };
        let login = logged_in(info.redis_settings(), login);
        info.set_redis_settings(login)
    }

    /// Makes one connection with these settings: to the first address of the host where that works,
    /// within `limit`.
    pub(crate) async fn open(
        &self,
        info: ConnectionInfo,
        limit: Duration,
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<RedisConnection, BackendError> {
        let push = Arc::new(push);
        let host = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Host::new(host, *port, false),
            ConnectionAddr::TcpTls { host, port, .. } => Host::new(host, *port, true),
            _ => return self.open_at(&info, None, push).await,
        };
        host.connect(limit, |address| self.open_at(&info, Some(address), Arc::clone(&push))).await
    }

    /// Makes one connection, to this address of the host.
    async fn open_at(
        &self,
        info: &ConnectionInfo,
        address: Option<SocketAddr>,
        push: Arc<impl Fn(Push) + Send + Sync + 'static>,
    ) -> Result<RedisConnection, BackendError> {
        #[cfg(feature = "tls-rustls")]
        provide_crypto(info.addr());
        let client = |protocol| {
            let login = info.redis_settings().clone().set_protocol(protocol);
            Client::open(info.clone().set_redis_settings(login)).map_err(|error| of_connect(&error))
        };
        // A call stays pending as long as the node may execute it, and the caller has the
        // deadlines.
        let mut config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        if let Some(address) = address {
            config = config.set_dns_resolver(Known(address));
        }
        let is_closed = Arc::<AtomicBool>::default();
        let made = {
            let push = move |pushed| push(pushed);
            let listener = Listener { push, is_closed: Arc::clone(&is_closed) };
            let hear = move |info| {
                listener.hear(info);
                Ok::<(), redis::aio::SendError>(())
            };
            let config = config.clone().set_push_sender(hear);
            let client = client(ProtocolVersion::RESP3)?;
            client.get_multiplexed_async_connection_with_config(&config).await
        };
        let connection = match made {
            Ok(connection) => RedisConnection::new(connection, true, is_closed),
            Err(error) if lacks_resp3(&error) => {
                let client = client(ProtocolVersion::RESP2)?;
                let made = client.get_multiplexed_async_connection_with_config(&config).await;
                let made = made.map_err(|error| of_connect(&error))?;
                RedisConnection::new(made, false, Arc::default())
            }
            Err(error) => return Err(of_connect(&error)),
        };
        if self.database != 0 {
            connection.ask(Packed::new("SELECT").arg(self.database.to_string())).await?;
        }
        Ok(connection)
    }
}

/// The address that was found for a host, whose name stays that of TLS.
struct Known(SocketAddr);

impl AsyncDNSResolver for Known {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        _: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let address: Box<dyn Iterator<Item = SocketAddr> + Send> = Box::new(iter::once(self.0));
        Box::pin(ready(Ok(address)))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

/// rustls panics where no provider was chosen and several are compiled in, or none.
#[cfg(feature = "tls-rustls")]
fn provide_crypto(address: &ConnectionAddr) {
    use rustls::crypto::{CryptoProvider, ring};

    let is_tls = matches!(address, ConnectionAddr::TcpTls { .. });
    if is_tls && CryptoProvider::get_default().is_none() {
        // The program may have installed one meanwhile, which is as good.
        let _ = ring::default_provider().install_default();
    }
}

/// The settings of `old` with another login.
fn logged_in(old: &RedisConnectionInfo, login: &Credentials) -> RedisConnectionInfo {
    let mut new = RedisConnectionInfo::default().set_password(&login.password);
    if let (Some(name), Some(version)) = (old.lib_name(), old.lib_ver()) {
        new = new.set_lib_name(name, version);
    }
    match &login.user {
        Some(user) => new.set_username(user),
        None => new,
    }
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
        // The kernel of a node acknowledges for a process that is merely stopped, until its buffer
        // is full.
        settings = settings.set_user_timeout(Duration::from_secs(5));
    }
    settings
}

#[cfg(all(test, feature = "tls-rustls"))]
mod tests {
    use rustls::ProtocolVersion::{TLSv1_2, TLSv1_3};

    /// Where fred is compiled as well, its features bring both: this shows it in a build of this
    /// crate alone.
    #[test]
    fn tls_has_both_of_its_versions() {
        let mut versions: Vec<_> = rustls::ALL_VERSIONS.iter().map(|it| it.version).collect();
        versions.sort_by_key(|version| u16::from(*version));
        assert_eq!(versions, [TLSv1_2, TLSv1_3]);
    }
}
