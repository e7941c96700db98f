//! What operators and start-ups ask: who holds a lock, what the nodes are, and to take a lock away.

pub(crate) mod check;
pub(crate) mod inspect;
pub(crate) mod readiness;
pub(crate) mod revoke;
