//! What a program and its operators see of locks and nodes.

mod check;
mod dashboards;
mod events;
mod figures;
mod held_leases;
mod inspect;
mod lacks;
mod readiness;
mod stopped_process;
