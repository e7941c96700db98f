//! The requests of operators and start-ups: inspect a lock, check the nodes, take a lock away.
//!
//! | call | what it gives | asks the nodes |
//! |---|---|---|
//! | [`LockManager::inspect`] | an [`Inspection`]: the holder of a lock, and a [`NodeView`] for each node | yes; changes nothing |
//! | [`LockManager::revoke`] | a [`Revocation`]: the lock is free at the end of its ttl, and never has two holders | yes |
//! | [`LockManager::delete`] | a [`Revocation`]: the lock is free at once, and may have two holders for a time | yes |
//! | [`LockManager::check`] | a [`Check`]: what each node is and can do, with its problems | yes; sets and deletes a key of its own |
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
pub use crate::error::RevokeError;
