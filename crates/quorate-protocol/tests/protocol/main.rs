//! The protocol on connections that are not there, in virtual time.

#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "the clock is paused")]

mod batcher;
mod calls;
mod ends;
mod fake;
mod operations;
mod servers;
mod together;
mod watches;
