#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "tests")]
mod waiting;
mod world { pub(crate) const MS: std::time::Duration = std::time::Duration::from_millis(1); pub(crate) const SECOND: std::time::Duration = std::time::Duration::from_secs(1); }
