//! The published crate `rslock`, as a user sets it up.

use std::time::Duration;

use rslock::{Lock, LockManager};

use super::{Contestant, POLL};
use crate::Outcome;

pub(crate) struct Rslock {
    manager: LockManager,
    ttl: Duration,
}

impl Contestant for Rslock {
    type Held = Lock;

    async fn connect(_: &str, addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let mut manager = LockManager::new(addresses);
        // rslock's default number of attempts, and the pause of all polling contestants.
        manager.set_retry(3, POLL);
        Ok(Self { manager, ttl })
    }

    async fn acquire(&self, key: &str) -> Option<Lock> {
        self.manager.lock(key, self.ttl).await.ok()
    }

    async fn release(&self, held: Lock) -> bool {
        self.manager.unlock(&held).await;
        true
    }
}
