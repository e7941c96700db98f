//! Waiting for a lock.

mod idle;
pub(crate) mod processes;
mod contest;
mod cancelled;
mod commands;
