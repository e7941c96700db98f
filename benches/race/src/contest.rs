//! The contestants, all behind [`Contestant`].

use std::future::Future;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use quorate::runtime::os_random;
use quorate::{LockGuard, LockManager};
use rslock::Lock;

use crate::Outcome;

mod by_hand;

pub(crate) use by_hand::{ByHand, Fred, Redis};

pub(crate) const QUORATE_REDIS: &str = "quorate/redis";
pub(crate) const OWN_THREAD: &str = "quorate/redis own thread";
pub(crate) const QUORATE_FRED: &str = "quorate/fred";
pub(crate) const BARE_REDIS: &str = "bare redis-rs";
pub(crate) const BARE_FRED: &str = "bare fred";
pub(crate) const RSLOCK: &str = "rslock";

/// All but the variants of quorate, in the order of the tables and of the picture.
pub(crate) const ALL: [&str; 5] = [QUORATE_REDIS, QUORATE_FRED, BARE_REDIS, BARE_FRED, RSLOCK];

pub(crate) const OURS: [&str; 2] = [QUORATE_REDIS, QUORATE_FRED];

/// The contestants of *fencing*: with a fencing token, with the restart guard, and with both.
pub(crate) const FENCED: [&str; 8] = [
    QUORATE_REDIS,
    "quorate/redis fenced",
    "quorate/redis guarded",
    "quorate/redis fenced and guarded",
    QUORATE_FRED,
    "quorate/fred fenced",
    "quorate/fred guarded",
    "quorate/fred fenced and guarded",
];

/// The release script of the hand-written contestants: the one of quorate.
pub(crate) const RELEASE: &str = concat!(
    include_str!("../../../crates/quorate-protocol/scripts/is_freed.lua"),
    include_str!("../../../crates/quorate-protocol/scripts/release.lua")
);

static RELEASE_SHA1: LazyLock<String> =
    LazyLock::new(|| sha1_smol::Sha1::from(RELEASE).digest().to_string());

/// The longest pause after a refusal of a contestant that polls.
const POLL: Duration = Duration::from_millis(10);

/// A library or a hand-written client that locks on a quorum of nodes.
pub(crate) trait Contestant: Sized + Send + Sync + 'static {
    type Held: Send + 'static;

    /// Connects to the nodes, for locks with a ttl of `ttl`. A node that is down is no error.
    fn connect(
        name: &str,
        addresses: Vec<String>,
        ttl: Duration,
    ) -> impl Future<Output = Outcome<Self>> + Send;

    fn acquire(&self, key: &str) -> impl Future<Output = Option<Self::Held>> + Send;

    fn release(&self, held: Self::Held) -> impl Future<Output = bool> + Send;

    /// Waits for a contended lock. The default polls; a contestant that can wait overrides it.
    fn acquire_until(
        &self,
        key: &str,
        deadline: Instant,
    ) -> impl Future<Output = Option<Self::Held>> + Send {
        async move {
            loop {
                if let Some(held) = self.acquire(key).await {
                    return Some(held);
                }
                let mut bits = [0; 4];
                os_random(&mut bits).ok()?;
                let part = f64::from(u32::from_ne_bytes(bits)) / f64::from(u32::MAX);
                let pause = POLL.mul_f64(part);
                if Instant::now() + pause >= deadline {
                    return None;
                }
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Waits for the background work, for a limited time.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// quorate, as a user sets it up. The name of the contestant says the client and the variant.
pub(crate) struct Quorate {
    manager: LockManager,
    is_fenced: bool,
}

impl Contestant for Quorate {
    type Held = LockGuard;

    async fn connect(name: &str, addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let builder = match name {
            _ if name.starts_with(QUORATE_FRED) => {
                LockManager::builder(quorate::fred::connect(addresses)?)
            }
            OWN_THREAD => {
                LockManager::builder(quorate::redis::builder().own_thread().connect(addresses)?)
            }
            _ => LockManager::builder(quorate::redis::connect(addresses)?),
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

/// The published crate `rslock`, as a user sets it up.
pub(crate) struct Rslock {
    manager: rslock::LockManager,
    ttl: Duration,
}

impl Contestant for Rslock {
    type Held = Lock;

    async fn connect(_: &str, addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let mut manager = rslock::LockManager::new(addresses);
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
