//! Waiting for a lock.

mod idle;
pub(crate) mod processes;
