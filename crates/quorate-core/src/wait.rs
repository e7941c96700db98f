//! The ways of waiting.

pub(crate) mod local_queue;
pub(crate) mod place;
