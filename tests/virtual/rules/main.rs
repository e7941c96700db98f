//! The rules of correctness, each as a test named for the property, in virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod attempts;
mod fencing;
mod helpers;
mod lead;
mod leases;
mod observing;
mod once;
mod permits;
mod readers;
mod restarts;
mod revoking;
mod rule_table;
mod seams;
mod waiting;

use helpers::{backends, every_future, telling, world};
