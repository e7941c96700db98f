//! Distributed locks over a quorum of Redis or Valkey nodes (Redlock), for async Rust.
//!
//! Pick a runtime and a client by feature: `tokio` or `smol`, and `redis`, `fred` or `memory`.
//! Everything else is the same code, but for some [addresses](#addresses):
//!
//! ```no_run
//! # #[cfg(all(feature = "redis", feature = "tokio"))]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use quorate::LockManager;
//!
//! let nodes = quorate::redis::connect([
//!     "redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3",
//! ])?;
//! let locks = LockManager::builder(nodes).build()?;
//!
//! let guard = locks.lock("orders:42").await?;
//! // … the work, while guard.is_valid() …
//! guard.release().await?; // an error if the lock had been lost before
//! # Ok(())
//! # }
//! ```
//!
//! The [`guide`] explains guarantees and limits, errors, fencing, nodes that restart, waiting, readers, permits, jobs that
//! run once, leading, operations, the tests, and how it works.
//!
//! # Addresses
//!
//! `redis::connect` and `fred::connect` make nodes of addresses, and `builder()` of each makes them
//! with other settings. They take the same addresses, but for these differences:
//!
//! | address | redis | fred |
//! |---|---|---|
//! | `redis://[[user]:password@]host[:port]`, `valkey://…` | yes | yes |
//! | … with `/database` | any number | 0 to 255 |
//! | … with `?protocol=resp3` | yes | no, see below |
//! | … of the host `0.0.0.0` or `[::]` | no | yes |
//! | `rediss://…`, `valkeys://…` | with `tls-rustls` or `tls-native-tls` | likewise |
//! | … with `#insecure`: certificates are not checked | yes | no, see below |
//! | `unix:///path`, `redis+unix://…`, `valkey+unix://…` | yes; `%20` is a space | with `unix-sockets`; a `%` is a `%` |
//! | … with a login | `unix:///path?user=…&pass=…` | `unix://[user]:password@/path` |
//! | … with a database | `unix:///path?db=…` | no, see below |
//! | `redis+sentinel://[[user]:password@]host[:port],…/GROUP`, `rediss+sentinel://…`: the primary of a Sentinel group | yes | no |
//!
//! Where fred says no, its own `Config` can say it, except a Sentinel group: see `quorate_fred`. Both refuse the address
//! of a cluster, an unknown scheme, a parameter that would be ignored, a space before or after the address, several
//! addresses in one, and TLS without a feature for it.
//!
//! A node makes connections of its own: one, and a second one while this process waits for a lock whose queue the node
//! keeps. `builder()` has a time limit for connecting (`connect_timeout`) and for a connection without replies
//! (`reply_limit`), and puts connections on a thread that outlives the runtimes of tests or of actix-web
//! (`own_thread`). `credentials` asks for the login of each new connection. Nodes over a bb8 pool are `redis::pooled` and
//! `redis::from_pool`. `tls` of the builder of redis takes an authority and a client certificate of your own.
//!
//! # Crates
//!
//! This crate only gathers the others. The algorithm, the errors and the guarantees are in
//! [`quorate_core`], which a library that embeds locking can depend on alone.
//!
//! # Features
//!
//! None is on by default. All can be combined, except that at most one of the two TLS features may be on.
//!
//! - `tokio`: `runtime::TokioRuntime`.
//! - `smol`: `runtime::SmolRuntime`.
//! - `redis`: nodes through redis-rs, each on a connection of its own or on a bb8 pool.
//! - `fred`: nodes through fred.
//! - `memory`: in-memory nodes, a virtual clock and conformance suites, for tests.
//! - `tls-rustls` or `tls-native-tls`: `rediss://` addresses, for the clients that are chosen. With both,
//!   redis-rs 1.8 loads no certificates of the system and trusts no node.
//! - `unix-sockets`: unix sockets with fred; redis-rs has them anyway.
//! - `tracing`: events of the life of a lock and of nodes that fail, see [`telemetry`].
//! - `metrics`: waits, holds, votes and latency per node, see [`telemetry`].
//! - `serde`: `Serialize` and `Deserialize` for [`DetachedLock`] and [`FencingToken`].
//!
//! # Versions
//!
//! All crates of quorate share one version. An incompatible version of redis, bb8, fred or tokio,
//! which are in the public API, is a breaking release of all of them.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;

pub use quorate_core::*;

#[cfg(feature = "fred")]
pub use quorate_fred as fred;
#[cfg(feature = "memory")]
pub use quorate_memory as memory;
#[cfg(feature = "redis")]
pub use quorate_redis as redis;

/// Compiles the examples of the README.
#[cfg(all(doctest, feature = "redis", feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
