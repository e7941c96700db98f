//! A Redis or Valkey node as a backend.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quorate_core::BackendError;
use quorate_core::backend::{
    AcquireOptions, Asked, Call, Capabilities, Claim, ExtendOptions, LockBackend, NotSent,
    Operation, ReleaseOptions, Reply, ask,
};
use quorate_core::runtime::Runtime;

use crate::batcher::Settings;
use crate::carrier::Carrier;
use crate::connection::Dial;
use crate::connections::Connections;

/// One Redis or Valkey node over any client.
///
/// Clones share the connections, which end with the last clone.
#[derive(Clone, Debug)]
pub struct RedisNode {
    carrier: Arc<dyn Carrier>,
}

impl RedisNode {
    /// A node with one connection for commands and, from the first wait on, one for watches.
    ///
    /// Nothing is sent here: the first call connects.
    #[must_use]
    pub fn new<D: Dial>(dial: D, settings: &Settings<D>) -> Self {
        Self::over(Connections::new(dial, settings))
    }

    /// A node over a carrier such as a pool.
    #[must_use]
    pub fn over(carrier: impl Carrier) -> Self {
        Self { carrier: Arc::new(carrier) }
    }

    fn carry(&self, call: Call) -> Result<(), NotSent> {
        Arc::clone(&self.carrier).begin(call)
    }

    fn ask(&self, operation: Operation) -> Asked {
        ask(operation, Instant::now(), |call| self.carry(call))
    }
}

#[async_trait]
impl LockBackend for RedisNode {
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

    fn begin(self: Arc<Self>, call: Call, _: &dyn Runtime) -> Result<(), NotSent> {
        self.carry(call)
    }
}
