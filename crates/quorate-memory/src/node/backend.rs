//! A node in memory as a backend. Its async methods go through `begin`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::backend::{
    AcquireOptions, Call, CallReply, CallResult, Capabilities, Choice, Claim, Description, Entry,
    ExtendOptions, LockBackend, Mode, NotSent, Operation, Refreshed, ReleaseOptions, Reply, Revoke,
    Sighting, Watched, ask,
};
use quorate_core::resource::Key;
use quorate_core::{BackendError, BackendErrorKind, FencingToken, Runtime};

use super::message::{Connection, Origin};
use super::{ABILITIES, MemoryNode};
use crate::rule;

#[cfg(test)]
mod tests;

impl MemoryNode {
    /// Sends a call, unless it needs an ability that this backend lacks.
    fn send(&self, call: Call) -> Result<(), NotSent> {
        let Some((operation, needs)) = rule::Operation::of(call.operation()) else {
            return Err(call.not_sent(BackendError::unsupported("this node lacks the operation")));
        };
        let has = self.capabilities.without(self.lacks);
        let is_lacking = |one| needs.contains(one) && !has.contains(one);
        if let Some((_, why)) = ABILITIES.into_iter().find(|(one, _)| is_lacking(*one)) {
            return Err(call.not_sent(BackendError::unsupported(why)));
        }
        let names_server = has.contains(Capabilities::SERVER_ID);
        let pushes = has.contains(Capabilities::PUSH);
        let origin = Origin { client: self.client.clone(), names_server, pushes };
        // Watches do not share the connection of the other calls.
        let own = (operation == rule::Operation::Watch).then(Connection::default);
        let connection = own.as_ref().unwrap_or(&self.connection);
        let wait = self.connection.wait(self.process.runtime.now());
        let connection = has.contains(Capabilities::ORDERED).then_some(connection);
        match wait {
            Ok(wait) => self.process.send(call, operation, origin, connection, wait),
            Err(limit) => self.process.fail_to_connect(call, limit),
        }
        Ok(())
    }

    async fn ask(&self, operation: Operation) -> CallResult {
        let (call, asked) = ask(operation, self.process.runtime.now());
        self.send(call).map_err(|not_sent| not_sent.error().clone())?;
        asked.await
    }
}

/// Asks the node, and takes the one reply that fits.
macro_rules! reply {
    ($node:ident, $operation:expr, $reply:ident) => {
        match $node.ask($operation).await? {
            CallReply::$reply(reply) => Ok(reply),
            other => Err(mixed_up(&other)),
        }
    };
}

#[async_trait]
impl LockBackend for MemoryNode {
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
        Cow::Borrowed(&self.process.name)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn connect_limit(&self) -> Duration {
        self.connection.connect_limit()
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
        let told: Box<Description> = reply!(self, Operation::Describe, Described)?;
        Ok(*told)
    }

    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        let id: Option<Arc<str>> = reply!(self, Operation::ServerId, ServerId)?;
        Ok(id.as_deref().map(str::to_owned))
    }

    async fn hint(&self, key: &Key, mode: Mode) -> Result<bool, BackendError> {
        reply!(self, Operation::Hint { key: key.clone(), mode }, Waiters)
    }

    /// Every write to the key is pushed, an extension too, and its expiry when the node's clock reaches
    /// it. The push is a message like a reply: the faults and rules of that moment act on it.
    async fn watch(&self, key: &Key, entry: Option<&Entry>) -> Result<Watched, BackendError> {
        let operation = Operation::Watch { key: key.clone(), entry: entry.cloned() };
        let (call, mut asked) = ask(operation, self.process.runtime.now());
        self.send(call).map_err(|not_sent| not_sent.error().clone())?;
        match (&mut asked).await? {
            CallReply::Watched(is_held) => Ok(Watched::new(is_held, asked.pushed())),
            other => Err(mixed_up(&other)),
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

    /// Without a delay, the call is answered before this returns. `runtime` is not used.
    fn begin(self: Arc<Self>, call: Call, _runtime: &dyn Runtime) -> Result<(), NotSent> {
        self.send(call)
    }
}

fn mixed_up(reply: &CallReply) -> BackendError {
    BackendError::new(BackendErrorKind::Protocol, format!("the reply of another call: {reply:?}"))
}
