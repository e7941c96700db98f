//! Both clients on real nodes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod abilities;
mod cancelling;
mod client;
mod closing;
mod compose;
mod conformance;
mod contention;
#[path = "../every_future.rs"]
mod every_future;
mod examples;
mod failover;
mod faults;
mod fencing;
mod holding;
mod input;
mod inspect;
mod leaving;
mod logins;
mod noise;
mod permanent;
mod questions;
mod queue;
mod readme;
mod reasons;
mod restarts;
mod short_runtimes;
mod stuck;
mod tls;
mod together;
mod turned_away;
mod watch;
mod wire;
