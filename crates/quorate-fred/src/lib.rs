//! Lock nodes over the [fred] client.
//!
//! [`connect`] makes one [`FredNode`] per address, without any I/O. The first call to a node
//! connects, and a node that is down costs nothing but its own vote.
//!
//! ```
//! use std::time::Duration;
//!
//! use quorate_core::backend::LockBackend;
//!
//! # fn main() -> Result<(), quorate_fred::ConnectError> {
//! let nodes = quorate_fred::connect([
//!     "redis://10.0.0.1:6379",
//!     "redis://locker:secret@10.0.0.2:6379/1",
//!     "redis://10.0.0.3",
//! ])?;
//! assert_eq!(nodes[1].name(), "10.0.0.2:6379/1");
//!
//! // The same with other settings.
//! let nodes = quorate_fred::builder()
//!     .connect_timeout(Duration::from_millis(300))
//!     .connect(["redis://:secret@10.0.0.1:6379/2"])?;
//! # assert_eq!(nodes.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # What is different from plain fred
//!
//! A node is a [`quorate_protocol::RedisNode`] over one fred client for commands and, from the
//! first wait on, one for watches. Its clients are its own, and each has one connection. So, unlike
//! fred by default:
//!
//! - *No reconnect.* When a connection has ended, the next call makes a new client, after a pause
//!   of 25 ms to 1 s if connecting failed. Calls during that pause fail with the reason.
//! - *Once.* A command whose connection ended in flight is not sent again. (A `SET NX` that was
//!   sent twice would be refused by its own first copy.) Its result is unknown.
//! - *No timeout of a command.* A command that was sent is awaited until its connection ends; the
//!   deadlines are those of the lock manager. [`Builder::connect_timeout`] limits connecting only.
//!   A connection is over when its oldest command has had no reply for 10 s and nothing else came
//!   ([`Builder::reply_limit`]). TCP notices a peer that vanished after about ten seconds.
//! - *Each address of a name.* The next one is tried when one has failed, or 100 ms later. A name
//!   is looked up at each connect, on a thread that no runtime waits for at its end. A name that
//!   stands for several servers is no node.
//! - *No plaintext by mistake.* `rediss://` without a TLS feature is an error, not a warning.
//!
//! To use the settings of a client that you have, give [`Builder::build`] its configuration. The
//! connection of that client is not shared: it would reconnect, and send commands again.
//!
//! # Limits of fred
//!
//! - fred drops the push of `FLUSHALL`. So each watch ends after two seconds, and the key is read
//!   again.
//! - A node is one server. Only over redis-rs is the primary of a Sentinel group a node.
//! - After the reply `CLUSTERDOWN`, fred ends the connection.
//! - fred writes each script call by itself, so a pipeline of them is several writes.
//!
//! # Permissions
//!
//! A user (ACL) needs the keys that are locked and `KEY:quorate:*` for the wait queue,
//! `quorate:fence:*` for fencing tokens and `quorate:guard:*` for the restart guard; and:
//!
//! | commands | for |
//! |---|---|
//! | `SET`, `EVAL`, `GET`, `DEL`, `PTTL`, `PEXPIRE` | locks |
//! | `SCRIPT LOAD`, `EVALSHA`, `MGET` | the same, with less to send |
//! | `DELIFEQ` (Valkey 9), `DELEX` (Redis 8.4) | releases without a script |
//! | `CLIENT TRACKING` | notifications to waiters, which poll without it |
//! | `CLIENT CACHING` | the same, with less work for the node |
//! | `CLIENT SETNAME` | the name `quorate` in `CLIENT LIST` |
//! | `EXISTS`, `TIME`, `ZADD`, `ZRANGE`, `ZRANGEBYSCORE` | the wait queue, and readers |
//! | `ZRANK`, `ZREM`, `ZSCORE` | the same |
//! | `INFO` | the restart guard, finding two addresses of one server, and what `check` reports |
//! | `SELECT` | an address with a database |
//!
//! The handshake of a connection tries these commands on a key of its own, `quorate:probe:…`. It
//! is gone after it, or a second later where the connection ends in between. A user who may not
//! access that key loses nothing. Without `EVAL`, `GET`, `DEL`, `PTTL` or `PEXPIRE`, and without a
//! compare-and-delete, the first call fails with the permission that is missing. fred also sends
//! `CLIENT ID` and `INFO` on each new connection; both may be refused.
//!
//! # Runtimes
//!
//! fred runs on tokio; a node can be used on any executor. Its connections live in the runtime in
//! which it was made, or in that of [`Builder::tokio`], if that has threads of its own. Otherwise
//! they live in the runtime of the first call, and outside of tokio in a background thread of
//! quorate. When the runtime ends, so do the calls on its connections, and the next call opens
//! another. A runtime that you build needs `enable_all`.
//!
//! **A connection stands still with its runtime.** Where several current-thread runtimes share
//! nodes (as the workers of actix-web do), one that blocks or is not driven delays the calls of all
//! others: give the nodes a multi-threaded runtime, or a thread of their own
//! ([`Builder::own_thread`]). So do nodes that outlive the runtimes in which they are used, such as
//! a `static` in tests.
//!
//! # Features
//!
//! - `tls-native-tls` or `tls-rustls` for `rediss://` with the certificates that the system trusts.
//!   For others, give [`Builder::build`] a [`Config`](fred::types::config::Config) with a `tls`
//!   of your own. Where other crates bring rustls a second crypto provider, install one with
//!   `CryptoProvider::install_default` first: rustls panics if it has to choose.
//! - `unix-sockets` for `redis+unix://`.
//!
//! # Versions
//!
//! All crates of quorate share one version. An incompatible version of fred or tokio,
//! which are in the public API, is a breaking release of all of them.
//!
//! # Modules
//!
//! | floor | modules | what it is |
//! |---|---|---|
//! | 3 | `builder` | nodes from addresses |
//! | 2 | `dial` | connecting to one node |
//! | 1 | `connection` | one fred client, whose one connection is never replaced |
//! | 0 | `address` `command` `error` | in the form of fred, and out of it |
#![allow(clippy::disallowed_methods, reason = "it works with clocks; tests must not")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod builder;
mod command;
mod connection;
mod dial;
mod error;

pub use fred;
pub use quorate_protocol::{ConnectError, Credentials};

pub use builder::{Builder, FredNode, builder, connect};
pub use connection::FredConnection;
pub use dial::FredDial;
