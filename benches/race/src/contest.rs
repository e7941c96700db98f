//! The contestants: one file each, all behind [`Contestant`].

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use quorate::runtime::os_random;

use crate::Outcome;

mod bare_fred;
mod bare_redis;
mod distkit_mutex;
mod fan;
mod quorate_manager;
mod raw;
mod rslock_manager;

pub(crate) use bare_fred::BareFred;
pub(crate) use bare_redis::BareRedis;
pub(crate) use distkit_mutex::Distkit;
pub(crate) use quorate_manager::{Manages, OnFred, OnOwnThread, OnRedis};
pub(crate) use raw::Raw;
pub(crate) use rslock_manager::Rslock;

pub(crate) const QUORATE_REDIS: &str = "quorate/redis";
pub(crate) const OWN_THREAD: &str = "quorate/redis own thread";
pub(crate) const QUORATE_FRED: &str = "quorate/fred";
pub(crate) const BARE_REDIS: &str = "bare redis-rs";
pub(crate) const BARE_FRED: &str = "bare fred";
pub(crate) const RAW: &str = "raw";
pub(crate) const RSLOCK: &str = "rslock";
pub(crate) const DISTKIT: &str = "distkit";

/// The contestants on a quorum of nodes, in the order of the tables and of the picture.
pub(crate) const ALL: [&str; 6] = [QUORATE_REDIS, QUORATE_FRED, BARE_REDIS, BARE_FRED, RAW, RSLOCK];

/// The contestants of *latency* and *throughput*: [`ALL`] and variants of quorate.
pub(crate) const WITH_VARIANTS: [&str; 7] =
    [QUORATE_REDIS, OWN_THREAD, QUORATE_FRED, BARE_REDIS, BARE_FRED, RAW, RSLOCK];

/// The contestants on a single node.
pub(crate) const ON_ONE_NODE: [&str; 4] = [QUORATE_REDIS, BARE_REDIS, RSLOCK, DISTKIT];

/// The contestants that are libraries on a quorum, with waiting of their own.
pub(crate) const LIBRARIES: [&str; 3] = [QUORATE_REDIS, QUORATE_FRED, RSLOCK];

/// The contestants that are quorate.
pub(crate) const OURS: [&str; 2] = [QUORATE_REDIS, QUORATE_FRED];

/// The release script of the hand-written contestants: the one of quorate.
pub(crate) const RELEASE: &str =
    include_str!("../../../crates/quorate-protocol/scripts/release.lua");

/// The SHA-1 of [`RELEASE`].
pub(crate) static RELEASE_SHA1: LazyLock<String> =
    LazyLock::new(|| sha1_smol::Sha1::from(RELEASE).digest().to_string());

/// A variant of a lock that is compared to a plain lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    /// With a fencing token.
    pub(crate) fenced: bool,
    /// By a manager with the restart guard.
    pub(crate) guarded: bool,
}

/// The variants that are measured in turn, the plain one first.
pub(crate) const TURNS: [Variant; 4] = [
    Variant { name: "plain", fenced: false, guarded: false },
    Variant { name: "fenced", fenced: true, guarded: false },
    Variant { name: "guarded", fenced: false, guarded: true },
    Variant { name: "fenced and guarded", fenced: true, guarded: true },
];

/// A library or a hand-written client that locks on a quorum of nodes, or on one node.
pub(crate) trait Contestant: Sized + Send + Sync + 'static {
    /// A lock that is held.
    type Held: Send + 'static;

    /// The longest time that closing may take.
    const CLOSE: Duration = Duration::from_secs(1);

    /// Connects to the nodes, for locks with a ttl of `ttl`. A node that is down is no error.
    fn connect(addresses: Vec<String>, ttl: Duration)
    -> impl Future<Output = Outcome<Self>> + Send;

    /// Acquires an uncontended lock.
    fn acquire(&self, key: &str) -> impl Future<Output = Option<Self::Held>> + Send;

    /// Acquires a lock if it is free, in one round.
    fn try_acquire(&self, key: &str) -> impl Future<Output = Option<Self::Held>> + Send {
        self.acquire(key)
    }

    /// Releases a lock. Returns whether a quorum released it.
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
                let pause = random_up_to(POLL);
                if Instant::now() + pause >= deadline {
                    return None;
                }
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Waits up to `bound` for the background work. Returns how many calls are left; for quorate, how many
    /// nodes.
    fn close(&self, bound: Duration) -> impl Future<Output = usize> + Send;
}

/// The longest pause after a refusal of a contestant that polls.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// The number of fan-outs that continue in the background.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background(Arc<AtomicUsize>);

impl Background {
    fn enter(&self) -> Running {
        self.0.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(&self.0))
    }

    async fn settle(&self, bound: Duration) -> usize {
        settle(bound, || self.0.load(Ordering::Relaxed)).await
    }
}

#[derive(Debug)]
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn settle(bound: Duration, left: impl Fn() -> usize + Send) -> usize {
    let deadline = Instant::now() + bound;
    while left() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    left()
}

fn random_up_to(most: Duration) -> Duration {
    let mut bits = [0; 4];
    // An error of the source has failed the token of the acquire before.
    let _ = os_random(&mut bits);
    most.mul_f64(f64::from(u32::from_ne_bytes(bits)) / f64::from(u32::MAX))
}

/// Draws a token: 20 random bytes in hexadecimal digits, as quorate does.
fn token() -> Option<String> {
    let mut bytes = [0; 20];
    os_random(&mut bytes).ok()?;
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    Some(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect())
}
