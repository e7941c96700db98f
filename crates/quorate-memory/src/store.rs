//! What a node stores, and what each operation does to it.

mod entries;
mod fence;
mod guard;
mod lock;
mod queue;
mod shared;

pub(crate) use self::entries::Store;
pub use self::entries::Value;
pub(crate) use self::guard::{Server, no_info};
