//! How nodes are made from addresses, and the settings for it.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::runtime::TokioContext;
use redis::Client;
use tokio::runtime::Handle;

use crate::address::{IntoClient, name};
use crate::backend::RedisBackend;
use crate::dial::Dial;
use crate::error::ConnectError;
use crate::line::Line;
use crate::pool::Lane;

/// A node per address, in the order given, with default settings.
///
/// Does no I/O, and needs no runtime: a node may be down. See [`IntoClient`] for what can be an
/// address.
///
/// # Errors
///
/// [`ConnectError`] names the first address that cannot be used, without its password.
pub fn connect(
    addresses: impl IntoIterator<Item = impl IntoClient>,
) -> Result<Vec<RedisBackend>, ConnectError> {
    builder().connect(addresses)
}

/// Nodes with other settings than those of [`connect`].
pub fn builder() -> Builder {
    Builder { connections: 1, connect_timeout: Duration::from_secs(1), tokio: None }
}

/// Settings for nodes. Made by [`builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes no nodes until `connect` or `build`"]
pub struct Builder {
    connections: usize,
    connect_timeout: Duration,
    tokio: Option<Handle>,
}

impl Builder {
    /// Connections to each node, 1 by default; 0 counts as 1.
    ///
    /// One is enough, and the fastest, unless keys are large. All calls of one claim take the same
    /// one, which its first key decides.
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

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
        addresses: impl IntoIterator<Item = impl IntoClient>,
    ) -> Result<Vec<RedisBackend>, ConnectError> {
        addresses.into_iter().map(|address| Ok(self.build(address.into_client()?))).collect()
    }

    /// The node of `client`, on connections of its own. If the client has a user and no password, all
    /// calls fail: redis-rs would leave the user out.
    #[must_use]
    pub fn build(&self, client: Client) -> RedisBackend {
        let info = client.get_connection_info();
        let dial = Arc::new(Dial::new(info, self.connect_timeout));
        let lines = (0..self.connections.max(1))
            .map(|_| Line::Own(Arc::new(Lane::new(Arc::clone(&dial)))))
            .collect();
        let tokio = self.tokio.clone().map_or_else(TokioContext::current, TokioContext::of);
        let watches = Lane::new(Arc::new(Dial::for_watches(info, self.connect_timeout)));
        RedisBackend::over(name(info), lines, tokio).watching(watches)
    }
}
