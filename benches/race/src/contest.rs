//! The contestants: one file each, all behind [`Contestant`].

use std::future::Future;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use quorate::runtime::os_random;

use crate::Outcome;

mod by_hand;
mod distkit_mutex;
mod fred_by_hand;
mod quorate_manager;
mod raw;
mod redis_by_hand;
mod rslock_manager;

pub(crate) use by_hand::ByHand;
pub(crate) use distkit_mutex::Distkit;
pub(crate) use fred_by_hand::Fred;
pub(crate) use quorate_manager::Quorate;
pub(crate) use raw::Raw;
pub(crate) use redis_by_hand::Redis;
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

/// The contestants of *latency* and *throughput*: [`ALL`] and a variant of quorate.
pub(crate) const WITH_OWN_THREAD: [&str; 7] =
    [QUORATE_REDIS, OWN_THREAD, QUORATE_FRED, BARE_REDIS, BARE_FRED, RAW, RSLOCK];

/// The contestants on a single node.
pub(crate) const ON_ONE_NODE: [&str; 4] = [QUORATE_REDIS, BARE_REDIS, RSLOCK, DISTKIT];

/// The contestants that are libraries on a quorum, with waiting of their own.
pub(crate) const LIBRARIES: [&str; 3] = [QUORATE_REDIS, QUORATE_FRED, RSLOCK];

/// The contestants that are quorate.
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
pub(crate) const RELEASE: &str =
    include_str!("../../../crates/quorate-protocol/scripts/release.lua");

/// The SHA-1 of [`RELEASE`].
pub(crate) static RELEASE_SHA1: LazyLock<String> =
    LazyLock::new(|| sha1_smol::Sha1::from(RELEASE).digest().to_string());

/// The longest pause after a refusal of a contestant that polls.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// A library or a hand-written client that locks on a quorum of nodes, or on one node.
pub(crate) trait Contestant: Sized + Send + Sync + 'static {
    /// A lock that is held.
    type Held: Send + 'static;

    /// Connects to the nodes, for locks with a ttl of `ttl`. A node that is down is no error.
    fn connect(
        name: &str,
        addresses: Vec<String>,
        ttl: Duration,
    ) -> impl Future<Output = Outcome<Self>> + Send;

    /// Acquires an uncontended lock.
    fn acquire(&self, key: &str) -> impl Future<Output = Option<Self::Held>> + Send;

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

    /// Waits for the background work, for a limited time.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Waits up to a second until no call is left.
async fn settle(left: impl Fn() -> usize + Send) {
    let deadline = Instant::now() + Duration::from_secs(1);
    while left() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
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
