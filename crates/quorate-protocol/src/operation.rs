//! What each operation sends, and what the replies mean.

pub(crate) mod acquire;
pub(crate) mod extend;
pub(crate) mod fence;
pub(crate) mod guard;
pub(crate) mod hint;
pub(crate) mod identity;
pub(crate) mod inspect;
pub(crate) mod queue;
pub(crate) mod release;
