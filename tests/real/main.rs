//! What only real servers, sockets, processes and clocks can show. `README.md` says what is where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::future_not_send, reason = "tests")]

mod abilities;
mod blocking;
mod calls;
mod cancelling;
mod checks;
mod client;
mod closing;
mod compose;
mod conformance;
mod credentials;
mod equivalence;
mod events;
#[path = "../support/every_future.rs"]
mod every_future;
mod examples;
mod failover;
mod faults;
mod fencing;
mod guard;
mod harness;
mod holding;
mod homes;
mod input;
mod inspect;
mod jobs;
mod labels;
mod leading;
mod matrix;
mod peers;
mod permissions;
mod permits;
mod pools;
mod queue;
mod readers;
mod readme;
mod reasons;
mod refusals;
mod restarts;
mod revoking;
mod runtimes;
mod sentinel;
mod short_runtimes;
mod stuck;
mod tls;
mod versions;
mod wakes;
mod watch;
mod wire;
