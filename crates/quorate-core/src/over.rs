//! What a user could have written, on top of locks.
//!
//! A module here imports what `lib.rs` exports, and from `access` the few private things that it
//! needs beside that.

mod access;
mod any;
mod blocking;
pub(crate) mod fenced_cell;
mod lead;
pub(crate) mod once;
pub mod operators;
pub(crate) mod several;
pub(crate) mod with_token;
