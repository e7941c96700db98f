//! The rules of correctness, each as a test named for the property, in virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod async_methods;
mod backends;
mod cancel_safety;
mod changing;
mod cleanup;
mod dashboards;
mod early_warning;
#[path = "../../support/every_future.rs"]
mod every_future;
mod falling_back;
mod fencing;
mod holding;
mod inspect;
mod keeping;
mod labels;
mod lead;
mod line;
mod moments;
mod observe;
mod odd;
mod once;
mod outside;
mod own_locks;
mod permits;
mod quorum;
mod readers;
mod readiness;
mod reasons;
mod renewals;
mod restarts;
mod revoking;
mod rule_table;
mod settings;
mod stops;
mod telling;
mod time;
mod trying;
mod waiters;
mod waiting;
mod world;
