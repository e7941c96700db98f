//! Waiting for a lock.

mod cancelled;
mod commands;
mod contest;
mod idle;
pub(crate) mod processes;
