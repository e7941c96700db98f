//! quorate's lock manager, as a user sets it up. The name of the contestant says the client and the variant.

use std::time::{Duration, Instant};

use quorate::{LockGuard, LockManager};

use super::Contestant;
use crate::Outcome;

pub(crate) struct Quorate {
    pub(crate) manager: LockManager,
    is_fenced: bool,
}

impl Contestant for Quorate {
    type Held = LockGuard;

    async fn connect(name: &str, addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let builder = if name.starts_with("quorate/fred") {
            LockManager::builder(quorate::fred::connect(addresses)?)
        } else if name.ends_with("own thread") {
            LockManager::builder(quorate::redis::builder().own_thread().connect(addresses)?)
        } else {
            LockManager::builder(quorate::redis::connect(addresses)?)
        };
        let is_guarded = name.ends_with("guarded");
        let builder = if is_guarded { builder.restart_guard(ttl) } else { builder };
        let manager = builder.ttl(ttl).build()?;
        Ok(Self { manager, is_fenced: name.contains("fenced") })
    }

    async fn acquire(&self, key: &str) -> Option<LockGuard> {
        let request = self.manager.lock(key);
        if self.is_fenced { request.fenced().await.ok() } else { request.await.ok() }
    }

    async fn release(&self, held: LockGuard) -> bool {
        held.release().await.is_ok()
    }

    async fn acquire_until(&self, key: &str, deadline: Instant) -> Option<LockGuard> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        self.manager.lock(key).timeout(timeout).await.ok()
    }

    /// The cleanup bound is the ttl, 10 s in most measures.
    async fn close(&self) {
        let _ = self.manager.close(Duration::from_secs(12)).await;
    }
}
