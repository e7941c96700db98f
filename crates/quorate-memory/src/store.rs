//! What a node stores, and what each operation does to it.

mod entries;
mod fence;
mod flaw;
mod guard;
mod lock;
mod queue;

pub use self::entries::Value;
pub(crate) use self::entries::{Store, wrong_type};
pub use self::flaw::Flaw;
pub(crate) use self::guard::{Server, no_info};
