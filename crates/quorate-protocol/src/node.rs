//! A Redis or Valkey node as a backend.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use quorate_core::backend::{
    AcquireOptions, Call, CallReply, Capabilities, Choice, Claim, Description, Entry,
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

    /// Makes a call, and reads its answer.
    async fn ask<T>(
        &self,
        operation: Operation,
        read: impl FnOnce(CallReply) -> Option<T> + Send,
    ) -> Result<T, BackendError> {
        let (call, asked) = ask(operation, Instant::now());
        self.carrier.begin(call).map_err(|not_sent| not_sent.error().clone())?;
        read(asked.await?).ok_or_else(another)
    }
}

fn voted(reply: CallReply) -> Option<Reply> {
    if let CallReply::Voted(reply) = reply { Some(reply) } else { None }
}

fn sighted(reply: CallReply) -> Option<Option<Sighting>> {
    if let CallReply::Sighted(seen) = reply { Some(seen) } else { None }
}

fn waiters(reply: CallReply) -> Option<bool> {
    if let CallReply::Waiters(waiters) = reply { Some(waiters) } else { None }
}

/// The error of an answer to another call. A carrier gives none.
fn another() -> BackendError {
    BackendError::new(BackendErrorKind::Other, "an answer to another call")
}

/// The async methods are calls whose answer is a future.
#[async_trait]
impl<C: Carrier> LockBackend for RedisNode<C> {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        self.ask(Operation::Acquire(claim.clone(), options), voted).await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.ask(Operation::Extend(claim.clone(), options), voted).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.ask(Operation::Release(claim.clone(), options), voted).await
    }

    fn name(&self) -> Cow<'_, str> {
        self.carrier.name()
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
        self.ask(Operation::Raise(claim.clone(), number), voted).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        self.ask(Operation::Inspect { key: key.clone() }, sighted).await
    }

    async fn revoke(&self, key: &Key, how: &Revoke) -> Result<Option<Sighting>, BackendError> {
        let (key, how) = (key.clone(), how.clone());
        self.ask(Operation::Revoke { key, how }, sighted).await
    }

    async fn describe(&self) -> Result<Description, BackendError> {
        let read = |reply| if let CallReply::Described(it) = reply { Some(*it) } else { None };
        self.ask(Operation::Describe, read).await
    }

    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        let read = |reply| if let CallReply::ServerId(it) = reply { Some(it) } else { None };
        Ok(self.ask(Operation::ServerId, read).await?.map(|id| id.to_string()))
    }

    async fn hint(&self, key: &Key, mode: Mode) -> Result<bool, BackendError> {
        self.ask(Operation::Hint { key: key.clone(), mode }, waiters).await
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
        let read = |reply| if let CallReply::Refreshed(it) = reply { Some(it) } else { None };
        self.ask(Operation::Refresh { key, entry, locks, choice }, read).await
    }

    async fn queue_leave(
        &self,
        key: &Key,
        entry: &Entry,
        also: Option<&Entry>,
    ) -> Result<bool, BackendError> {
        let (key, entry, also) = (key.clone(), entry.clone(), also.cloned());
        self.ask(Operation::Leave { key, entry, also }, waiters).await
    }

    fn begin(self: Arc<Self>, call: Call, _: &dyn Runtime) -> Result<(), NotSent> {
        self.carrier.begin(call)
    }
}
