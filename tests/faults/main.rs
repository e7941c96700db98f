//! Both clients on real nodes under faults: every subset of nodes, nodes that wake, nodes that crash.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../nodes/client.rs"]
mod client;
mod crashes;
mod fault;
mod impostor;
mod matrix;
mod table;
mod wakes;
