//! The published crate `distkit`, as a user sets it up. It locks on a single node.

use std::time::{Duration, Instant};

use distkit::DistkitRedisKey;
use distkit::lock::{LockGuardState, LockOptions, Mutex, MutexGuard};
use redis::aio::ConnectionManager;
use redis::{Client, ConnectionInfo, IntoConnectionInfo};

use super::{Contestant, POLL};
use crate::Outcome;

pub(crate) struct Distkit {
    connection: ConnectionManager,
    ttl: Duration,
}

impl Contestant for Distkit {
    type Held = MutexGuard;

    async fn connect(_: &str, addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let [address] = &*addresses else {
            return Err("distkit locks on one node".into());
        };
        // The connection is the user's choice. TCP_NODELAY, as for redis-rs by hand.
        let info: ConnectionInfo = address.as_str().into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp))?;
        Ok(Self { connection: client.get_connection_manager().await?, ttl })
    }

    async fn acquire(&self, key: &str) -> Option<MutexGuard> {
        self.mutex(key)?.try_lock().await.ok()
    }

    async fn release(&self, held: MutexGuard) -> bool {
        matches!(held.release().await, Ok(LockGuardState::Released))
    }

    async fn acquire_until(&self, key: &str, deadline: Instant) -> Option<MutexGuard> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        self.mutex(key)?.try_lock_with_timeout(timeout).await.ok()
    }
}

impl Distkit {
    /// Creates the mutex of one key, with a new random owner.
    fn mutex(&self, key: &str) -> Option<std::sync::Arc<Mutex>> {
        // distkit refuses keys with colons.
        let key = DistkitRedisKey::try_from(key.replace(':', ".")).ok()?;
        let options = LockOptions::builder(key, self.connection.clone());
        Some(Mutex::new(options.ttl(self.ttl).retry_interval(POLL).build()))
    }
}
