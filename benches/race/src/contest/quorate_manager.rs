//! quorate's lock manager, as a user sets it up.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use quorate::{LockGuard, LockManager, LockManagerBuilder};

use super::Contestant;
use crate::Outcome;

/// quorate on redis-rs.
pub(crate) type OnRedis = Quorate<Redis>;
/// quorate on redis-rs, with all connections on a helper thread.
pub(crate) type OnOwnThread = Quorate<OwnThread>;
/// quorate on fred.
pub(crate) type OnFred = Quorate<Fred>;

pub(crate) struct Quorate<C> {
    manager: LockManager,
    client: PhantomData<fn() -> C>,
}

pub(crate) trait Client: 'static {
    fn builder(addresses: Vec<String>, ttl: Duration) -> Outcome<LockManagerBuilder>;
}

pub(crate) struct Redis;
pub(crate) struct OwnThread;
pub(crate) struct Fred;
pub(crate) struct WithGuard<C>(PhantomData<fn() -> C>);

impl Client for Redis {
    fn builder(addresses: Vec<String>, _ttl: Duration) -> Outcome<LockManagerBuilder> {
        Ok(LockManager::builder(quorate::redis::connect(addresses)?))
    }
}

impl Client for OwnThread {
    fn builder(addresses: Vec<String>, _ttl: Duration) -> Outcome<LockManagerBuilder> {
        Ok(LockManager::builder(on_own_thread(addresses)?))
    }
}

/// Nodes whose connections live on a helper thread.
fn on_own_thread(addresses: Vec<String>) -> Outcome<Vec<quorate::redis::RedisNode>> {
    Ok(quorate::redis::builder().own_thread().connect(addresses)?)
}

impl Client for Fred {
    fn builder(addresses: Vec<String>, _ttl: Duration) -> Outcome<LockManagerBuilder> {
        Ok(LockManager::builder(quorate::fred::connect(addresses)?))
    }
}

impl<C: Client> Client for WithGuard<C> {
    fn builder(addresses: Vec<String>, ttl: Duration) -> Outcome<LockManagerBuilder> {
        Ok(C::builder(addresses, ttl)?.restart_guard(ttl))
    }
}

/// A contestant with a [`LockManager`], for measures of quorate alone.
pub(crate) trait Manages: Contestant {
    /// The same contestant with the restart guard.
    type Guarded: Manages;

    fn manager(&self) -> &LockManager;
}

impl<C: Client> Manages for Quorate<C> {
    type Guarded = Quorate<WithGuard<C>>;

    fn manager(&self) -> &LockManager {
        &self.manager
    }
}

impl<C: Client> Contestant for Quorate<C> {
    type Held = LockGuard;

    /// The cleanup bound is the ttl, 10 s in most measures.
    const CLOSE: Duration = Duration::from_secs(12);

    async fn connect(addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let manager = C::builder(addresses, ttl)?.ttl(ttl).build()?;
        Ok(Self { manager, client: PhantomData })
    }

    async fn acquire(&self, key: &str) -> Option<LockGuard> {
        self.manager.lock(key).await.ok()
    }

    async fn try_acquire(&self, key: &str) -> Option<LockGuard> {
        self.manager.lock(key).no_wait().await.ok()
    }

    async fn release(&self, held: LockGuard) -> bool {
        held.release().await.is_ok()
    }

    async fn acquire_until(&self, key: &str, deadline: Instant) -> Option<LockGuard> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        self.manager.lock(key).timeout(timeout).await.ok()
    }

    async fn close(&self, bound: Duration) -> usize {
        self.manager.close(bound).await.nodes().count()
    }
}
