//! What a quorate lock is on Redis or Valkey, for any client.
//!
//! A resource's key holds the token as a plain string with an expiry, set by
//! `SET key token NX PX ttl`. All else is a compare-and-delete of the server, or a script that
//! compares before it writes. So quorate excludes, and is excluded by, every other Redlock library
//! on the same nodes. Other keys are stored only for fencing tokens, for the restart guard, and
//! while a process waits.
//!
//! A client brings a [`Dial`] and a [`Connection`]. A [`RedisNode`] over them is a backend of
//! `quorate-core`.
//!
//! | floor | modules | what it is |
//! |---|---|---|
//! | 6 | `node` | the backend, over whatever carries its calls |
//! | 5 | `connections` | the one or two connections of a node |
//! | 4 | `batcher` | one task a connection: sends what is queued, answers the calls |
//! | 3 | `handshake` | the first pipeline of a connection |
//! | | `exchange` | one operation on one connection, for pools |
//! | 2 | `operation` | the operations as values: commands, and what their replies mean |
//! | 1 | `connection` | what a client brings |
//! | | `host` | the addresses of a host, of which the first that works is connected to |
//! | | `carrier` | what carries calls to one node |
//! | | `features` | what is known of a server |
//! | | `group` | what a node says of the nodes that all clients have |
//! | | `script` | a Lua script and its SHA-1 |
//! | | `tracking` | the watched keys of one connection |
//! | 0 | `error_reply` `command` `value` | what an error reply means; plain values |
//! | | `credentials` | logins that are asked for at each new connection, or after a refusal |
//! | | `address` | what every client takes as an address, shown without secrets |
//!
//! A module imports only from floors below its own, or from modules above it on its own floor.
#![allow(clippy::disallowed_methods, reason = "it works with clocks; tests must not")]

mod address;
mod batcher;
mod carrier;
mod command;
mod connection;
mod connections;
mod credentials;
mod error_reply;
mod exchange;
mod features;
mod group;
mod handshake;
mod host;
mod node;
mod operation;
mod script;
mod tracking;
mod value;

pub use address::{ConnectError, Scheme, without_secrets};
pub use batcher::{Limits, Settings};
pub use carrier::Carrier;
pub use command::{Command, Parts, USUAL_SIZE, parts};
pub use connection::{Connection, Dial, LEAST_LIFE, SILENT, within};
pub use credentials::{CredentialSource, Credentials, Source};
pub use error_reply::{HUNG_UP, error_of_reply, error_of_tls, lacks_resp3};
pub use exchange::exchange;
pub use features::Features;
pub use group::NodeGroup;
pub use handshake::handshake;
pub use host::Host;
pub use node::RedisNode;
pub use value::{Push, Value};
