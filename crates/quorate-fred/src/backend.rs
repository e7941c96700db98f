//! [`FredBackend`]: one node behind one fred connection.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::Config;
use quorate_core::protocol::{self, Exchange, Reply, Wire, fence, quarantine, queue};
use quorate_core::runtime::TokioContext;
use quorate_core::{
    Ask, BackendError, Call, Carry, Claim, Fence, FenceHint, FenceVote, FencingToken, Guarded,
    Identify, Inspect, Key, LockBackend, Place, Quarantine, Queue, RestartGuard, Sighting, Vote,
    Watch, Watched,
};
use tokio::runtime::Handle;

use crate::address::Address;
use crate::builder::builder;
use crate::carrier::Carried;
use crate::dialer::Dialer;
use crate::error::{self, ConnectError};
use crate::frame::Command;
use crate::shared::SharedClient;
use crate::watch::Watcher;

/// One Redis or Valkey node over fred. `Debug` shows its name and no secret.
///
/// All calls go over one connection, in the order in which they are first polled, or given to the
/// [carrier](LockBackend::carrier), if none of them has to wait. The connection is made by the first
/// call that needs it, is given up when the backend is dropped, and is replaced by the first call
/// after it broke. While an attempt to connect is under way, calls wait for its outcome (for the
/// [`connect_timeout`](crate::Builder::connect_timeout) at most); for ten milliseconds after one
/// that failed, and for longer, up to a third of a second, after several in a row, calls share its
/// error. So they do where a node lets us in again and again, and hangs up without an answer. Once
/// 48 KiB of commands are under way (of a few hundred calls), calls wait until the node has answered
/// some of them.
///
/// The node's answers become votes and errors as [`quorate_core::protocol`] says. A call fails as
/// soon as its connection does. See the [crate](crate) for what else is different from plain fred.
///
/// # Cancel safety
///
/// Dropping the future of a call either stops the command before anything of it is sent, or leaves
/// it to be carried out with nobody to hear the answer. It disturbs no other call.
pub struct FredBackend {
    name: String,
    route: Route,
}

/// How commands get to the node.
enum Route {
    /// To where we may dial: the watches do so on their own.
    Own(Dialer, Box<Watcher>),
    /// What the settings of such a client make it do for a command may need a runtime.
    Shared(SharedClient, TokioContext),
}

impl FredBackend {
    /// The node of `config`, on a connection of its own with default settings: for TLS settings,
    /// credential providers or RESP3.
    ///
    /// Does no I/O. What `config` says of failing fast and of blocked connections is not used: the
    /// connection is the backend's own, is never blocked, and is made when a call needs it.
    ///
    /// # Errors
    ///
    /// - [`ConnectError::NotOneNode`] for a cluster, or servers behind sentinels.
    /// - [`ConnectError::InvalidAddress`] for a user without a password, also where a credential
    ///   provider knows both: fred would leave the user out.
    pub fn new(config: Config) -> Result<Self, ConnectError> {
        builder().build(config)
    }

    /// The node behind a client of yours, **whose connection it shares**, called `name` in errors:
    /// write no password there. (`RedisBackend::new` of quorate-redis, which takes a client of
    /// redis-rs, makes a connection of its own from it.)
    ///
    /// Prefer [`new`](Self::new): on a connection of its own, the lock traffic neither waits behind
    /// other commands nor depends on the client's settings. Share a client where connections are
    /// scarce. Then:
    ///
    /// - The client is connected (and reconnected) by you: [`init`](ClientLike::init) it, with a
    ///   [`ReconnectPolicy`](fred::types::config::ReconnectPolicy), or the node is gone for good
    ///   after its first lost connection.
    /// - It runs **no blocking command** (`BLPOP`, `WAIT`, `XREAD BLOCK`) and no long pipeline or
    ///   transaction: lock commands wait their turn behind those.
    /// - Set [`TcpConfig`](fred::types::config::TcpConfig)'s `nodelay`, keep-alive and user
    ///   timeout: fred sets none of them. Leave
    ///   [`UnresponsiveConfig`](fred::types::config::UnresponsiveConfig) off: it drops the
    ///   connection to a process that is merely stopped, and with it the order of what it has yet
    ///   to carry out.
    ///
    /// Nothing is asked of the client's other settings: whatever they say, a lock command is sent
    /// once, does not time out, and is not queued while the client is disconnected. (If the
    /// connection breaks in the very moment between the check and the sending, fred may yet queue
    /// it; the call stays pending then, until the node answers. So it is with a client that had lost
    /// its connection before this call and has not begun to reconnect: fred says that it is
    /// connected.) Errors tell the reasons that the client met after this call.
    ///
    /// Such a node does not [watch](Watch): that needs a connection of its own.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NotOneNode`] for the client of a cluster, or of servers behind sentinels.
    pub fn from_client(name: impl Into<String>, client: Client) -> Result<Self, ConnectError> {
        let name = name.into();
        if client.is_clustered() || client.uses_sentinels() {
            return Err(ConnectError::NotOneNode { address: name });
        }
        let route = Route::Shared(SharedClient::new(client), TokioContext::current());
        Ok(Self { name, route })
    }

    /// The tokio runtime in which connections live, if it has threads of its own; see
    /// [Runtimes](crate#runtimes).
    #[must_use]
    pub fn tokio(mut self, runtime: Handle) -> Self {
        let tokio = TokioContext::of(runtime);
        match &mut self.route {
            Route::Own(dialer, watcher) => {
                watcher.lend(tokio.clone());
                dialer.lend(tokio);
            }
            Route::Shared(_, context) => *context = tokio,
        }
        self
    }

    pub(crate) fn at(address: Address, timeout: Duration, tokio: TokioContext) -> Self {
        let Address { name, config } = address;
        let watcher = Box::new(Watcher::new(config.clone(), timeout, tokio.clone()));
        Self { name, route: Route::Own(Dialer::new(config, timeout, tokio), watcher) }
    }
}

impl fmt::Debug for FredBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FredBackend").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl LockBackend for FredBackend {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        protocol::acquire(&self.route, claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        protocol::extend(&self.route, claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        protocol::release(&self.route, claim).await
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    /// On a connection of our own.
    fn obstacle(&self) -> Option<BackendError> {
        match &self.route {
            Route::Own(dialer, _) => dialer.obstacle(),
            Route::Shared(..) => None,
        }
    }

    fn identity(&self) -> Option<&dyn Identify> {
        Some(self)
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        match &self.route {
            Route::Own(..) => Some(self),
            Route::Shared(..) => None,
        }
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn fencer(&self) -> Option<&dyn Fence> {
        Some(self)
    }

    /// On a connection of our own.
    fn keeps_order(&self) -> bool {
        matches!(self.route, Route::Own(..))
    }

    fn quarantine(&self) -> Option<&dyn Quarantine> {
        Some(self)
    }

    /// On a connection of our own.
    fn carrier(&self) -> Option<&dyn Carry> {
        match &self.route {
            Route::Own(..) => Some(self),
            Route::Shared(..) => None,
        }
    }
}

/// Where others are under way to the node, or wait for the connection that is being made. A call that
/// has no company has a quicker way.
impl Carry for FredBackend {
    fn carries(&self, _: &Claim) -> bool {
        matches!(&self.route, Route::Own(dialer, _) if dialer.carries())
    }

    fn carry(&self, call: Call) {
        let exchange = match call.ask() {
            Ask::Acquire => Exchange::acquire(call.claim()),
            Ask::Release => Exchange::release(),
            // It is dropped, which is an answer.
            _ => return,
        };
        if let Route::Own(dialer, _) = &self.route {
            dialer.carry(Carried::new(call, exchange));
        }
    }
}

#[async_trait]
impl Fence for FredBackend {
    async fn acquire(&self, claim: &Claim, hint: FenceHint) -> Result<FenceVote, BackendError> {
        fence::acquire(&self.route, claim, hint).await
    }

    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        fence::raise(&self.route, claim, number).await
    }

    async fn release(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        fence::release(&self.route, claim, number).await
    }
}

#[async_trait]
impl Quarantine for FredBackend {
    async fn acquire(
        &self,
        claim: &Claim,
        hint: Option<FenceHint>,
        guard: RestartGuard,
    ) -> Result<Guarded, BackendError> {
        quarantine::acquire(&self.route, claim, hint, guard).await
    }
}

#[async_trait]
impl Identify for FredBackend {
    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        match &self.route {
            Route::Own(dialer, _) => dialer.server_id().await,
            Route::Shared(..) => protocol::server_id(&self.route).await,
        }
    }
}

#[async_trait]
impl Inspect for FredBackend {
    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        protocol::inspect(&self.route, key).await
    }
}

#[async_trait]
impl Queue for FredBackend {
    async fn join(&self, key: &Key, place: &Place) -> Result<Option<Place>, BackendError> {
        queue::join(&self.route, key, place).await
    }

    async fn leave(
        &self,
        key: &Key,
        place: &Place,
        before: Option<&Place>,
    ) -> Result<(), BackendError> {
        queue::leave(&self.route, key, place, before).await
    }
}

#[async_trait]
impl Watch for FredBackend {
    async fn look(&self, key: &Key) -> Result<Watched, BackendError> {
        match &self.route {
            Route::Own(_, watcher) => watcher.look(key).await,
            Route::Shared(..) => Err(error::lost("a shared client has no connection for watches")),
        }
    }
}

impl Wire for Route {
    type Command = Command;

    fn pack(&self, command: &[&[u8]]) -> Command {
        Command::of(command)
    }

    async fn send(&self, command: Command) -> Result<Reply, BackendError> {
        match self {
            Self::Own(dialer, _) => dialer.call(command).await,
            Self::Shared(client, tokio) => tokio.enter(client.call(command)).await,
        }
    }
}
