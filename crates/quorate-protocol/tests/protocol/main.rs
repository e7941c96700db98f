//! The protocol on connections that are not there, in virtual time.

#[cfg(test)]
mod batcher;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod operations;
