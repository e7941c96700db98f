//! The algorithm of quorate: locks over a quorum of independent nodes, on no client and no runtime.
//!
//! A lock is held when a quorum of the N configured nodes granted it. It is valid for its ttl minus
//! the time spent, the clock drift and a safety margin (the [Redlock] algorithm).
//!
//! # The floors
//!
//! A module imports only from floors below its own, or from modules to its left on its own floor.
//!
//! | floor | modules | what it is |
//! |---|---|---|
//! | 8 | [`request`](LockRequest) [`manager`](LockManager) | what users call: settings in, guard out |
//! | 7 | [`detached`](DetachedLock) [`guard`](LockGuard) [`inspect`](Inspection) [`fenced_cell`](FencedCell) | what users hold: the record that another process adopts, the RAII guard, a look from outside |
//! | 6 | `acquire` | waits for a turn, then makes attempts until one is won, with a wait between them |
//! | 5 | `lease` `wait` | the deadline, the lost signal, renewal; the ways of waiting: `notify`, `remote_queue`, `local_queue` |
//! | 4 | `attempt` | sends what the pure attempt asks for, and feeds it the replies and the time |
//! | 3 | `nodes` `tasks` `cluster` | the nodes with their health and server ids; the background work that `close` waits for |
//! | 2 | [`error`] `config` [`telemetry`] | one error per operation; checked settings; events and figures |
//! | 1 | [`runtime`] [`backend`] | the seams to an async runtime and to a node |
//! | 0 | [`algorithm`] `entropy` [`resource`] | pure: no async, no clock, no randomness, no I/O |
//!
//! To learn how a lock works, read [`algorithm::attempt`], then `acquire.rs`. `planted!(..)` is `false`: a
//! switch for tests, which prove with it that they notice a wrong idea. Codes such as C3 are the rules of
//! `tests/README.md`. The *gate* is the node that keeps the wait queue of a lock.
//!
//! # Invariants
//!
//! - A quorum is N/2 + 1 of the **configured** nodes, for every operation. Any two share a node.
//! - Validity counts from before the first byte of the request that set the ttl.
//! - Only a refusal means *held*. An error, a timeout and silence are *unknown*.
//! - Each attempt draws a token, so that no late release or extension of an earlier one touches its keys.
//! - A call settles by its reply, by the end of its connection, or by *not sent*. Up to the cleanup bound, a
//!   release waits for the call in front of it, or follows it on the same connection; then that call is
//!   given up.
//! - A failed attempt is released on every node that may have got something.
//! - A lease ends at `valid_until` by the clock, or earlier when the answers of the nodes prove that no quorum
//!   can have the keys.
//!
//! # What a lock cannot do
//!
//! A holder that is paused between its last look at the clock and its write may write too late. Only a
//! resource that checks a [fencing token](LockRequest::fenced) refuses that write.
//!
//! # Features
//!
//! None is on by default. All can be combined.
//!
//! - `tokio`: `runtime::TokioRuntime`, and `runtime::TokioContext` for backends on a tokio client.
//! - `smol`: `runtime::SmolRuntime`.
//! - `serde`: `Serialize` and `Deserialize` for [`DetachedLock`].
//! - `tracing`, `metrics`: events and figures, see [`telemetry`].
//!
//! [Redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "an origin: time passes by hand"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

// In front of the modules that have planted points.
#[doc(hidden)]
#[macro_use]
pub mod planted;

mod acquire;
pub mod algorithm;
mod attempt;
pub mod backend;
mod cluster;
mod config;
mod detached;
mod entropy;
pub mod error;
mod fenced_cell;
mod guard;
mod inspect;
mod lease;
mod manager;
mod nodes;
mod request;
pub mod resource;
#[allow(clippy::disallowed_methods, reason = "the one place that reads clocks (T4)")]
pub mod runtime;
mod tasks;
pub mod telemetry;
mod wait;

/// For an `impl` of [`LockBackend`], whose methods are `async`.
pub use async_trait::async_trait;

pub use algorithm::fence::{FenceHint, FencingToken};
pub use algorithm::lease::{Drift, InvalidTtl, Ttl};
pub use algorithm::quorum::Vote;
pub use backend::{
    BackendError, BackendErrorKind, Claim, Holder, LockBackend, RestartGuard, Sighting,
};
pub use config::Waiting;
pub use detached::{DetachedLock, InvalidRecord};
pub use error::{
    AdoptError, BuildError, ExtendError, LockError, Lost, ReleaseError, Stopped, WithError,
};
pub use fenced_cell::{FencedCell, StaleToken};
pub use guard::LockGuard;
pub use inspect::{Inspection, KeyState, LockState, NodeView};
pub use lease::{Lease, Run};
pub use manager::{CloseReport, LockManager, LockManagerBuilder};
pub use request::LockRequest;
pub use resource::{IntoResource, IntoResources, InvalidResource, Key, Resource, Resources, Token};
pub use runtime::{EntropyError, Runtime};
