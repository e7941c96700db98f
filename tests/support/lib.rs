//! Real nodes for tests: `redis-server` processes that come and go with a test, and what judges them.
//!
//! Everything blocks and everything fails by panicking, under the limit of [`wait`]: this is code for
//! tests. It knows nothing of quorate, so that it can look at nodes behind the library's back.

#![allow(clippy::expect_used, reason = "a harness fails its test by panicking")]
#![allow(clippy::must_use_candidate, clippy::missing_errors_doc, reason = "for tests only")]
#![expect(clippy::exhaustive_enums, clippy::exhaustive_structs, reason = "a part of the tests")]

pub mod clock;
pub mod dice;
pub mod judge;
pub mod keys;
pub mod peer;
pub mod program;
pub mod proxy;
pub mod redis_server;
pub mod resource;
pub mod wait;

pub use program::Program;
pub use proxy::{Direction, Mode, Proxy};
pub use redis_server::{
    Authority, Builder, Certificate, Connection, Monitor, Monitored, Nodes, RedisServer, Reply,
    TEST_CA, TempDir, temp_dir,
};
