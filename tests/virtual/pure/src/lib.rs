//! The pure half of the core, compiled alone.
//!
//! `algorithm` may use the standard library and derived errors, and nothing of the crate around it: no
//! backend, no runtime, no client. That this package compiles shows it. Clippy's `disallowed_methods`
//! keeps clocks out. The model checker explores this build, because it is compiled with optimizations.

#![allow(dead_code, reason = "the rest of the core uses it")]
#![allow(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "in the core they are private"
)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "its unit tests run in the core"))]

/// The folder of the core's sources.
#[path = "../../../../crates/quorate-core/src"]
pub mod core_source {
    pub mod algorithm;
}
