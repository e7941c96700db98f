//! What only real servers, sockets, processes and clocks can show. `README.md` says what is where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::future_not_send, reason = "tests")]

mod abilities;
mod blocking;
mod calls;
mod client;
mod compose;
mod conformance;
mod credentials;
mod equivalence;
mod events;
mod examples;
mod failover;
mod far;
mod groups;
mod guard;
mod homes;
mod input;
mod lacks;
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
mod tls;
mod together;
mod told;
mod versions;
mod watch;
mod wire;
mod working;
#[path = "program/workloads.rs"]
mod workloads;
