//! Real nodes for tests: `redis-server` processes that come and go with a test.
//!
//! Everything blocks and everything fails by panicking: this is code for tests. It knows nothing
//! of quorate, so that it can look at nodes behind the library's back.

#![allow(clippy::expect_used, reason = "a harness fails its test by panicking")]

pub mod keys;
pub mod proxy;
pub mod redis_server;
pub mod referee;
pub mod wait;

pub use proxy::{Direction, Mode, Proxy, When};
pub use redis_server::{
    Builder, Connection, Monitor, Monitored, Nodes, RedisServer, Reply, TEST_CA,
};
pub use referee::Referee;
