//! The subjects: the manager of quorate, as a user sets it up.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use quorate::runtime::TokioRuntime;
use quorate::{LockGuard, LockManager, Released};

use super::Contestant;
use crate::Outcome;

/// quorate on redis-rs.
pub(crate) type OnRedis = Quorate<Redis>;
/// quorate on fred.
pub(crate) type OnFred = Quorate<Fred>;

pub(crate) struct Quorate<C> {
    manager: LockManager,
    client: PhantomData<fn() -> C>,
}

pub(crate) trait Client: 'static {
    fn manager(addresses: Vec<String>, ttl: Duration) -> Outcome<LockManager>;
}

pub(crate) struct Redis;
pub(crate) struct Fred;

impl Client for Redis {
    fn manager(addresses: Vec<String>, ttl: Duration) -> Outcome<LockManager> {
        let nodes = quorate::redis::connect(addresses)?;
        Ok(LockManager::builder(TokioRuntime::new(), nodes).ttl(ttl).build()?)
    }
}

impl Client for Fred {
    fn manager(addresses: Vec<String>, ttl: Duration) -> Outcome<LockManager> {
        let nodes = quorate::fred::connect(addresses)?;
        Ok(LockManager::builder(TokioRuntime::new(), nodes).ttl(ttl).build()?)
    }
}

/// A contestant that is a manager, for what only quorate can do.
pub(crate) trait Manages: Contestant {
    fn manager(&self) -> &LockManager;
}

impl<C: Client> Manages for Quorate<C> {
    fn manager(&self) -> &LockManager {
        &self.manager
    }
}

impl<C: Client> Contestant for Quorate<C> {
    type Held = LockGuard;

    /// Its cleanup ends with the ttl.
    const SETTLE: Duration = Duration::from_secs(12);

    async fn connect(addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        Ok(Self { manager: C::manager(addresses, ttl)?, client: PhantomData })
    }

    async fn acquire(&self, key: &str) -> Option<LockGuard> {
        self.manager.lock(key).await.ok()
    }

    async fn release(&self, held: LockGuard) -> bool {
        matches!(held.release().await, Ok(Released::Held))
    }

    async fn acquire_until(&self, key: &str, deadline: Instant) -> Option<LockGuard> {
        let wait = deadline.saturating_duration_since(Instant::now());
        self.manager.lock(key).wait(wait).await.ok()
    }

    async fn settle(&self, bound: Duration) -> usize {
        self.manager.settle(bound).await
    }
}
