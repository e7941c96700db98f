//! The life of an attempt: time, votes, errors, and the keys left behind.

mod cleanup;
mod connecting;
mod quorum;
mod reasons;
mod settings;
mod time;
