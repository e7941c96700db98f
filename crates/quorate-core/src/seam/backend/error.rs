//! The error of a call: why a node's vote is unknown.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a node's vote is unknown.
///
/// Cheap to clone. Its text is the text of the node's or the client's error. A backend keeps
/// passwords and tokens out of it (A6).
#[derive(Clone, Debug)]
pub struct BackendError(Arc<Reason>);

/// Behind a pointer, since most calls have no error and all have room for one.
#[derive(Clone, Debug)]
struct Reason {
    kind: BackendErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
    not_sent: bool,
    is_given_up: bool,
    is_particular: bool,
}

impl BackendError {
    /// Creates an error of `kind` with the text `message`.
    #[must_use]
    pub fn new(kind: BackendErrorKind, message: impl Into<Arc<str>>) -> Self {
        let message = message.into();
        let (source, not_sent, is_given_up, is_particular) = Default::default();
        Self(Arc::new(Reason { kind, message, source, not_sent, is_given_up, is_particular }))
    }

    /// Adds the client's error as the source. Its text must not show secrets.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// Marks the command as *not sent*: it has not left and never will.
    #[must_use]
    pub fn not_sent(mut self) -> Self {
        Arc::make_mut(&mut self.0).not_sent = true;
        self
    }

    /// Whether the command is certainly *not sent*. After any other error it may have been
    /// executed.
    #[must_use]
    pub fn is_not_sent(&self) -> bool {
        self.0.not_sent
    }

    /// Marks that it is about one key, or one attempt to connect: the node may carry the same
    /// operation out for another. Else a [`Permission`](BackendErrorKind::Permission) and a
    /// [`Script`](BackendErrorKind::Script) say that the node lacks the operation.
    #[must_use]
    pub fn particular(mut self) -> Self {
        Arc::make_mut(&mut self.0).is_particular = true;
        self
    }

    /// Whether it says that the node lacks the operation, or forbids it, whatever the key.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        let is_lack =
            matches!(self.kind(), BackendErrorKind::Script | BackendErrorKind::Permission);
        is_lack && !self.0.is_particular
    }

    /// The error of a call whose answer was not awaited any more.
    pub(crate) fn given_up() -> Self {
        let mut error = Self::new(BackendErrorKind::TimedOut, "the backend dropped the call");
        Arc::make_mut(&mut error.0).is_given_up = true;
        error
    }

    /// The error of a backend that gave the answer to another call.
    pub(crate) fn mixed_up() -> Self {
        Self::new(BackendErrorKind::Protocol, "the backend gave the answer to another question")
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.0.is_given_up
    }

    /// The same error of a node that stays a replica.
    pub(crate) fn of_replica(mut self) -> Self {
        Arc::make_mut(&mut self.0).kind = BackendErrorKind::Replica;
        self
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> BackendErrorKind {
        self.0.kind
    }

    /// The error of a call that this backend, or this server, cannot carry out. Nothing was sent.
    #[must_use]
    pub fn unsupported(what: impl Into<Arc<str>>) -> Self {
        Self::new(BackendErrorKind::Script, what).not_sent()
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// The kind of a [`BackendError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// The password or the user name is wrong or missing (`NOAUTH`, `WRONGPASS`).
    Auth,
    /// The cluster node does not serve the key's slot (`CLUSTERDOWN`, `MOVED`).
    Cluster,
    /// The connection could not be made, or has ended.
    Connection,
    /// The keys of the claim are in different slots of a cluster node (`CROSSSLOT`).
    CrossSlot,
    /// The node has no database of this number.
    Database,
    /// The node may evict keys (`maxmemory-policy`), or its policy is unknown. Only with the
    /// [restart guard](crate::backend::RestartGuard).
    Evicting,
    /// The node's fencing number is at its maximum, or its key holds something else.
    Fence,
    /// The node is the same server as another node (Q6). With the [restart
    /// guard](crate::backend::RestartGuard) also: the node has no server id, or several servers
    /// reply under its address.
    Identity,
    /// The node is loading its data set (`LOADING`) or busy with a script (`BUSY`).
    Loading,
    /// The node has another `max_ttl` than the [restart guard](crate::backend::RestartGuard) of
    /// this manager.
    MaxTtl,
    /// The node accepts no writes because it cannot write to its disk (`MISCONF`) or has too few
    /// replicas (`NOREPLICAS`).
    Misconfigured,
    /// The node is out of memory (`OOM`).
    OutOfMemory,
    /// The user may not run the command or access the key (`NOPERM`).
    Permission,
    /// The reply is not valid for the command. The server may not be Redis or Valkey.
    Protocol,
    /// The node may have forgotten locks, since it restarted, is new, or lost its data. It does not
    /// vote until `max_ttl` has passed. Only with the [restart
    /// guard](crate::backend::RestartGuard).
    Quarantined,
    /// The node is a replica (`READONLY`). It may be so during a failover only.
    ReadOnly,
    /// The node stays a replica: it replied `READONLY` in lost rounds of one request, a second
    /// apart.
    Replica,
    /// The node lacks the command or cannot run the script, or the backend does not support the
    /// call.
    Script,
    /// The node is not one of those that the other clients of its group have.
    Stranger,
    /// TLS does not come about, and no waiting helps: an unknown authority, a certificate for
    /// another name, a client certificate that is missing, or a server that speaks no TLS.
    Tls,
    /// The client's own timeout passed. The node timeout is not reported as an error.
    TimedOut,
    /// The key holds a value that is not a string, written by another program (`WRONGTYPE`).
    WrongType,
    /// Anything else.
    Other,
}

impl BackendErrorKind {
    /// Whether the node answers that it cannot now: the same call may succeed in some seconds.
    pub(crate) const fn is_not_now(self) -> bool {
        matches!(self, Self::Cluster | Self::Loading | Self::Misconfigured)
    }

    /// Whether trying again is pointless until a person changes a setting of the node or the
    /// client.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::Auth
                | Self::CrossSlot
                | Self::Database
                | Self::Evicting
                | Self::Fence
                | Self::Identity
                | Self::MaxTtl
                | Self::Permission
                | Self::Replica
                | Self::Script
                | Self::Stranger
                | Self::Tls
                | Self::WrongType
        )
    }
}
