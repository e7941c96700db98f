//! How nodes are made, and the settings for it.

use std::error::Error;
use std::time::Duration;

use fred::types::config::Config;
use quorate_core::runtime::TokioRuntime;
use quorate_protocol::{
    ConnectError, CredentialSource, Credentials, NodeGroup, RedisNode, Settings, Source,
};
use tokio::runtime::Handle;

use crate::dial::FredDial;

/// One Redis or Valkey node over fred. `Debug` shows its name and no secret.
///
/// Made by [`connect`] or a [`Builder`]. Clones share the connections, which end with the last
/// clone.
pub type FredNode = RedisNode;

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
/// and passwords. Parameters (`?…`) are refused, not ignored, and so is a space before or after
/// the address. [`Builder::build`] is for other settings, such as a database behind a Unix socket.
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
pub fn builder() -> Builder {
    Builder::default()
}

/// Settings for nodes. Made by [`builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes no nodes until `connect` or `build`"]
pub struct Builder {
    settings: Settings<FredDial>,
}

impl Builder {
    /// Limits an attempt to connect: name look-up, transport, TLS, login and the first reply.
    ///
    /// 1 s by default. The kernel sends a lost request to connect again after a second, so a longer
    /// attempt has little advantage over a new one.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.limits.connect = timeout;
        self
    }

    /// Limits how old the oldest command without a reply may become while nothing else comes.
    ///
    /// 10 s by default. Then the connection is over: its calls are unknown, and the next ones leave
    /// over another connection. A node that is stopped for longer, or busy with a script, loses its
    /// connections.
    pub const fn reply_limit(mut self, limit: Duration) -> Self {
        self.settings.limits.reply = limit;
        self
    }

    /// Asks `ask` for the login of each new connection, with the name of the node. The login in an
    /// address is not used.
    ///
    /// For passwords that are rotated and for tokens of a cloud, which end while the program runs.
    /// A connection keeps the login it was made with. Let a server accept the old and the new
    /// password for a time: a wrong one ends a `lock` at once
    /// ([`BackendErrorKind::Auth`](quorate_core::BackendErrorKind::Auth) is permanent). If `ask`
    /// fails, the node does not vote, and the next call asks again. The answer counts for
    /// [`connect_timeout`](Self::connect_timeout). It is polled in the tokio runtime of the
    /// connections.
    ///
    /// ```
    /// # use std::io;
    /// # async fn read_secret(name: &str) -> io::Result<String> { Ok(name.to_owned()) }
    /// use quorate_fred::Credentials;
    ///
    /// # fn main() -> Result<(), quorate_fred::ConnectError> {
    /// let nodes = quorate_fred::builder()
    ///     .credentials(|_node| async {
    ///         let password = read_secret("locker").await?;
    ///         Ok::<_, io::Error>(Credentials::new("locker", password))
    ///     })
    ///     .connect(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])?;
    /// # assert_eq!(nodes.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, E>(mut self, ask: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.settings.credentials = Some(CredentialSource::of_logins(ask));
        self
    }

    /// Asks `ask` how to connect from now on, with the name of the node, when the node has refused
    /// the login or a certificate.
    ///
    /// For addresses and certificates in files, which were changed since the start. The connect is
    /// tried once more with what `ask` returns, and no request hears of the refusal if that works.
    /// Then it is used from now on. Else, and after `None`, the error stands, and the next refusal
    /// asks again. The answer counts for [`connect_timeout`](Self::connect_timeout). It is polled
    /// in the tokio runtime of the connections. Where a login alone changes,
    /// [`credentials`](Self::credentials) is simpler.
    ///
    /// ```
    /// use quorate_fred::FredDial;
    ///
    /// # fn main() -> Result<(), quorate_fred::ConnectError> {
    /// # let (file, text) = ("/etc/quorate/nodes", "redis://:old@10.0.0.1");
    /// let nodes = quorate_fred::builder()
    ///     .when_refused(move |node| async move {
    ///         let text = std::fs::read_to_string(file).ok()?;
    ///         let mut dials = text.lines().filter_map(|line| FredDial::at(line).ok());
    ///         dials.find(|dial| dial.node_name() == node)
    ///     })
    ///     .connect(text.lines())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn when_refused<F>(mut self, ask: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<FredDial>> + Send + 'static,
    {
        self.settings.again = Some(Source::new(ask));
        self
    }

    /// Notices clients with other nodes: each node keeps a list of all nodes of the group `name`,
    /// and has no vote for a client whose list differs by more than one node more or less
    /// ([`Stranger`](quorate_core::BackendErrorKind::Stranger)).
    ///
    /// Two clients whose majorities have no node in common both hold a lock. A connection reads the
    /// list of its node once, and the votes of nodes whose lists disagree do not count together: a
    /// lock costs no command more, and waits for no node that hangs. A node that has lost its data
    /// is not on the list any more, and has no vote until [`new_group`](Self::new_group) says so.
    /// Locks have the nodes keep a list once each of them was reached. What is not noticed stands
    /// on the page *Running the nodes* of the guide.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.settings.group = Some(NodeGroup::new(name.into(), false));
        self
    }

    /// As [`group`](Self::group), and makes the nodes of this client those of the group, whatever
    /// they were. For an operator that has looked: until all other clients have the same list, two
    /// may hold one lock.
    pub fn new_group(mut self, name: impl Into<String>) -> Self {
        self.settings.group = Some(NodeGroup::new(name.into(), true));
        self
    }

    /// Puts the connections on one helper thread of the process, which outlives all runtimes.
    ///
    /// For nodes that are used from several runtimes in turn, such as a `static` in tests, or that
    /// the workers of actix-web share. A lock and its release by one task take 1.6 to 1.8 times as
    /// long there; with many tasks there are 0.8 to 1.1 times as many a second.
    pub fn own_thread(mut self) -> Self {
        self.settings.runtime = Some(TokioRuntime::on_helper_thread());
        self
    }

    /// Sets the tokio runtime in which connections live, if it has threads of its own.
    ///
    /// By default it is the one in which the nodes are made; see [Runtimes](crate#runtimes).
    pub fn tokio(mut self, runtime: Handle) -> Self {
        self.settings.runtime = Some(TokioRuntime::of(runtime));
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
        let node = |dial| FredNode::new(dial, &self.settings);
        addresses.into_iter().map(|address| FredDial::at(address.as_ref()).map(node)).collect()
    }

    /// Makes the node of a configuration of fred. See [`FredDial::new`].
    ///
    /// # Errors
    ///
    /// As those of [`FredDial::new`].
    pub fn build(&self, config: Config) -> Result<FredNode, ConnectError> {
        Ok(FredNode::new(FredDial::new(config)?, &self.settings))
    }
}
