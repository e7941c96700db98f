//! The protocol on connections that are not there, in virtual time.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "the clock is paused"))]

#[cfg(test)]
mod batcher;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod operations;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod watches;
