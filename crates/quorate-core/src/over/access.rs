//! The few private things that this floor needs beside what `lib.rs` exports.
//!
//! Beside them it asks a manager, a request or a lease for its `cluster`, and a manager for a `request` on names that may
//! be invalid.

pub(super) use crate::algorithm::backoff::scale;
pub(super) use crate::algorithm::lease::{Ttl, saturating_add};
pub(super) use crate::algorithm::quorum::NodeId;
pub(super) use crate::cluster::Cluster;
pub(super) use crate::cluster::nodes::Silence;
pub(super) use crate::manager::request::release;
#[cfg(feature = "tokio")]
pub(super) use crate::seam::runtime::is_in_task;
pub(super) use crate::telemetry;
