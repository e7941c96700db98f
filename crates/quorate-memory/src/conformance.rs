//! The contracts of [`LockBackend`] and [`Runtime`] as code.
//!
//! Run [`backend`] on every backend, against a [`Testbed`], and [`runtime`] on every runtime. Each
//! case is named after the property that it checks. A new version may add cases.
//!
//! ```
//! use quorate_memory::{MemoryNode, Sim, conformance};
//!
//! let sim = Sim::new(1);
//! let node = MemoryNode::new("mine", sim.clone());
//! let passed = sim.block_on(conformance::backend(&node))?;
//! assert!(passed.contains(&"a held key is refused and left alone"));
//! # Ok::<(), conformance::Failure>(())
//! ```

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::Runtime;
use quorate_core::backend::LockBackend;

mod backend;
mod bench;
mod calls;
mod memory;
mod order;
mod runtime;
mod script;

pub use self::backend::backend;
pub use self::runtime::runtime;

/// A backend, and what a test does to its node behind its back.
///
/// Implement it under [`async_trait`](quorate_core::backend::async_trait).
///
/// # Cancel safety
///
/// The suite awaits each of these futures to its end, unless the suite itself is dropped.
#[async_trait]
pub trait Testbed: Sync {
    /// The backend under test.
    fn backend(&self) -> Arc<dyn LockBackend>;

    /// The runtime on which the backend begins calls.
    fn runtime(&self) -> Arc<dyn Runtime>;

    /// The string at a key, if it is there.
    async fn value(&self, key: &[u8]) -> Option<Vec<u8>>;

    /// How long a key still lives; `None` if it is not there or does not expire.
    async fn time_left(&self, key: &[u8]) -> Option<Duration>;

    /// Makes a key expire now (`PEXPIRE key 0`).
    async fn expire(&self, key: &[u8]);

    /// Lets this much time pass at the node. The default sleeps on the [runtime](Self::runtime).
    async fn pass(&self, time: Duration) {
        let runtime = self.runtime();
        runtime.sleep_until(runtime.now() + time).await;
    }

    /// Whether a key can hold a value that is no lock. If not, no case needs such a value.
    fn has_other_values(&self) -> bool {
        true
    }

    /// Puts a value without a ttl that is not a string at a key (`LPUSH key x`). Called only if the
    /// store [has such values](Self::has_other_values).
    async fn put_list(&self, _key: &[u8]) {}

    /// Ends the node's process and starts it again with its data. Returns `false` if that cannot be
    /// done; then nothing that follows from it is checked.
    async fn restart(&self) -> bool {
        false
    }

    /// Makes the node forget prepared scripts (`SCRIPT FLUSH`), if there are any.
    ///
    /// The next acquire or refresh may be *not sent*. The one after it is carried out.
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

/// Ends a case with an error text, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($seen:tt)+) => {
        if !$condition {
            return Err(format!($($seen)+));
        }
    };
}
use ensure;
