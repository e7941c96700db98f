//! The pure half: what a lock *is*, without a clock, randomness, a task or a socket.
//!
//! The present is an argument, random bits are an argument, a decision is a return value. So the
//! safety argument can be read, and tested over every order of votes, without any async.
//!
//! For authors who drive these machines themselves: an item that is here, and not at the top of the crate as
//! well, may change in a minor version.

#[doc(hidden)]
pub mod attempt;
pub(crate) mod backoff;
pub(crate) mod calendar;
pub mod fence;
#[doc(hidden)]
pub mod gate;
pub mod lease;
pub(crate) mod node_set;
pub mod quorum;
pub mod renewal;
#[doc(hidden)]
pub mod wait;
