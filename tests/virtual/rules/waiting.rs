//! Waiting for a lock.

mod cancelled;
mod commands;
pub(crate) mod contest;
mod falling_back;
mod idle;
mod local_queue;
mod no_wait;
pub(crate) mod processes;
mod queue_limit;
