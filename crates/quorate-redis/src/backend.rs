//! One node, reached through redis-rs.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};

use async_trait::async_trait;
use bb8::ManageConnection;
use quorate_core::protocol::{self, Exchange, Reply, Wire, fence, quarantine, queue};
use quorate_core::runtime::TokioContext;
use quorate_core::{
    Ask, BackendError, BackendErrorKind, Call, Carry, Claim, Fence, FenceHint, FenceVote,
    FencingToken, Guarded, Identify, Inspect, Key, LockBackend, Place, Quarantine, Queue,
    RestartGuard, Sighting, Vote, Watch, Watched,
};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Client, Cmd};
use tokio::runtime::Handle;

use crate::builder::builder;
use crate::carrier::Trouble;
use crate::error;
use crate::line::{Fixed, Line, packed};
use crate::pool::Lane;

/// One Redis or Valkey node, reached through redis-rs.
///
/// [`connect`](crate::connect) makes several at once. `Debug` shows the name and nothing secret.
///
/// # Cancel safety
///
/// A call that is dropped may or may not be carried out, and disturbs no other call.
pub struct RedisBackend {
    name: String,
    /// At least one.
    lines: Vec<Line>,
    /// Where we may dial: a lane for watches, which makes its connection with the first of them.
    watches: Option<Lane>,
    tokio: TokioContext,
}

impl RedisBackend {
    /// The node of `client`, **on a connection of its own** with default settings.
    ///
    /// Does no I/O. Of the client, the place, the login and the TCP settings are used; what those
    /// leave open is set as [the crate](crate) says. If the client has a user and no password, all
    /// calls fail: redis-rs would leave the user out. To share a connection of yours, use
    /// [`from_connection`](Self::from_connection), which is what `FredBackend::from_client` of
    /// quorate-fred does with a client of fred.
    #[must_use]
    pub fn new(client: Client) -> Self {
        builder().build(client)
    }

    /// The node that all connections of `pool` lead to, by the name `name`, which errors show.
    ///
    /// A call holds a connection until its answer is there, and the settings of the pool and its
    /// connections apply. Two of their defaults serve locks badly:
    ///
    /// - A connection gives up on an answer after 500 ms
    ///   ([`AsyncConnectionConfig`](redis::AsyncConnectionConfig)). If the node is hung, the
    ///   release that follows may overtake the acquire on another connection, and leave a key
    ///   behind that nobody holds until its ttl has passed. Have the manager set the response
    ///   timeout to `None`.
    /// - A pool that cannot connect does not tell why, and not before its `connection_timeout` of
    ///   30 s. (The manager's own deadlines hold all the same.)
    ///
    /// [`new`](Self::new) has neither. Such a node does not [watch](Watch): that needs a
    /// connection of its own.
    #[must_use]
    pub fn from_pool<M>(name: impl Into<String>, pool: bb8::Pool<M>) -> Self
    where
        M: ManageConnection,
        M::Connection: ConnectionLike,
    {
        Self::over(name.into(), vec![Line::Theirs(Box::new(pool))], TokioContext::current())
    }

    /// The node at the other end of `connection`, by the name `name`, which errors show.
    ///
    /// When the connection is lost, the node is: nothing makes another one. The response timeout
    /// of the connection is not applied to calls of this node. Such a node does not
    /// [watch](Watch): that needs a connection of its own.
    #[must_use]
    pub fn from_connection(name: impl Into<String>, connection: MultiplexedConnection) -> Self {
        let line = Fixed::new(connection);
        Self::over(name.into(), vec![Line::Theirs(Box::new(line))], TokioContext::current())
    }

    /// The tokio runtime in which connections live, if it has threads of its own; see
    /// [Runtimes](crate#runtimes).
    #[must_use]
    pub fn tokio(mut self, runtime: Handle) -> Self {
        self.tokio = TokioContext::of(runtime);
        self
    }

    pub(crate) fn over(name: String, lines: Vec<Line>, tokio: TokioContext) -> Self {
        Self { name, lines, watches: None, tokio }
    }

    pub(crate) fn watching(self, watches: Lane) -> Self {
        Self { watches: Some(watches), ..self }
    }

    fn call(&self, keys: &[Key]) -> Way<'_> {
        Way { line: self.line(keys), tokio: &self.tokio }
    }

    fn line(&self, keys: &[Key]) -> &Line {
        let line = match keys.first() {
            Some(key) if self.lines.len() > 1 => line_of(key, self.lines.len()),
            _ => 0,
        };
        &self.lines[line]
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("name", &self.name)
            .field("connections", &self.lines.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl LockBackend for RedisBackend {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let call = self.call(claim.keys());
        protocol::acquire(&call, claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let call = self.call(claim.keys());
        protocol::extend(&call, claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let call = self.call(claim.keys());
        protocol::release(&call, claim).await
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    /// Of connections of our own. Where there is one of several, a call may have left on it.
    fn obstacle(&self) -> Option<BackendError> {
        let obstacles: Option<Vec<_>> = self.lines.iter().map(Line::obstacle).collect();
        obstacles?.into_iter().next()
    }

    fn identity(&self) -> Option<&dyn Identify> {
        Some(self)
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        self.watches.as_ref().map(|_| self as _)
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn fencer(&self) -> Option<&dyn Fence> {
        Some(self)
    }

    fn quarantine(&self) -> Option<&dyn Quarantine> {
        Some(self)
    }

    /// On the one connection of our own. Of several, the first key of a claim decides.
    fn keeps_order(&self) -> bool {
        matches!(self.lines[..], [Line::Own(_)])
    }

    fn carrier(&self) -> Option<&dyn Carry> {
        self.lines.iter().all(|line| matches!(line, Line::Own(_))).then_some(self as _)
    }
}

/// Where others are under way to the node on a connection of our own. A call that has no company
/// has a quicker way.
impl Carry for RedisBackend {
    fn carries(&self, claim: &Claim) -> bool {
        match self.line(claim.keys()) {
            Line::Own(lane) => lane.carries(),
            Line::Theirs(_) => false,
        }
    }

    fn carry(&self, call: Call) {
        let exchange = match call.ask() {
            Ask::Acquire => Exchange::acquire(call.claim()),
            Ask::Release => Exchange::release(),
            // It is dropped, which is an answer.
            _ => return,
        };
        if let Line::Own(lane) = self.line(call.claim().keys()) {
            lane.carry(call, exchange);
        }
    }
}

#[async_trait]
impl Fence for RedisBackend {
    async fn acquire(&self, claim: &Claim, hint: FenceHint) -> Result<FenceVote, BackendError> {
        let call = self.call(claim.keys());
        fence::acquire(&call, claim, hint).await
    }

    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        let call = self.call(claim.keys());
        fence::raise(&call, claim, number).await
    }

    async fn release(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        let call = self.call(claim.keys());
        fence::release(&call, claim, number).await
    }
}

#[async_trait]
impl Quarantine for RedisBackend {
    async fn acquire(
        &self,
        claim: &Claim,
        hint: Option<FenceHint>,
        guard: RestartGuard,
    ) -> Result<Guarded, BackendError> {
        let call = self.call(claim.keys());
        quarantine::acquire(&call, claim, hint, guard).await
    }
}

#[async_trait]
impl Identify for RedisBackend {
    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        let call = self.call(&[]);
        protocol::server_id(&call).await
    }
}

#[async_trait]
impl Inspect for RedisBackend {
    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        let call = self.call(std::slice::from_ref(key));
        protocol::inspect(&call, key).await
    }
}

#[async_trait]
impl Watch for RedisBackend {
    async fn look(&self, key: &Key) -> Result<Watched, BackendError> {
        match &self.watches {
            Some(lane) => self.tokio.enter(lane.look(key)).await,
            None => Err(BackendError::new(
                BackendErrorKind::Other,
                "there is no connection for watches, and no address to make one",
            )),
        }
    }
}

#[async_trait]
impl Queue for RedisBackend {
    async fn join(&self, key: &Key, place: &Place) -> Result<Option<Place>, BackendError> {
        queue::join(&self.call(std::slice::from_ref(key)), key, place).await
    }

    async fn leave(
        &self,
        key: &Key,
        place: &Place,
        before: Option<&Place>,
    ) -> Result<(), BackendError> {
        queue::leave(&self.call(std::slice::from_ref(key)), key, place, before).await
    }
}

/// The line that one call takes, for all its commands.
struct Way<'a> {
    line: &'a Line,
    tokio: &'a TokioContext,
}

impl Wire for Way<'_> {
    type Command = Cmd;

    fn pack(&self, command: &[&[u8]]) -> Cmd {
        packed(command)
    }

    async fn send(&self, command: Cmd) -> Result<Reply, BackendError> {
        let unsent = match self.line.live() {
            Some(live) => match live.send(command).await {
                // The connection has ended, and the command is as good as new.
                Err(Trouble::NotSent(unsent)) => *unsent,
                answer => return error::reply(answer.map_err(Trouble::told)?),
            },
            None => command,
        };
        error::reply(self.line.send_anew(unsent, self.tokio).await?)
    }
}

/// The same line for all calls of one claim: they arrive in the order in which they are made.
fn line_of(key: &Key, lines: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    hasher.write(key.as_bytes());
    let lines = lines as u64;
    usize::try_from(hasher.finish() % lines).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use quorate_core::Resource;

    use super::*;

    #[test]
    fn c3_a_claim_keeps_to_one_connection_and_claims_spread_over_all() {
        let lines: Vec<_> = (0..64)
            .map(|n| Key::new(b"", &Resource::new(format!("orders:{n}")).unwrap()))
            .map(|key| {
                assert_eq!(line_of(&key, 4), line_of(&key, 4));
                line_of(&key, 4)
            })
            .collect();
        for line in 0..4 {
            assert!(lines.contains(&line));
        }
        assert!(lines.iter().all(|line| *line < 4));
    }
}
