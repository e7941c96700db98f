//! Both clients on real nodes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod client;
mod conformance;
mod contention;
mod examples;
mod faults;
mod fencing;
mod input;
mod inspect;
mod wire;
