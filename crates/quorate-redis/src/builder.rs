//! How nodes are made from addresses, and the settings for it.

use std::error::Error;
use std::time::Duration;

use bb8::ManageConnection;
use quorate_core::runtime::TokioRuntime;
use quorate_protocol::{ConnectError, CredentialSource, Credentials, NodeGroup, Settings, Source};
use redis::RedisError;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
use redis::TlsCertificates;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use crate::dial::{IntoDial, RedisDial};
use crate::pool::Pooled;

/// One Redis or Valkey node over redis-rs, on connections of its own.
pub type RedisNode = quorate_protocol::RedisNode;

/// One Redis or Valkey node over your bb8 pool: without order, and without watches.
pub type PooledNode = quorate_protocol::RedisNode;

/// A node per address, in the order given, with default settings.
///
/// Does no I/O, and needs no runtime: a node may be down. See [`IntoDial`] for what can be an
/// address.
///
/// # Errors
///
/// [`ConnectError`] names the first address that cannot be used, without its secrets.
pub fn connect(
    addresses: impl IntoIterator<Item = impl IntoDial>,
) -> Result<Vec<RedisNode>, ConnectError> {
    builder().connect(addresses)
}

/// The primary of a Sentinel group as one node, with default settings.
///
/// `primary` is `[redis://][[user]:password@]GROUP[/database]`, or `rediss://` with TLS: the host
/// is the name of the group. Its sentinels are asked at each connect, all at once, each for half of
/// the connect timeout, and again while the primary has not replied for half a second. The first
/// address whose server says by `ROLE` that it is a primary is used; its connections end when more
/// sentinels name another address than this one. The login and TLS of a sentinel stand in its own
/// address. Errors call the node by the name of the group.
///
/// **A failover forgets locks**: replication is asynchronous, so that the new primary may lack the
/// latest ones. A node with failover needs the [restart guard](quorate_core::RestartGuard), which
/// notices the other server, and then grants no new lock until all old ones have expired. A group
/// is one node: a quorum of several is needed as with plain nodes.
///
/// The guard does not cover an old primary that lives on and still has clients: it votes for them,
/// while the promoted one votes for others. Let it refuse writes without replicas
/// (`min-replicas-to-write`, `min-replicas-max-lag`).
///
/// ```
/// # fn main() -> Result<(), quorate_redis::ConnectError> {
/// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"];
/// let node = quorate_redis::sentinel("redis://locker:secret@orders", sentinels)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ConnectError`] names the first address that cannot be used, without its secrets.
pub fn sentinel(
    primary: impl AsRef<str>,
    sentinels: impl IntoIterator<Item = impl IntoDial>,
) -> Result<RedisNode, ConnectError> {
    builder().sentinel(primary, sentinels)
}

/// The node that all connections of your `pool` lead to, by the name `name`, which errors show.
///
/// A call holds a connection until its reply has arrived. The response timeout of a connection is
/// not applied to it. A call waits for a free connection for the pool's `connection_timeout`, 30 s
/// by default, and not beyond the cleanup bound. So does the first call after all connections have
/// ended, if no other can be made.
///
/// All connections have to lead to one server. If your pool replaces one, and the address leads to
/// another server by then, the node notices it at the next call that fails. Until then a server
/// that is also another node of the list votes twice.
#[must_use]
pub fn from_pool<M>(name: impl Into<String>, pool: bb8::Pool<M>) -> PooledNode
where
    M: ManageConnection<Connection = MultiplexedConnection, Error = RedisError>,
{
    PooledNode::over(Pooled::new(name.into(), pool))
}

/// Nodes with other settings than those of [`connect`].
pub fn builder() -> Builder {
    Builder::default()
}

/// Settings for nodes. Made by [`builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes no nodes until `connect` or `sentinel`"]
pub struct Builder {
    settings: Settings<RedisDial>,
    #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
    certificates: Option<TlsCertificates>,
}

impl Builder {
    /// For how long a connect may take: transport, TLS, login and the first replies. 1 s by
    /// default.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.limits.connect = timeout;
        self
    }

    /// How old the oldest command without a reply may become while nothing else comes. 10 s by
    /// default.
    ///
    /// Then the connection is over: its calls are unknown, and the next ones leave over another
    /// connection. A node that is stopped for longer, or busy with a script, loses its connections.
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
    /// use quorate_redis::Credentials;
    ///
    /// # fn main() -> Result<(), quorate_redis::ConnectError> {
    /// let nodes = quorate_redis::builder()
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
    /// use quorate_redis::IntoDial;
    ///
    /// # fn main() -> Result<(), quorate_redis::ConnectError> {
    /// # let (file, text) = ("/etc/quorate/nodes", "redis://:old@10.0.0.1");
    /// let nodes = quorate_redis::builder()
    ///     .when_refused(move |node| async move {
    ///         let text = std::fs::read_to_string(file).ok()?;
    ///         let mut dials = text.lines().filter_map(|line| line.into_dial().ok());
    ///         dials.find(|dial| dial.node_name() == node)
    ///     })
    ///     .connect(text.lines())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn when_refused<F>(mut self, ask: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<RedisDial>> + Send + 'static,
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
    /// Locks have the nodes keep a list once each of them was reached; a [`from_pool`] is of no
    /// group. What is not noticed stands on the page *Running the nodes* of the guide.
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

    /// Uses an authority, and a certificate of the client, of one's own for all that is reached
    /// over TLS: nodes, the servers of groups, and their sentinels.
    ///
    /// Without an authority (`root_cert`), those count that the system trusts. Where the sentinels
    /// of a group name its servers by IP address, the certificates of the servers need these
    /// addresses. A client of `Client::build_with_tls`, and what
    /// [`when_refused`](Self::when_refused) returns with certificates, keep their own.
    #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
    pub fn tls(mut self, certificates: TlsCertificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// The tokio runtime in which connections live, if it has threads of its own. By default the
    /// one in which the nodes are made; see [Runtimes](crate#runtimes).
    pub fn tokio(mut self, runtime: Handle) -> Self {
        self.settings.runtime = Some(TokioRuntime::of(runtime));
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

    /// A node per address, in the order given. See [`connect`].
    ///
    /// # Errors
    ///
    /// [`ConnectError`] names the first address that cannot be used, without its secrets.
    pub fn connect(
        &self,
        addresses: impl IntoIterator<Item = impl IntoDial>,
    ) -> Result<Vec<RedisNode>, ConnectError> {
        let dials = addresses.into_iter().map(|address| self.certified(address.into_dial()?));
        let dials = dials.collect::<Result<Vec<_>, _>>()?;
        let mut settings = self.settings();
        settings.limits = settings.limits.of_nodes(dials.len());
        Ok(dials.into_iter().map(|dial| RedisNode::new(dial, &settings)).collect())
    }

    /// The primary of a Sentinel group as one node. See [`sentinel`].
    /// [`credentials`](Self::credentials) are those of the primary.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] names the first address that cannot be used, without its secrets.
    pub fn sentinel(
        &self,
        primary: impl AsRef<str>,
        sentinels: impl IntoIterator<Item = impl IntoDial>,
    ) -> Result<RedisNode, ConnectError> {
        let dial = self.certified(RedisDial::sentinel(primary, sentinels)?)?;
        Ok(RedisNode::new(dial, &self.settings()))
    }

    /// The settings of nodes that share a runtime, and whose later dials have the certificates too.
    fn settings(&self) -> Settings<RedisDial> {
        let mut settings = self.settings.clone();
        settings.runtime.get_or_insert_default();
        if let Some(again) = settings.again.take() {
            let builder = self.clone();
            settings.again = Some(Source::new(move |node| {
                let (again, builder) = (again.clone(), builder.clone());
                async move { builder.certified(again.ask(&node).await?).ok() }
            }));
        }
        settings
    }

    fn certified(&self, dial: RedisDial) -> Result<RedisDial, ConnectError> {
        #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
        if let Some(certificates) = &self.certificates {
            return dial.with_certificates(certificates);
        }
        Ok(dial)
    }
}
