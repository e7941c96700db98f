//! Distributed locks over a quorum of Redis or Valkey nodes (Redlock), for async Rust.
//!
//! # What a lock does
//!
//! A lock is acquired when more than half of the nodes have granted it; the others may be dead,
//! hung or slow. It has a ttl, and is renewed while the work goes on. If it cannot be renewed, the
//! work is stopped before another process can have the lock.
//!
//! ```no_run
//! # #[cfg(all(feature = "redis", feature = "tokio"))]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use quorate::LockManager;
//!
//! let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
//! let locks = LockManager::builder(quorate::redis::connect(nodes)?).build()?;
//!
//! // Waits for the lock, renews it while the body runs, and releases it.
//! let shipped = locks.with("orders:42", async |_lease| ship(42).await).await?;
//!
//! // The same with a guard: a drop releases, too.
//! let guard = locks.lock("orders:42").timeout(Duration::from_secs(5)).auto_renew().await?;
//! tokio::select! {
//!     reason = guard.lost() => println!("stop now: {reason}"),
//!     _ = ship(42) => {}
//! }
//! guard.release().await?; // an error if it is not proved that the lock was held until now
//! # async fn ship(order: u32) -> u32 { order }
//! # drop(shipped);
//! # Ok(())
//! # }
//! ```
//!
//! | to | write |
//! |---|---|
//! | hold a lock, waiting for it | [`LockManager::lock`], [`LockManager::with`] |
//! | skip the work if another process is at it | [`LockManager::try_lock`] |
//! | do work once per period, on one of several machines | [`LockManager::once_per`] |
//! | lead whenever this process can | [`LockManager::lead`] |
//! | read together, write alone | [`LockManager::read`] |
//! | let at most N in | [`LockManager::permit`], [`LockRequest::several`] |
//! | take one of several names | [`LockManager::lock_any`] |
//! | refuse late writes of a former holder | [`LockRequest::fenced`] |
//! | lock without async | [`LockRequest::lock_blocking`] |
//! | see who holds a lock; take it away | [`LockManager::inspect`], [`LockManager::revoke`] |
//! | check the nodes; end cleanly | [`LockManager::check`], [`LockManager::close`] |
//!
//! A node that forgets a lock can grant it twice: let each node write to disk before it answers, or
//! switch on [`LockManagerBuilder::restart_guard`]. The [`guide`] explains that and everything
//! else. It is read in an hour.
//!
//! # Features
//!
//! None is on by default: pick a client, `redis` or `fred` (each brings the runtime `tokio`), or
//! `memory`. All can be combined, except that at most one of the two TLS features may be on.
//!
//! - `tokio`: `runtime::TokioRuntime`.
//! - `smol`: `runtime::SmolRuntime`.
//! - `redis`: nodes through redis-rs, each on a connection of its own or on your bb8 pool.
//! - `fred`: nodes through fred.
//! - `memory`: in-memory nodes, a virtual clock and conformance suites, for tests.
//! - `tls-rustls` or `tls-native-tls`: `rediss://` addresses, for the clients that are chosen. With
//!   both, redis-rs 1.8 loads no certificates of the system and trusts no node.
//! - `unix-sockets`: unix sockets with fred; redis-rs has them anyway.
//! - `tracing`: events of the life of a lock and of nodes that fail, see [`telemetry`].
//! - `metrics`: waits, holds, votes and latency per node, see [`telemetry`].
//! - `serde`: `Serialize` and `Deserialize` for [`DetachedLock`] and [`FencingToken`].
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
//! | `unix:///path` (`%20`: a space, for fred a `%`) | yes | with `unix-sockets` |
//! | `redis+unix://…`, `valkey+unix://…` | yes | with `unix-sockets` |
//! | … with a login | `unix:///path?user=…&pass=…` | `unix://[user]:password@/path` |
//! | … with a database | `unix:///path?db=…` | no, see below |
//! | `redis+sentinel://[[user]:password@]host[:port],…/GROUP` | yes | no |
//!
//! The last one is the primary of a Sentinel group, also as `rediss+sentinel://…`.
//! Where fred says no, its own `Config` can say it, except a Sentinel group: see `quorate_fred`.
//! Both refuse the address of a cluster, an unknown scheme, a parameter that would be ignored, a
//! space before or after the address, several addresses in one, and TLS without a feature for it.
//!
//! A node makes connections of its own: one, and a second one while this process waits for a lock
//! whose queue the node keeps. `builder()` has a time limit for connecting (`connect_timeout`) and
//! for a connection without replies (`reply_limit`), and puts connections on a thread that outlives
//! the runtimes of tests or of actix-web (`own_thread`). `credentials` asks for the login of each
//! new connection. A node over a bb8 pool that you have is `redis::from_pool`. `tls` of the builder
//! of redis takes an authority and a client certificate of your own.
//!
//! # Crates
//!
//! This crate only gathers the others. The algorithm, the errors and the guarantees are in
//! [`quorate_core`], which a library that embeds locking can depend on alone.
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
