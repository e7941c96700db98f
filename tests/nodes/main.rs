//! Both clients on real nodes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod client;
mod closing;
mod conformance;
mod contention;
mod examples;
mod faults;
mod holding;
mod input;
mod wire;
