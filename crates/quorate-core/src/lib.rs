//! The algorithm of quorate: locks over a quorum of independent nodes, on no client and no runtime.
//!
//! A lock is held when a quorum of the N configured nodes granted it. It is valid for its ttl minus
//! the time spent, the clock drift and a safety margin (the [Redlock] algorithm).
//!
//! # The floors
//!
//! A module imports only from modules in rows below its own, so there is no circle.
//!
//! | floor | module | what it is |
//! |---|---|---|
//! | 9 | [`blocking`](LockRequest::lock_blocking) | locks for threads without async |
//! | 9 | [`lead`](LockManager::lead) | a loop around a lock: leads whenever this process can |
//! | 9 | [`any`](LockManager::lock_any) | one of several names, and permits |
//! | 9 | [`once`](LockManager::once_per) | work that is done once per period |
//! | 8 | [`manager`](LockManager) | the handle: `lock`, `with`, `adopt`, `inspect`, `revoke`, `check`, `leases`, `close` |
//! | 8 | [`request`](LockRequest) | what a user asks for; awaited, it gives a guard |
//! | 8 | `acquire` | a loop for each kind of request: rounds at the nodes, and the waits between them |
//! | 7 | [`fenced_cell`](FencedCell) | a resource in memory that checks fencing tokens |
//! | 7 | [`revoke`](Revocation) | what each node kept of a lock that was taken away |
//! | 7 | [`check`](Check) | the report of each node about itself, with its problems |
//! | 7 | [`readiness`](Readiness) | what is known of the nodes without asking them |
//! | 7 | [`inspect`](Inspection) | a look from outside at a lock |
//! | 7 | [`guard`](LockGuard) | the RAII value that releases on drop |
//! | 7 | [`detached`](DetachedLock) | the record with which another process adopts a lock |
//! | 6 | [`lease`](Lease) | the view of an attempt that its holder has: the end, the lost signal, extension |
//! | 5 | `attempt` | the life of one token: each reply, due time and wish is one input, handled at once |
//! | 4 | `tickets` | turns inside a manager: a FIFO queue of tasks and one ticket for each key |
//! | 4 | `readers` | the readers of a manager that wait: those of one lock share an entry |
//! | 4 | `remote_wait` | the wait between processes for one key |
//! | 3 | `cluster` | what all floors above share: settings, runtime, nodes, open attempts |
//! | 3 | `nodes` | the configured nodes, with the health and the server id of each |
//! | 3 | `attempts` | all attempts and waits that are not over, and the timekeeper |
//! | 2 | [`telemetry`] | events and figures |
//! | 2 | `config` | the settings, checked |
//! | 2 | [`error`] | one error per operation |
//! | 1 | `waiting` | a caller that waits for something that a state will have, with a timer of its own |
//! | 1 | `wakers` | the tasks that wait for a change of one state |
//! | 1 | `late` | a mutex that a reply never waits for, with its list of late arrivals |
//! | 1 | [`backend`] | the seam to a node; in it `call`: one call, and its way back |
//! | 1 | `given_up` | tasks of backends that wait until an answer is not awaited any more |
//! | 1 | [`runtime`] | the seam to an async runtime: clock, timer, tasks, randomness |
//! | 0 | [`resource`] | names, keys and tokens |
//! | 0 | `entropy` | the error of a source of randomness |
//! | 0 | [`algorithm`] | the pure machines: no async, no clock, no randomness, no I/O |
//!
//! To learn how a lock works, read `docs/how-it-works.md` of this crate, then
//! [`algorithm::attempt`], `acquire/plain.rs` and `attempt.rs`. Codes such as C3 are the rules of `tests/README.md`. The
//! *gate* is the node that keeps the wait queue of a lock.
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
//! - A lease that ended by time, by its hold limit or by `close` keeps its keys for the safety margin while its guard
//!   lives.
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

mod acquire;
pub mod algorithm;
mod any;
mod attempt;
mod attempts;
pub mod backend;
mod blocking;
mod check;
mod cluster;
mod config;
mod detached;
mod entropy;
pub mod error;
mod fenced_cell;
mod given_up;
mod guard;
mod inspect;
mod late;
mod lead;
mod lease;
mod manager;
mod nodes;
mod once;
mod readers;
mod readiness;
mod remote_wait;
mod request;
pub mod resource;
mod revoke;
#[allow(clippy::disallowed_methods, reason = "the one place that reads clocks (T4)")]
pub mod runtime;
pub mod telemetry;
mod tickets;
mod waiting;
mod wakers;

pub use algorithm::fence::FencingToken;
pub use backend::{BackendError, BackendErrorKind, LockBackend, RestartGuard};
pub use check::{Check, CheckRequest, NodeReport, Problem};
pub use detached::{DetachedLock, InvalidRecord};
pub use error::{
    AdoptError, Answer, BuildError, ExtendError, InvalidRequest, LeaseEnd, LockError, NodeAnswer,
    OnceError, QuorumFailure, ReleaseError, RevokeError, Stopped, WithError,
};
pub use fenced_cell::{FencedCell, StaleToken};
pub use guard::LockGuard;
pub use inspect::{Inspection, KeyState, LockState, NodeView};
pub use lease::Lease;
pub use manager::{CloseReport, LockManager, LockManagerBuilder};
pub use readiness::{NodeReadiness, Readiness};
pub use request::LockRequest;
pub use resource::{IntoResource, IntoResources, InvalidResource};
pub use revoke::Revocation;
pub use runtime::Runtime;
