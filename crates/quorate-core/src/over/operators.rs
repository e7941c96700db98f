//! The requests of operators and start-ups: inspect a lock, check the nodes, take a lock away.
//!
//! | call | what it gives | asks the nodes |
//! |---|---|---|
//! | [`LockManager::inspect`] | an [`Inspection`]: who holds a lock | yes; changes nothing |
//! | [`LockManager::revoke`] | a [`Revocation`]: free at the end of its ttl | yes |
//! | [`LockManager::delete`] | a [`Revocation`]: free at once, maybe with two holders | yes |
//! | [`LockManager::check`] | a [`Check`]: the problems of each node | yes; sets a key of its own |
//! | [`LockManager::readiness`] | a [`Readiness`]: which nodes answered lately | no |
//!
//! A program that only locks needs nothing of this.
//!
//! [`LockManager::inspect`]: crate::LockManager::inspect
//! [`LockManager::revoke`]: crate::LockManager::revoke
//! [`LockManager::delete`]: crate::LockManager::delete
//! [`LockManager::check`]: crate::LockManager::check
//! [`LockManager::readiness`]: crate::LockManager::readiness

mod check;
mod inspect;
mod readiness;
mod revoke;

pub use self::check::{Check, CheckRequest, NodeReport, Problem};
pub use self::inspect::{Inspection, KeyState, LockState, NodeView};
pub use self::readiness::{NodeReadiness, Readiness};
pub use self::revoke::{Leaving, Revocation};
