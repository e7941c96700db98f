//! The algorithm of quorate: locks over a quorum of independent nodes, on no client and no runtime.
//!
//! A lock is held when a majority of the N configured nodes granted it, and it is valid for what is
//! left of its ttl after the time spent and the clock drift (the [Redlock] algorithm).
//!
//! ```text
//!  caller          async half                       pure half                        node
//!  lock(name) ──▶ manager ── token, now ──────────▶ Round::acquire
//!                    │
//!                 driver ── call every node ─────────────────────────────────────▶ LockBackend
//!                    │   ◀── vote, now ──────────────────────────────────────────
//!                    │      round.on_vote(node, vote, now) ─▶ quorum ─▶ lease (validity)
//!                    │   ◀── Step::{Wait, Won{valid_until}, Lost(why)}
//!  LockGuard ◀──  manager      Lost → release on all nodes → retry delay → next round
//! ```
//!
//! The pure half is [`algorithm`]: the present and random bits are arguments, a decision is a
//! return value. Read [`algorithm::round`] first, and [`algorithm::fence`] for fencing tokens, and [`restarts`] for nodes that forget. Around it, [`LockManager`] loops over rounds, a
//! driver sends one operation to all nodes and hears them, and [`LockGuard`] is what the holder has.
//! The seams are [`LockBackend`] to nodes and [`Runtime`] to clock, timer and tasks.
//!
//! # Invariants
//!
//! - A quorum is N/2 + 1 of the **configured** nodes, for every operation. Any two share a node.
//! - Validity counts from before the first byte of the round that was won.
//! - Only a refusal means *held*; an error, a timeout, silence are *unknown*, never a vote.
//! - Every attempt has a token of its own, so what belongs to an earlier one cannot hit a later one.
//! - No call is dropped before it has settled or the cleanup bound has passed: it may be a grant
//!   that somebody must give back. Calls of one attempt come to a node one after the other.
//! - An attempt that did not end in a guard is released on **all** nodes.
//! - What was granted is never shortened by an extension. A lease ends early only when it is given
//!   up, when its keys are gone, or by the margin; nobody is told that it holds after `valid_until`.
//!
//! # What a lock cannot do
//!
//! A holder that is paused between its last look at the clock and its write comes too late, and no
//! lock with a timeout can prevent that. The resource itself can, if it is told a number that rises
//! with every holder: ask for [one](LockRequest::fenced), and see [`FenceGate`]. The nodes' clocks are trusted to run at about our speed,
//! and their memory to last as long as a lock: see [`restarts`] for what can be done about that. The
//! guide lists all [limits].
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use quorate_core::{LockBackend, LockManager, Released, Runtime};
//!
//! async fn transfer(
//!     runtime: impl Runtime,
//!     nodes: Vec<Arc<dyn LockBackend>>,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let manager = LockManager::builder(runtime, nodes).build()?;
//!     let guard = manager.lock(["account:1", "account:2"]).await?;
//!     // … both accounts are ours until guard.valid_until() …
//!     match guard.release().await? {
//!         Released::Held => Ok(()),
//!         _ => Err("somebody else may have had them before the end".into()),
//!     }
//! }
//! ```
//!
//! # Features
//!
//! None is on by default. All can be combined.
//!
//! - `tokio`: `runtime::TokioRuntime`, and `runtime::TokioContext` for backends on a client that needs
//!   tokio.
//! - `smol`: `runtime::SmolRuntime`.
//! - `serde`: `Serialize` and `Deserialize` for [`HandOver`].
//! - `tracing`: events of the life of a lock and of nodes that fail, see [`observe`].
//! - `metrics`: waits, holds, votes and latency per node, see [`observe`].
//!
//! [limits]: https://github.com/quorate/quorate/blob/HEAD/crates/quorate/docs/guarantees.md#limits
//! [Redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "an origin: time passes by hand"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

// In front of the modules that have planted points.
#[doc(hidden)]
#[macro_use]
pub mod planted;

pub mod algorithm;
pub mod backend;
mod background;
mod cluster;
mod config;
mod driver;
mod error;
mod fenced_cell;
mod guard;
mod handover;
mod health;
mod inspect;
#[allow(dead_code, missing_docs, reason = "called by the new core")]
pub mod inspect2;
mod lease;
mod manager;
pub mod observe;
mod places;
pub mod protocol;
mod queue;
mod refusals;
mod register;
mod renewal;
mod request;
pub mod resource;
pub mod restarts;
mod roster;
#[allow(clippy::disallowed_methods, reason = "the one place that reads clocks (T4)")]
pub mod runtime;
mod shared_set;
mod standing;
#[allow(dead_code, reason = "called by the new core")]
pub mod telemetry;
mod waiting;
mod watches;
mod with;

/// For an `impl` of [`LockBackend`] and of the traits beside it, whose methods are `async`.
pub use async_trait::async_trait;

pub use algorithm::fence::{FenceHint, FenceVote, FencingToken};
pub use algorithm::lease::{Drift, InvalidTtl, Ttl};
pub use algorithm::quorum::Vote;
pub use algorithm::retry::{Backoff, RetryContext, RetryStrategy};
pub use backend::{
    BackendError, BackendErrorKind, Carry, Claim, Fence, Holder, Identify, Inspect, LockBackend,
    Sighting, Watch, Watched,
};
pub use config::{BuildError, LockManagerBuilder};
pub use driver::{Answered, Ask, Call};
pub use error::{
    AdoptError, ExtendError, LockError, Lost, NodeVote, ReleaseError, Released, Said, Stopped,
    Votes, WithError,
};
pub use fenced_cell::{FencedCell, FencedCell as FenceGate, StaleToken};
pub use guard::LockGuard;
pub use handover::{HandOver, InvalidHandOver};
pub use inspect::{InspectError, Inspection, LockState, NodeView, Saw};
pub use lease::{Lease, Run};
pub use manager::LockManager;
pub use places::{Place, Queue};
pub use request::{LockRequest, TryLockRequest};
pub use resource::{IntoResource, IntoResources, InvalidResource, Key, Resource, Resources, Token};
pub use restarts::{Guarded, GuardedVote, Quarantine, RestartGuard};
pub use runtime::{EntropyError, Runtime};
