//! What a quorate lock is on Redis or Valkey, for any client.
//!
//! A resource's key holds the token as a plain string with an expiry, set by
//! `SET key token NX PX ttl`. All else is a compare-and-delete of the server, or a script that
//! compares before it writes. So quorate excludes, and is excluded by, every other Redlock library on
//! the same nodes. Other keys are stored only for fencing tokens, for the restart guard, and while a
//! process waits.
//!
//! A client brings a [`Dial`] and a [`Connection`]. A [`Node`] over it is a backend of `quorate-core`.
//!
//! | floor | modules | what it is |
//! |---|---|---|
//! | 4 | `node` | the backend: the operations over one transport |
//! | 3 | `batcher` | one task per node, which sends what is queued as pipelines |
//! | | `tracking` | the watched keys of one connection |
//! | 2 | `operation` | one file per operation: its commands, and what their replies mean |
//! | 1 | `connection` | what a client brings |
//! | | `features` | what a server has and allows, asked when a connection was made |
//! | | `transport` | one command to one node, over the batcher or a pool |
//! | | `script` | a Lua script and its SHA-1, `EVALSHA` with `EVAL` behind it |
//! | 0 | `error_reply` `command` `reply` | what an error reply means; plain values |
//! | | `address` | what every client takes as an address, shown without secrets |
//!
//! A module imports only from floors below its own, or from modules above it on its own floor.
#![allow(clippy::disallowed_methods, reason = "it works with clocks; tests must not")]

mod address;
mod batcher;
mod command;
mod connection;
mod error_reply;
mod features;
mod node;
mod operation;
mod reply;
mod script;
mod tracking;
mod transport;

pub use address::{ConnectError, Scheme, without_secrets};
pub use batcher::Batcher;
pub use command::Command;
pub use connection::{Connection, Dial};
pub use error_reply::error_of_reply;
pub use features::{CompareAndDelete, Features, Purpose};
pub use node::Node;
pub use reply::{Failure, Push, Reply};
pub use transport::{Admission, Transport};
