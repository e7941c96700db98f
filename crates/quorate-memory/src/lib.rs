//! In-memory nodes and a virtual clock: tests of locking code without a server.
//!
//! [`MemoryNode`] replies as a Redis node does and can be made to fail. [`Sim`] is a
//! [`Runtime`](quorate_core::Runtime) in which waiting takes no time, and in which two runs with
//! the same seed are the same. The locks are the real ones. [`conformance`] holds the contracts of
//! backends and runtimes as code.
//!
//! ```
//! use std::time::Duration;
//!
//! use quorate_core::LockManager;
//! use quorate_memory::{Fault, MemoryNode, Sim};
//!
//! let sim = Sim::new(42);
//! let nodes = MemoryNode::cluster(5, sim.clone());
//! let locks = LockManager::builder(nodes.clone()).runtime(sim.clone()).build()?;
//!
//! nodes[0].inject(Fault::Dead);
//! nodes[1].inject(Fault::Hung);
//! let guard = sim.block_on(locks.lock("stock:7"))?;
//! let refused = sim.block_on(locks.lock("stock:7").no_wait());
//! assert!(refused.is_err_and(|error| error.is_held()));
//!
//! sim.advance(Duration::from_secs(10));
//! assert!(!guard.is_valid(), "the lease has ended");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![allow(clippy::disallowed_methods, reason = "it works with clocks; tests must not")]

mod client;
mod clock;
pub mod conformance;
mod fault;
mod keys;
mod node;
mod observer;
mod rng;
mod rule;
mod sim;
mod store;
#[cfg(test)]
mod tests;
mod world;

pub use self::client::SimClient;
pub use self::fault::Fault;
pub use self::node::MemoryNode;
pub use self::observer::Observed;
pub use self::rule::{Effect, Operation, Rule};
pub use self::sim::Sim;
pub use self::store::Value;
