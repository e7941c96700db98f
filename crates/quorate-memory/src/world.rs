//! A simulated world: the virtual clock, its timers, and the tasks of all clients.

mod run;
mod schedule;
mod sleep;
mod state;

pub(crate) use self::sleep::after;
pub(crate) use self::state::World;
