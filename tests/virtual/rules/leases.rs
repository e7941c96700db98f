//! Leases that are held: extended, renewed, watched, ended, and given away.

mod closing;
mod detaching;
mod early_warning;
mod end_of_lease;
mod extending;
mod labels;
mod renewals;
mod work_under_a_lock;
