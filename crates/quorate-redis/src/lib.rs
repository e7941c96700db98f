//! Nodes for quorate over [redis-rs](redis): a connection to each that a [bb8] pool keeps
//! alive, and one more where somebody waits.
//!
//! ```
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), quorate_redis::ConnectError> {
//! let nodes = quorate_redis::connect([
//!     "redis://10.0.0.1:6379",
//!     "redis://10.0.0.2:6379",
//!     "redis://10.0.0.3:6379",
//! ])?;
//! # assert_eq!(nodes.len(), 3);
//!
//! // The same with other settings.
//! let nodes = quorate_redis::builder()
//!     .connect_timeout(Duration::from_millis(300))
//!     .connect(["redis://:secret@10.0.0.1:6379/2", "redis+unix:///run/redis.sock"])?;
//! # assert_eq!(nodes.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Connections
//!
//! [`connect`] does no I/O and refuses no node that is down: a node is dialled when a call needs
//! it. A node that cannot be reached costs a call nothing: the reason of the last attempt is told at
//! once until the next attempt is due, 50 ms later at first and one second later at most.
//!
//! All calls to a node share one connection, in order, without waiting for each other's replies;
//! [`Builder::connections`] makes more. Those that are there at the same time travel as one request
//! of up to 64 commands, one or two by themselves; with eight requests under way, the rest gathers.
//! If the connection breaks, or the node answers what makes no sense, a whole request is unknown.
//! What has not left when a connection turns out to have ended goes over a new one. For 20 ms after an
//! answer a connection is used without a look at it: what is sent while it ends, or just after, fails,
//! since redis-rs does not tell what it has written.
//!
//! There is no response timeout: a call is pending as long as the node may still carry it out, and
//! the manager has deadlines of its own. On TCP, a connection whose other end has gone without a
//! word is given up after about five seconds; a process that is merely stopped keeps it.
//!
//! What you have already can be used too: the settings of a [client](RedisBackend::new), for a
//! connection of its own; a [pool](RedisBackend::from_pool) or a
//! [connection](RedisBackend::from_connection), which are shared.
//!
//! # Watches
//!
//! A node [tells when a key may be free](quorate_core::Watch) over one more connection, made with the
//! first watch: RESP3, with client tracking on. So it takes a node of version 6 or later, whose user
//! may run `CLIENT TRACKING` and `GET`. Each extension of a lock wakes those who watch it, too.
//! Nodes made of a pool or a connection of yours do not watch.
//!
//! # Rights
//!
//! A node's user (ACL) needs the keys that are locked, `quorate:queue:*` and `quorate:place:*` for
//! waiting, `quorate:fence:*` for fencing tokens and `quorate:guard:*` for the restart guard; and:
//!
//! | commands | for |
//! |---|---|
//! | `SET`, `GET`, `DEL`, `PTTL`, `PEXPIRE`, `EVALSHA`, `EVAL` | locks, and fencing tokens |
//! | `CLIENT TRACKING` | waking who waits, who polls without it |
//! | `PSETEX`, `EXISTS` | the order of those who wait |
//! | `INFO` | the restart guard; to find two addresses of one server |
//! | `SELECT` | an address with a database |
//!
//! `CLIENT SETINFO` is sent on each new connection, `PING` now and then; both may be refused.
//!
//! # Runtimes
//!
//! redis-rs and bb8 need tokio. A [`RedisBackend`] brings it along: it can be built and polled
//! on any executor. It uses the tokio runtime that it was built in (or was given,
//! [`Builder::tokio`]) if that has threads of its own; else the one that it is polled in, and outside
//! of tokio one background thread. A connection lives in the runtime in which it was made, and is
//! replaced when that has ended.
//!
//! **A connection stands still with its runtime.** Where several current-thread runtimes share nodes
//! (as the workers of actix-web do), one that blocks or is not driven keeps the calls of all others
//! from their answers: give the nodes a multi-threaded runtime.
//!
//! # Features
//!
//! - `tls-rustls` or `tls-native-tls` for `rediss://`; one of the two: where both are on, redis-rs 1.8
//!   takes rustls and loads no certificates of the system, so that it trusts nobody. With rustls, the
//!   crypto provider is the one that the program has installed with `CryptoProvider::install_default`;
//!   if it has none by the time of the first connection, ring's is installed. For certificates of your
//!   own, give [`connect`] clients that were made by `redis::Client::build_with_tls`.
//!
//! Unix sockets need none.
//!
//! # Versions
//!
//! All crates of quorate share one version. An incompatible version of redis, bb8 or tokio,
//! which are in the public API, is a breaking release of all of them.
#![allow(clippy::disallowed_methods, reason = "it works with clocks; tests must not")]

mod address;
mod backend;
mod builder;
mod carrier;
mod dial;
mod ear;
mod error;
mod keeper;
mod line;
mod pool;
mod pulse;

pub use bb8;
pub use redis;

pub use self::address::IntoClient;
pub use self::backend::RedisBackend;
pub use self::builder::{Builder, builder, connect};
pub use self::error::ConnectError;
