//! Waiting for a lock.

mod cancelled;
mod commands;
pub(crate) mod contest;
mod idle;
pub(crate) mod processes;
