//! The command `quorate` on real nodes. Tests are named for the rules in `tests/RULES.md`.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::future_not_send, reason = "tests")]

mod addresses;
mod codes;
mod descriptors;
mod free;
mod group;
mod inherited;
mod labels;
mod lease;
mod nodes;
mod once;
mod pages;
mod processes;
mod read;
mod records;
mod replacing;
mod rolling;
mod scripts;
mod secrets;
mod signals;
mod streams;
mod support;
mod terminal;
mod tls;
mod typing;
mod warnings;
