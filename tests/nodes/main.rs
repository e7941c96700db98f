//! Both clients on real nodes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cancelling;
mod client;
mod closing;
mod compose;
mod conformance;
mod contention;
#[path = "../every_future.rs"]
mod every_future;
mod examples;
mod faults;
mod fencing;
mod holding;
mod input;
mod inspect;
mod leaving;
mod noise;
mod queue;
mod readme;
mod restarts;
mod tls;
mod together;
mod watch;
mod wire;
