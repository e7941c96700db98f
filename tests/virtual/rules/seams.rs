//! Where code of users meets ours: backends, runtimes, recorders, and futures that are dropped.

mod cancel_safety;
mod going_away;
mod inside_begin;
