//! The guide: what a lock guarantees, what it cannot, and how to run the nodes.
//!
//! - [`guarantees`]: each guarantee with the tests that show it, all limits, and what operators need to know.
//! - [`operations`]: who holds a lock, how to free it, and a check of the nodes at start-up.
//! - [`fencing`]: numbers with which a resource refuses a holder whose lock has ended.
//! - [`restarts`]: nodes that restart or lose their data.
//! - [`waiting`]: what a request does while another client holds the lock.
//! - [`jobs`]: work that one of several machines does once, or once per period.
//! - [`leading`]: one process leads, and another one takes over.
//! - [`permits`]: at most N holders at a time, and one of several names.
//! - [`command`]: the command `quorate`, for cron jobs, deploy scripts and migrations.
//! - [`how_it_works`]: for readers of the code, where each reply, drop and timeout is handled.
//! - [`testing`]: how to test code that uses quorate, and how quorate is tested.
//! - [`performance`]: latency and throughput beside other clients.

#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

#[doc = include_str!("../docs/restarts.md")]
pub mod restarts {}

#[doc = include_str!("../docs/waiting.md")]
pub mod waiting {}

#[doc = include_str!("../docs/jobs.md")]
pub mod jobs {}

#[doc = include_str!("../docs/leading.md")]
pub mod leading {}

#[doc = include_str!("../docs/permits.md")]
pub mod permits {}

#[doc = include_str!("../docs/command.md")]
pub mod command {}

#[doc = include_str!("../docs/how-it-works.md")]
pub mod how_it_works {}

#[cfg_attr(all(feature = "memory", feature = "redis", feature = "tokio"), doc = include_str!("../docs/testing.md"))]
#[cfg_attr(
    not(all(feature = "memory", feature = "redis", feature = "tokio")),
    doc = "Needs the features `memory`, `redis` and `tokio`."
)]
pub mod testing {}

#[doc = include_str!("../docs/performance.md")]
pub mod performance {}
