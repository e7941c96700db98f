//! The few private things that this floor needs beside what `lib.rs` exports.
//!
//! Beside them it calls private methods of managers, requests and leases, such as `cluster`,
//! `request` and `run_under`.

pub(super) use crate::algorithm::backoff::scale;
pub(super) use crate::algorithm::calendar::{month_of, week_of};
pub(super) use crate::algorithm::lease::{Ttl, saturating_add};
pub(super) use crate::algorithm::quorum::NodeId;
pub(super) use crate::manager::request::{release, run_under};
#[cfg(feature = "tokio")]
pub(super) use crate::seam::runtime::is_in_task;
pub(super) use crate::telemetry;
