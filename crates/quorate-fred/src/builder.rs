//! How nodes are made, and the settings for it.

use std::time::Duration;

use fred::types::config::Config;
use quorate_core::runtime::TokioRuntime;
use quorate_protocol::{Batcher, ConnectError, Node};
use tokio::runtime::Handle;

use crate::dial::FredDial;

/// One Redis or Valkey node over fred. `Debug` shows its name and no secret.
///
/// Made by [`connect`] or a [`Builder`]. Clones share the connections, which end with the last clone.
pub type FredNode = Node<Batcher<FredDial>>;

/// Makes a node for each address, in the order given, with default settings.
///
/// Does no I/O and needs no runtime: a node may be down. An address is one of these:
///
/// - `redis://[[user]:password@]host[:port][/database]`, or `valkey://`;
/// - `rediss://…`, or `valkeys://`, with the feature `tls-rustls` or `tls-native-tls`;
/// - `redis+unix://[[user]:password@]/path`, `valkey+unix://` or `unix://`, with the feature
///   `unix-sockets`.
///
/// A database is at most 255. Characters that have a meaning in a URL are percent-encoded in users
/// and passwords. Parameters (`?…`) are refused, not ignored, and so is a space before or after the
/// address. [`Builder::build`] is for other settings, such as a database behind a Unix socket.
///
/// # Errors
///
/// [`ConnectError`] names the first address that cannot be used, without its password.
pub fn connect(
    addresses: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Vec<FredNode>, ConnectError> {
    builder().connect(addresses)
}

/// Starts to make nodes with other settings than those of [`connect`].
pub const fn builder() -> Builder {
    Builder { connect_timeout: FredNode::CONNECT_TIMEOUT, tokio: None }
}

/// Settings for nodes. Made by [`builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes no nodes until `connect` or `build`"]
pub struct Builder {
    connect_timeout: Duration,
    tokio: Option<Handle>,
}

impl Builder {
    /// Limits an attempt to connect: name look-up, transport, TLS, login and the first reply.
    ///
    /// 1 s by default. The kernel sends a lost request to connect again after a second, so a longer
    /// attempt has little advantage over a new one.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the tokio runtime in which connections live, if it has threads of its own.
    ///
    /// By default it is the one in which the nodes are made; see [Runtimes](crate#runtimes).
    pub fn tokio(mut self, runtime: Handle) -> Self {
        self.tokio = Some(runtime);
        self
    }

    /// Makes a node for each address, in the order given. See [`connect`].
    ///
    /// # Errors
    ///
    /// [`ConnectError`] names the first address that cannot be used, without its password.
    pub fn connect(
        &self,
        addresses: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Vec<FredNode>, ConnectError> {
        let nodes = addresses.into_iter();
        nodes.map(|address| Ok(self.node(FredDial::at(address.as_ref())?))).collect()
    }

    /// Makes the node of a configuration of fred. See [`FredDial::new`].
    ///
    /// # Errors
    ///
    /// As those of [`FredDial::new`].
    pub fn build(&self, config: Config) -> Result<FredNode, ConnectError> {
        Ok(self.node(FredDial::new(config)?))
    }

    fn node(&self, dial: FredDial) -> FredNode {
        let runtime = self.tokio.clone().map_or_else(TokioRuntime::new, TokioRuntime::of);
        FredNode::with_connect_timeout(dial, runtime, self.connect_timeout)
    }
}
