//! tmp
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "an origin: time passes by hand"))]
#[doc(hidden)]
#[macro_use]
pub mod planted;

pub mod algorithm;
mod attempt;
pub mod backend;
mod cluster;
mod config;
pub mod error;
mod nodes;
pub mod resource;
#[allow(clippy::disallowed_methods, reason = "the one place that reads clocks (T4)")]
pub mod runtime;
mod tasks;
pub mod telemetry;
mod wait;

pub use algorithm::fence::{FenceHint, FencingToken};
pub use algorithm::lease::{Drift, InvalidTtl, Ttl};
pub use algorithm::quorum::Vote;
pub use async_trait::async_trait;
pub use backend::{BackendError, BackendErrorKind, Claim, LockBackend};
pub use resource::{IntoResource, IntoResources, InvalidResource, Key, Resource, Resources, Token};
pub use runtime::{EntropyError, Runtime};
