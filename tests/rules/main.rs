//! The rules of correctness, each as a test named for the property, in virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cleanup;
mod fencing;
mod holding;
mod input;
mod inspect;
mod keeping;
mod polling;
mod quorum;
mod time;
mod waiting;
mod world;
