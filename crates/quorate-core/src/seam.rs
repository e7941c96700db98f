//! The seams: to a node, and to an async runtime.

pub mod backend;
pub(crate) mod given_up;
#[allow(clippy::disallowed_methods, reason = "the one place that reads clocks (T4)")]
pub mod runtime;
