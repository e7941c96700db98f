//! What an attempt is, without its state: what can be read without a mutex.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::end::LeaseEnd;
use super::given_up::GivenUp;
use crate::algorithm::fence::FencingToken;
use crate::attempts::Slot;
use crate::backend::{AcquireOptions, Answered, Claim};
use crate::cluster::Cluster;
use crate::tickets::{LocalQueues, Releasing};

/// What an attempt is, without its state.
pub(crate) struct Identity {
    pub(super) queues: Arc<LocalQueues>,
    pub(crate) claim: Claim,
    /// How the claim is acquired.
    pub(super) options: AcquireOptions,
    pub(super) node_timeout: Duration,
    pub(crate) end: LeaseEnd,
    pub(super) won: OnceLock<Won>,
    /// The nodes whose release waits in a queue of this process, or has waited there, as bits.
    pub(super) queued: AtomicU64,
    pub(super) given_up: GivenUp,
    pub(super) slot: Slot,
}

/// A first round that was won.
pub(super) struct Won {
    pub(super) at: Instant,
    pub(super) token: Option<FencingToken>,
}

impl Identity {
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.queues.cluster
    }

    /// The fencing token of a lock that was won.
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.won.get().and_then(|won| won.token)
    }

    /// How long the lock was held until `now`.
    pub(crate) fn held(&self, now: Instant) -> Duration {
        self.won.get().map_or(Duration::ZERO, |won| now.saturating_duration_since(won.at))
    }
}

/// An attempt, as its state sees it.
pub(crate) trait Owner: Send + Sync {
    fn identity(&self) -> &Identity;
    /// Takes the answers to its calls.
    fn sender(&self) -> Arc<dyn Answered>;
    /// Says what nodes have answered to its releases.
    fn releasing(&self) -> Weak<dyn Releasing>;
}

impl Deref for dyn Owner + '_ {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        self.identity()
    }
}
