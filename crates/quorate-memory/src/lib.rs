//! In-memory nodes and a virtual clock: tests of locking code without a server.
//!
//! [`MemoryNode`] answers as a Redis node does and can be made to fail; [`Sim`] is a
//! [`Runtime`](quorate_core::Runtime) in which waiting takes no time and every run with the same
//! seed is the same run. The locks are the real ones.
//!
//! ```
//! use std::time::Duration;
//!
//! use quorate_core::{LockError, LockManager};
//! use quorate_memory::{Fault, MemoryNode, Sim};
//!
//! let sim = Sim::new(42);
//! let nodes = MemoryNode::cluster(5, sim.clone());
//! let manager = LockManager::builder(sim.clone(), nodes.clone()).build()?;
//!
//! nodes[0].inject(Fault::Dead);
//! nodes[1].inject(Fault::Hung);
//! let guard = sim.block_on(manager.lock("stock:7"))?;
//! let refused = sim.block_on(manager.try_lock("stock:7"));
//! assert!(matches!(refused, Err(LockError::Held { .. })));
//!
//! sim.advance(Duration::from_secs(10));
//! assert!(!guard.is_valid(), "the lease is over, and the guard knows");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![allow(clippy::disallowed_methods, reason = "it works with clocks; tests must not")]

mod client;
mod clock;
pub mod conformance;
mod fault;
mod node;
mod observer;
mod reply;
mod rng;
mod rule;
mod sim;
mod store;

pub use self::client::SimClient;
pub use self::fault::Fault;
pub use self::node::MemoryNode;
pub use self::observer::Observed;
pub use self::rule::{Effect, Operation, Rule};
pub use self::sim::Sim;
#[doc(hidden)]
pub use self::store::Flaw;
pub use self::store::Value;
