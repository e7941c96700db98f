//! The pure half: what a lock *is*, without a clock, randomness, a task or a socket.
//!
//! The present is an argument, random bits are an argument, a decision is a return value. So the
//! safety argument can be read, and tested over every order of votes, without any async.
//!
//! The model checker and the tests of the machines compile these sources alone, as `quorate-pure`.
//! What public types need is exported where they are.

#![allow(unreachable_pub, reason = "it is reached where these sources are compiled alone")]

pub mod attempt;
pub(crate) mod backoff;
pub(crate) mod calendar;
pub mod fence;
pub mod gate;
pub mod group;
pub mod lease;
pub(crate) mod node_set;
pub mod quorum;
pub mod renewal;
pub mod wait;
