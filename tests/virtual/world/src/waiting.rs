//! Worlds that are about waiting: processes of several tasks each compete for a few keys.
//!
//! The rules of waiting (W1 to W4), the order inside a process and rule C8 are judged here, and all
//! others as in every world: two holders, a lock that was relied on too late, keys that are left and
//! tasks that never end.

mod board;
mod contender;
mod crowd;
mod kills;
mod plan;
mod run;

pub(crate) use self::run::run;
