//! The turns: between the tasks of a manager, and between processes.

pub(crate) mod readers;
pub(crate) mod remote_wait;
pub(crate) mod tickets;
