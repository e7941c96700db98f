//! What only real servers, sockets, processes and clocks can show. `README.md` says what is where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::future_not_send, reason = "tests")]

mod abilities;
mod blocking;
mod calls;
mod cancelling;
mod client;
mod compose;
mod conformance;
mod credentials;
mod equivalence;
mod events;
#[path = "../support/every_future.rs"]
mod every_future;
mod examples;
mod failover;
mod far;
mod groups;
mod guard;
mod homes;
mod input;
mod inspect;
mod lacks;
mod leading;
mod matrix;
mod peers;
mod permissions;
mod permits;
mod pools;
mod readers;
mod readme;
mod refusals;
mod restarts;
mod revoking;
mod runtimes;
mod sentinel;
mod short_runtimes;
mod stuck;
mod tls;
mod together;
mod told;
mod versions;
mod watch;
mod wire;
mod working;
#[path = "program/workloads.rs"]
mod workloads;
