//! The machine room of an attempt and of a wait: a mutex that a reply never waits for, and who waits for its state.

pub(crate) mod late;
pub(crate) mod waiting;
pub(crate) mod wakers;
