//! A node in memory as a backend.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::BackendError;
use quorate_core::backend::{
    AcquireOptions, Asked, Call, Capabilities, Claim, ExtendOptions, LockBackend, NotSent,
    Operation, ReleaseOptions, Reply, ask,
};
use quorate_core::runtime::Runtime;

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
        if let Some((.., why)) = ABILITIES.into_iter().find(|(one, ..)| is_lacking(*one)) {
            return Err(call.not_sent(BackendError::unsupported(why)));
        }
        let origin = Origin { client: self.client.clone(), has };
        let wait = self.connection.wait(self.process.runtime.now());
        // Watches do not share the connection of the other calls. Without order, no call does.
        let shares = operation != rule::Operation::Watch && has.contains(Capabilities::ORDERED);
        let own = (!shares).then(Connection::default);
        let connection = own.as_ref().unwrap_or(&self.connection);
        match wait {
            Ok(wait) => self.process.send(call, operation, origin, connection, wait),
            Err(limit) => self.process.fail_to_connect(call, limit),
        }
        Ok(())
    }

    fn ask(&self, operation: Operation) -> Asked {
        ask(operation, self.process.runtime.now(), |call| self.send(call))
    }
}

#[async_trait]
impl LockBackend for MemoryNode {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        self.ask(Operation::Acquire(claim.clone(), options)).voted().await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.ask(Operation::Extend(claim.clone(), options)).voted().await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.ask(Operation::Release(claim.clone(), options)).voted().await
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

    /// Without a delay, the call is answered before this returns. `runtime` is not used.
    fn begin(self: Arc<Self>, call: Call, _runtime: &dyn Runtime) -> Result<(), NotSent> {
        self.send(call)
    }
}
