//! The pure state machine of one attempt, by tables to be read.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]
#![expect(clippy::disallowed_methods, reason = "an origin: time passes by hand")]

mod golden;
mod player;
