//! The pure state machine of one attempt: tables to be read, and random orders of events.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]
#![expect(clippy::disallowed_methods, reason = "an origin: time passes by hand")]

mod any_order;
mod golden;
mod player;
