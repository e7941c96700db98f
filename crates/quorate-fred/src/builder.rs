//! How nodes are made from addresses, and the settings for it.

use std::time::Duration;

use fred::types::config::Config;
use quorate_core::runtime::TokioContext;
use tokio::runtime::Handle;

use crate::address::{self, Address};
use crate::backend::FredBackend;
use crate::error::ConnectError;

/// As with redis-rs. The kernel sends a lost request to connect again after a second, too, so that
/// a longer attempt wins little over a new one.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A node per address, in the order given, with default settings.
///
/// Does no I/O, and needs no runtime: a node may be down. An address is what
/// [fred takes](Config::from_url) for a server on its own:
///
/// - `redis://[[user]:password@]host[:port][/database]`, or `valkey://`;
/// - `rediss://…`, or `valkeys://`, with the feature `tls-rustls` or `tls-native-tls`;
/// - `redis+unix://[[user]:password@]/path`, `valkey+unix://` or `unix://`, with the feature
///   `unix-sockets`.
///
/// A database is at most 255. Characters that mean something in a URL are percent-encoded in users
/// and passwords. Parameters (`?…`) are refused rather than ignored, and so is a space before or
/// after the address. For other settings, such as a database behind a Unix socket, see
/// [`Builder::build`].
///
/// # Errors
///
/// [`ConnectError`] names the first address that cannot be used, without its password.
pub fn connect(
    addresses: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Vec<FredBackend>, ConnectError> {
    builder().connect(addresses)
}

/// Nodes with other settings than those of [`connect`].
pub const fn builder() -> Builder {
    Builder { connect_timeout: CONNECT_TIMEOUT, tokio: None }
}

/// Settings for nodes. Made by [`builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes no nodes until `connect` or `build`"]
pub struct Builder {
    connect_timeout: Duration,
    tokio: Option<Handle>,
}

impl Builder {
    /// How long an attempt to connect takes at the most: transport, TLS and login. 1 s by default.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The tokio runtime in which connections live, if it has threads of its own. By default the one
    /// in which the nodes are made; see [Runtimes](crate#runtimes).
    pub fn tokio(mut self, runtime: Handle) -> Self {
        self.tokio = Some(runtime);
        self
    }

    /// A node per address, in the order given. See [`connect`].
    ///
    /// # Errors
    ///
    /// [`ConnectError`] names the first address that cannot be used, without its password.
    pub fn connect(
        &self,
        addresses: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Vec<FredBackend>, ConnectError> {
        let nodes = addresses.into_iter().map(|text| Ok(self.at(address::parse(text.as_ref())?)));
        nodes.collect()
    }

    /// The node of `config`, on a connection of its own. See [`FredBackend::new`].
    ///
    /// # Errors
    ///
    /// - [`ConnectError::NotOneNode`] for a cluster, or servers behind sentinels.
    /// - [`ConnectError::InvalidAddress`] for a user without a password, also where a credential
    ///   provider knows both: fred would leave the user out.
    pub fn build(&self, config: Config) -> Result<FredBackend, ConnectError> {
        let name = address::name_of(&config.server, config.database)?;
        if address::lacks_password(&config) {
            let reason = address::NO_PASSWORD.to_owned();
            return Err(ConnectError::InvalidAddress { address: name, reason });
        }
        Ok(self.at(Address { name, config }))
    }

    fn at(&self, address: Address) -> FredBackend {
        let tokio = self.tokio.clone().map_or_else(TokioContext::current, TokioContext::of);
        FredBackend::at(address, self.connect_timeout, tokio)
    }
}
