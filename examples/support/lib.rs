//! What several examples share.

mod std_runtime;
mod story;

pub use self::std_runtime::{StdRuntime, block_on};
pub use self::story::tell;
