//! The nodes, clients and listeners that the tests share.

pub(crate) mod backends;
pub(crate) mod every_future;
pub(crate) mod telling;
pub(crate) mod world;
