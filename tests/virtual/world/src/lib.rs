//! The seeded world: lock managers, unchanged, on nodes and networks that fail in every way.
//!
//! One seed is one run. [`plan`] draws what the world is like, [`nemesis`] breaks it, [`worker`]
//! uses locks in it, and [`run()`] puts them together and judges.

pub mod ability;
pub mod agreement;
pub mod calm;
pub mod closing;
pub mod dice;
pub mod door;
pub mod history;
pub mod keeping;
pub mod nemesis;
pub mod oracle;
pub mod plan;
pub mod process;
pub mod replay;
pub mod report;
pub mod run;
pub mod stage;
pub mod tidy;
pub mod waiting;
pub mod watch;
pub mod worker;

pub use plan::{Class, Plan};
pub use run::{Outcome, run};
