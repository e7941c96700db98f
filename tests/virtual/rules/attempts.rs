//! The life of an attempt: time, votes, errors, and what is left behind.

mod cleanup;
mod quorum;
mod reasons;
mod settings;
mod time;
