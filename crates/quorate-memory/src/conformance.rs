//! The contracts of [`LockBackend`] and [`Runtime`](quorate_core::Runtime) as code.
//!
//! Everybody who writes a backend or a runtime can run them: [`backend`] against a [`Testbed`],
//! [`runtime`] against the runtime itself. Each case is named for the property that it checks.
//! New cases may come with any version.
//!
//! ```
//! use quorate_memory::{MemoryNode, Sim, conformance};
//!
//! let sim = Sim::new(1);
//! let node = MemoryNode::new("mine", sim.clone()).in_order();
//! let passed = sim.block_on(conformance::backend(&node))?;
//! assert!(passed.contains(&"a taken key is refused and left alone"));
//! # Ok::<(), conformance::Failure>(())
//! ```

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quorate_core::LockBackend;

mod backend;
mod runtime;

pub use self::backend::backend;
pub use self::runtime::runtime;

/// A backend, and what a test does to its node behind its back. Its methods are implemented under
/// [`async_trait`](quorate_core::async_trait).
///
/// # Cancel safety
///
/// The suite awaits each of these futures to its end, and drops one only if it is dropped itself.
#[async_trait]
pub trait Testbed: Sync {
    /// The backend that is tested.
    fn backend(&self) -> Arc<dyn LockBackend>;

    /// The string at a key, if it is there.
    async fn value(&self, key: &[u8]) -> Option<Vec<u8>>;

    /// How long a key still lives; `None` if it is not there or has no end.
    async fn time_left(&self, key: &[u8]) -> Option<Duration>;

    /// Makes a key expire now (`PEXPIRE key 0`): has its end come, where the store keeps ends.
    async fn expire(&self, key: &[u8]);

    /// Lets so much time pass at the node. As it is, it goes by on the clock of this machine, and
    /// others are polled meanwhile.
    async fn pass(&self, time: Duration) {
        let until = Instant::now() + time;
        poll_fn(|context| {
            if Instant::now() < until {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Whether there may be something at a key that is no lock. Where not, since the store is one of
    /// locks alone, say, what a backend tells of it is not checked.
    fn has_other_values(&self) -> bool {
        true
    }

    /// Puts a value that is not a string at a key (`LPUSH key x`). Not called unless the store
    /// [may have such](Self::has_other_values).
    async fn put_list(&self, _key: &[u8]) {}

    /// Ends the node's process, and starts it again with the data that it had; `false` where that
    /// cannot be done, so that what a node has to notice of it is not checked.
    async fn restart(&self) -> bool {
        false
    }

    /// Makes the node forget what a client may have prepared on it (`SCRIPT FLUSH`), if anything.
    async fn forget_scripts(&self) {}
}

/// The property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{case}: {detail}")]
#[non_exhaustive]
pub struct Failure {
    /// What was checked.
    pub case: &'static str,
    /// What was seen instead.
    pub detail: String,
}

/// Ends a case with what was seen, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($seen:tt)+) => {
        if !$condition {
            return Err(format!($($seen)+));
        }
    };
}
use ensure;
