//! Locks that are contended for on real nodes, while the nodes lose their data one after the other.
//!
//! Processes with either client take a few locks with fencing tokens, hold them, some for longer
//! than a ttl, and write what they do to resources that check tokens and to one that does not. A
//! nemesis kills nodes without persistence and starts them again, empties them, rolls them back to
//! an old file, puts a replica that lags in their place. Each hold is recorded on the one clock of
//! the machine, and judged when all is over: with the restart guard no holds overlap and no token
//! falls; without it, which shows that this can see it, they do overlap, and the resource is what
//! refuses the stale writer.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

pub mod client;
pub mod clock;
mod dice;
pub mod judge;
mod nemesis;
pub mod plan;
pub mod resource;
pub mod run;

pub use nemesis::Blows;
pub use plan::{Guard, Plan};
pub use run::{Figures, run};
