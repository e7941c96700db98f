//! The algorithm of quorate: locks over a quorum of independent nodes, on no client and no runtime.
//!
//! A lock is held when a quorum of the N configured nodes granted it. It is valid for its ttl minus
//! the time spent, the clock drift and a safety margin (the [Redlock] algorithm).
//!
//! # The floors
//!
//! Each folder belongs to one floor. A module imports only from modules in rows below its own, so
//! there is no circle. `over` is what a user could have written: it imports what this file exports,
//! and the few private things that `over/access` lists. Beside them it calls some private methods
//! of its managers, requests and leases.
//!
//! | floor | module | what it is |
//! |---|---|---|
//! | 8 | [`over/blocking`](LockRequest::lock_blocking) | locks for threads without async |
//! | 8 | [`over/lead`](LockManager::lead) | a loop around a lock: leads whenever this process can |
//! | 8 | [`over/any`](LockManager::lock_any) | the names of permits, and of one of several locks |
//! | 8 | [`over/several`](LockRequest::several) | several permits at once |
//! | 8 | [`over/with_token`](LockRequest::with_token) | a guard that comes with its token |
//! | 8 | [`over/once`](LockManager::once_per) | work that is done once per period |
//! | 8 | [`over/fenced_cell`](FencedCell) | a resource in memory that checks fencing tokens |
//! | 8 | [`over/operators`](operators) | what operators and start-ups ask, and the types of it |
//! | 8 | [`over/operators/revoke`](operators::Revocation) | a lock that is taken away |
//! | 8 | [`over/operators/check`](operators::Check) | what each node says of itself |
//! | 8 | [`over/operators/inspect`](operators::Inspection) | a look from outside at a lock |
//! | 8 | [`over/operators/readiness`](operators::Readiness) | what is known without asking |
//! | 8 | `over/access` | the private things that this floor needs |
//! | 7 | [`manager`](LockManager) | the handle: `lock`, `with`, `adopt`, `leases`, `close` |
//! | 7 | [`manager/request`](LockRequest) | what a user asks for; awaited, it gives a guard |
//! | 7 | `manager/mark` | a lock that stays on the nodes after its work |
//! | 7 | [`manager/guard`](LockGuard) | the RAII value: releases on drop, or when asked to |
//! | 7 | [`manager/detached`](DetachedLock) | the record with which another process adopts a lock |
//! | 6 | `acquire` | a loop for each kind of request, over the rounds that all share |
//! | 5 | [`attempt/lease`](Lease) | what a holder sees of its lease and asks of it |
//! | 5 | `attempt` | the life of one token; what an input means is decided by `algorithm/attempt` |
//! | 4 | `turns/tickets` | turns inside a manager: one ticket for each key |
//! | 4 | `turns` | `ManagerState`, the root of a manager, with the `queues` of its tasks |
//! | 4 | `turns/readers` | readers that wait: those of one lock share an entry |
//! | 4 | `turns/remote_wait` | the wait between processes; `algorithm/wait` decides it |
//! | 3 | `cluster/shell` | how an attempt or a wait takes an input, and what follows |
//! | 3 | `cluster` | what all floors above share: settings, runtime, nodes, open attempts |
//! | 3 | `cluster/nodes` | the nodes, with the health and the server id of each |
//! | 3 | `cluster/attempts` | all attempts and waits that are not over, and the timekeeper |
//! | 3 | `cluster/shell/wakers` | the tasks that wait for a change of one state |
//! | 3 | `cluster/shell/late` | the mutex of the shell, for which no reply waits |
//! | 2 | [`telemetry`] | events and figures |
//! | 2 | `config` | the settings, checked |
//! | 2 | [`error`] | one error per operation |
//! | 1 | [`seam/backend`](backend) | the seam to a node; `call`: a call and its way back |
//! | 1 | `seam/given_up` | tasks of backends that wait until an answer is not awaited any more |
//! | 1 | [`seam/runtime`](runtime) | the seam to a runtime: clock, timer, tasks, randomness |
//! | 0 | [`resource`] | names, keys and tokens |
//! | 0 | `algorithm` | what is decided, without async, clock, randomness or I/O |
//!
//! What is in the larger ones:
//!
//! - `manager`: its `close` (`manager/close`) is an input of each open attempt and wait, and waits
//!   until the nodes that answer are clean.
//! - `acquire`: `plain`; `any` (one of several names, so permits too); `readers`, whose win gives
//!   way to a writer that waits. Each may wait for a holder, or go on only while the votes are
//!   split. `rounds` is what all share; dropping it ends an acquire that was dropped. `rounds/lost`
//!   is the error of a lost round, which waits for its undo, `rounds/split` is for split votes
//!   without waiting, and `back_off` the jittered pause where no node keeps a queue.
//! - `attempt`: each reply, push, due time and command is one input, handled at once. `calls` is
//!   what it sends, and the replies, `end` is the end of the lease, seen without waiting for it,
//!   `apply` tells what has changed, and `renewing` extends.
//! - `turns`: one ticket for each key, and for a set of names of which one is wanted. Readers take
//!   no ticket. A waiter at the gate watches the entry in front of its own, and the first one the
//!   lock. It waits until a push for that key, or a refresh, 0.8 s apart at most (670 ms ± 20 %).
//! - `cluster/nodes`: a node that is down is asked in each round, and skipped only as a gate. When
//!   it answers, the attempts that owe it a release hear so and send it again.
//! - `cluster/shell/late`: a reply that comes while the mutex is locked stands in a list.
//! - `seam/backend`: a push goes straight to the shell of its sender. The restart guard is an
//!   option of an acquire, which the node checks.
//! - `algorithm`: `attempt` (what a reply proves, also a late one, C4: `node`; what follows from
//!   it, and the end by the clock: `rules`; undo, release, a failed release again, and revoke:
//!   `transitions`; a push: `look`), `wait`, `quorum`, `lease` (validity), `fence`, `renewal`,
//!   `backoff` (random parts of a pause), `group`, `calendar` (weeks and months).
//!
//! To learn how a lock works, read `docs/how-it-works.md` of this crate, then `acquire.rs`,
//! `acquire/plain.rs`, `algorithm/attempt.rs` and `attempt.rs`. A table on that page says where
//! each event is handled. Codes such as C3 are the rules of `tests/RULES.md`, at the root of the
//! repository. The *gate* is the node that keeps the wait queue of a lock. A *pool* is a node, or a
//! manager with such a node, that does not keep the order of calls.
//!
//! # Invariants
//!
//! - A quorum is N/2 + 1 of the **configured** nodes, for every operation. Any two share a node.
//! - Validity counts from before the first byte of the request that set the ttl.
//! - Only a refusal means *held*. An error, a timeout and silence are *unknown*.
//! - Each attempt draws a token, so that no late release or extension of an earlier one touches its
//!   keys.
//! - A call settles by its reply, by the end of its connection, or by *not sent*. Up to the cleanup
//!   bound, a release waits for the call in front of it, or follows it on the same connection; then
//!   that call is given up.
//! - A failed attempt is released on every node that may have got something.
//! - A lease ends at `valid_until` by the clock, or earlier when the answers of the nodes prove
//!   that no quorum can have the keys. A revoke does not move its end.
//! - A lease that ended by time, by its hold limit or by `close`, or since a node has lost its
//!   vote, keeps its keys, while its guard lives, for the safety margin at most.
//!
//! # What a lock cannot do
//!
//! A holder that is paused between its last look at the clock and its write may write too late.
//! Only a resource that checks a [fencing token](LockRequest::fenced) refuses that write.
//!
//! # Features
//!
//! None is on by default. All can be combined.
//!
//! - `tokio`: `runtime::TokioRuntime`.
//! - `smol`: `runtime::SmolRuntime`.
//! - `serde`: `Serialize` and `Deserialize` for [`DetachedLock`] and [`FencingToken`].
//! - `tracing`, `metrics`: events and figures, see [`telemetry`].
//!
//! [Redlock]: https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "an origin: time passes by hand"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod algorithm;
mod attempt;
mod cluster;
mod config;
pub mod error;
mod manager;
mod over;
pub mod resource;
mod seam;
pub mod telemetry;
mod turns;

pub use algorithm::fence::FencingToken;
pub use attempt::lease::Lease;
pub use error::{
    AdoptError, Answer, BuildError, ExtendError, InvalidRequest, LeaseEnd, LockError, NodeAnswer,
    OnceError, QuorumFailure, ReleaseError, Stopped, WithError, closed, lost,
};
pub use manager::detached::{DetachedLock, InvalidRecord};
pub use manager::guard::LockGuard;
pub use manager::request::LockRequest;
pub use manager::{CloseReport, LockManager, LockManagerBuilder};
pub use over::fenced_cell::{FencedCell, StaleToken};
pub use over::once::Period;
pub use over::operators;
pub use over::several::Permits;
pub use over::with_token::FencedRequest;
pub use resource::{IntoResource, IntoResources, InvalidResource};
pub use seam::backend::{BackendError, BackendErrorKind, LockBackend, RestartGuard};
pub use seam::runtime::Runtime;
pub use seam::{backend, runtime};
