//! A Redis or Valkey node as a backend.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quorate_core::backend::{
    AcquireOptions, Call, CallReply, CallResult, Capabilities, Choice, Claim, Description, Entry,
    ExtendOptions, LockBackend, Mode, NotSent, Operation, Refreshed, ReleaseOptions, Reply, Revoke,
    Sighting, Watched, ask,
};
use quorate_core::resource::Key;
use quorate_core::runtime::{Runtime, TokioRuntime};
use quorate_core::{BackendError, BackendErrorKind, FencingToken};

use crate::batcher::Limits;
use crate::carrier::Carrier;
use crate::connection::Dial;
use crate::connections::Connections;

/// One Redis or Valkey node over any client.
///
/// Clones share the connections, which end with the last clone.
#[derive(Clone, Debug)]
pub struct RedisNode<C> {
    carrier: C,
}

impl<D: Dial> RedisNode<Connections<D>> {
    /// A node with one connection for commands and, from the first wait on, one for watches.
    ///
    /// Nothing is sent here: the first call connects, in `runtime`.
    #[must_use]
    pub fn new(dial: D, runtime: TokioRuntime, limits: Limits) -> Self {
        Self::over(Connections::new(dial, runtime, limits))
    }
}

impl<C: Carrier> RedisNode<C> {
    /// A node over a carrier such as a pool.
    pub const fn over(carrier: C) -> Self {
        Self { carrier }
    }

    async fn ask(&self, operation: Operation) -> CallResult {
        let (call, asked) = ask(operation, Instant::now());
        self.carrier.begin(call).map_err(|not_sent| not_sent.error().clone())?;
        asked.await
    }
}

/// Makes a call, and takes the one reply that fits.
macro_rules! reply {
    ($node:ident, $operation:expr, $reply:ident) => {
        match $node.ask($operation).await? {
            CallReply::$reply(reply) => Ok(reply),
            _ => Err(another()),
        }
    };
}

/// The error of an answer to another call. A carrier gives none.
fn another() -> BackendError {
    BackendError::new(BackendErrorKind::Other, "an answer to another call")
}

/// The async methods are calls whose answer is a future.
#[async_trait]
impl<C: Carrier> LockBackend for RedisNode<C> {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        reply!(self, Operation::Acquire(claim.clone(), options), Voted)
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        reply!(self, Operation::Extend(claim.clone(), options), Voted)
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        reply!(self, Operation::Release(claim.clone(), options), Voted)
    }

    fn name(&self) -> Cow<'_, str> {
        self.carrier.name()
    }

    fn connect_limit(&self) -> Duration {
        self.carrier.connect_limit()
    }

    fn capabilities(&self) -> Capabilities {
        let always = Capabilities::FENCING
            | Capabilities::GUARD
            | Capabilities::QUEUE
            | Capabilities::INSPECT
            | Capabilities::REVOKE
            | Capabilities::SHARED
            | Capabilities::DESCRIBE
            | Capabilities::SERVER_ID;
        always | self.carrier.capabilities()
    }

    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Reply, BackendError> {
        reply!(self, Operation::Raise(claim.clone(), number), Voted)
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        reply!(self, Operation::Inspect { key: key.clone() }, Sighted)
    }

    async fn revoke(&self, key: &Key, how: &Revoke) -> Result<Option<Sighting>, BackendError> {
        reply!(self, Operation::Revoke { key: key.clone(), how: how.clone() }, Sighted)
    }

    async fn describe(&self) -> Result<Description, BackendError> {
        reply!(self, Operation::Describe, Described).map(|told| *told)
    }

    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        let id = reply!(self, Operation::ServerId, ServerId)?;
        Ok(id.map(|id| id.to_string()))
    }

    async fn hint(&self, key: &Key, mode: Mode) -> Result<bool, BackendError> {
        reply!(self, Operation::Hint { key: key.clone(), mode }, Waiters)
    }

    async fn watch(&self, key: &Key, entry: Option<&Entry>) -> Result<Watched, BackendError> {
        let operation = Operation::Watch { key: key.clone(), entry: entry.cloned() };
        let (call, mut asked) = ask(operation, Instant::now());
        self.carrier.begin(call).map_err(|not_sent| not_sent.error().clone())?;
        match (&mut asked).await? {
            CallReply::Watched(is_held) => Ok(Watched::new(is_held, asked.pushed())),
            _ => Err(another()),
        }
    }

    async fn queue_refresh(
        &self,
        key: &Key,
        entry: &Entry,
        locks: &[Key],
        choice: Choice,
    ) -> Result<Refreshed, BackendError> {
        let (key, entry, locks) = (key.clone(), entry.clone(), locks.into());
        reply!(self, Operation::Refresh { key, entry, locks, choice }, Refreshed)
    }

    async fn queue_leave(
        &self,
        key: &Key,
        entry: &Entry,
        also: Option<&Entry>,
    ) -> Result<bool, BackendError> {
        let (key, entry, also) = (key.clone(), entry.clone(), also.cloned());
        reply!(self, Operation::Leave { key, entry, also }, Waiters)
    }

    fn begin(self: Arc<Self>, call: Call, _: &dyn Runtime) -> Result<(), NotSent> {
        self.carrier.begin(call)
    }
}
