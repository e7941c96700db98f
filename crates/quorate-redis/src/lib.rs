//! Nodes for quorate over [redis-rs](redis), on connections of their own or over your [bb8] pool.
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
//! This crate says how to connect and authenticate, and reads replies and errors. All else is in
//! [`quorate_protocol`]: commands, scripts, batching, watching, and connecting again.
//!
//! # Connections
//!
//! [`connect`] does no I/O and refuses no node that is down: the first call connects. A node has
//! one connection for commands and, from the first wait on, one for watches. Calls that are there
//! at the same time travel as one pipeline of up to 64 commands. After a failed connect the node
//! backs off for 25 ms to 1 s, and calls fail at once with the reason.
//!
//! A host name is looked up at each connect, on a thread that no runtime waits for at its end. All
//! of its addresses are tried: the next one when one has failed, or 100 ms later. A name that
//! stands for several servers is no node.
//!
//! A call is pending as long as the node may still execute it. The manager has deadlines of its
//! own. A connection is *over* when its oldest command has had no reply for 10 s and nothing else
//! came ([`Builder::reply_limit`]). Then the node connects again. On TCP, a connection whose other
//! end does not acknowledge is given up after about five seconds.
//!
//! If a connection ends, the calls in flight are unknown: they fail, and nothing is sent again.
//! redis-rs drops the replies of a pipeline that arrived before the end. A reply that makes no
//! sense for its command ends the connection too.
//!
//! A connection for watches is closed after a minute without a watch.
//!
//! # Pools
//!
//! [`from_pool`] takes a bb8 pool that you have. Prefer [`connect`]: calls over a pool arrive in no
//! order, so each release waits until its acquire has settled, there is no batching, and waiters
//! poll instead of being woken. A call whose answer is not awaited any more keeps its connection
//! for a second. A pool lives in one runtime.
//!
//! # Permissions
//!
//! A node's user (ACL) needs the keys that are locked, those with `:quorate:` behind them for
//! waiting, `quorate:fence:*` for fencing tokens and `quorate:guard:*` for the restart guard; and:
//!
//! | commands | for |
//! |---|---|
//! | `SET`, `GET`, `DEL`, `PTTL`, `PEXPIRE`, `EVAL` | locks, and fencing tokens |
//! | `SCRIPT LOAD`, `EVALSHA`, `MGET` | the same, with less to send |
//! | `DELIFEQ` or `DELEX`, on servers that have it | a cheaper release |
//! | `CLIENT TRACKING`, `GET` | waking waiters, which poll without it |
//! | `CLIENT CACHING` | the same, with less work for the node |
//! | `CLIENT SETNAME` | the name `quorate` in `CLIENT LIST` |
//! | `EXISTS`, `TIME`, `ZADD`, `ZRANGE`, `ZRANGEBYSCORE` | the wait queue, and readers |
//! | `ZRANK`, `ZREM`, `ZSCORE` | the same |
//! | `INFO` | the restart guard; to find two addresses of one server; what `check` reports |
//! | `SELECT` | an address with a database |
//! | `ROLE` | the primary of a Sentinel group ([`sentinel`]) |
//!
//! The handshake of a connection loads the scripts and tries these commands on a key of its own,
//! `quorate:probe:…`, which is gone after it, or a second later where the connection ends in
//! between. A user who may not access that key loses nothing. redis-rs also sends `CLIENT SETINFO`,
//! which may be refused. Without `EVAL`, `GET`, `DEL`, `PTTL` or `PEXPIRE`, and without a
//! compare-and-delete, the first call fails with the permission that is missing, and nothing is
//! set. With a compare-and-delete alone, plain locks work, and they cannot be extended.
//!
//! # Runtimes
//!
//! redis-rs and bb8 need tokio. A node brings it along: it can be made and polled on any executor.
//! It uses the tokio runtime that it was made in (or was given, [`Builder::tokio`]) if that has
//! threads of its own. Otherwise it uses the one that it is polled in, and outside of tokio one
//! background thread. If that runtime ends, calls in flight fail, and the next call connects in
//! another one.
//!
//! **A connection stands still with its runtime.** Where several current-thread runtimes share
//! nodes (as the workers of actix-web do), one that blocks or is not driven delays the calls of all
//! others: give the nodes a multi-threaded runtime, or a thread of their own
//! ([`Builder::own_thread`]). So do nodes that outlive the runtimes in which they are used, such as
//! a `static` in tests.
//!
//! # Features
//!
//! - `tls-rustls` or `tls-native-tls` for `rediss://`; one of the two: where both are on, redis-rs
//!   1.8 takes rustls and loads no certificates of the system, so it trusts no node. With rustls,
//!   the crypto provider is the one that the program has installed with
//!   `CryptoProvider::install_default`; if it has none by the time of the first connection, ring's
//!   is installed. `Builder::tls` takes an authority and a client certificate of your own.
//!
//! Unix sockets need none.
//!
//! # Versions
//!
//! All crates of quorate share one version. An incompatible version of redis, bb8 or tokio,
//! which are in the public API, is a breaking release of all of them.
#![allow(clippy::disallowed_methods, reason = "it works with clocks; tests must not")]

mod address;
mod builder;
mod connection;
mod dial;
mod error;
mod pool;
mod sentinel;
mod server;

pub use bb8;
pub use quorate_protocol::{ConnectError, Credentials};
pub use redis;

pub use self::builder::{Builder, PooledNode, RedisNode, builder, connect, from_pool, sentinel};
pub use self::connection::{Packed, RedisConnection};
pub use self::dial::{IntoDial, RedisDial};
