//! The processes that tests start: each line that they print is read by a test.
//!
//! - `program contend redis|fred PORT TTL-MS on|off SEED ADDRESS…`: see [`contend`].
//! - `program hold redis|fred TTL-MS COUNT ADDRESS…`: see [`hold`].
//! - `program last-guard current-thread|multi-thread|smol redis|fred|memory TTL-SECONDS ADDRESS…`: see
//!   [`last_guard`].
//! - `program lead redis|fred TTL-MS ADDRESS…`: see [`lead`].

#![allow(clippy::print_stdout, reason = "its output is what a test reads")]

use std::env;
use std::error::Error;
use std::sync::Arc;

use quorate::LockBackend;

mod contend;
mod hold;
mod last_guard;
mod lead;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["contend", ref words @ ..] => contend::run(words),
        ["hold", ref words @ ..] => hold::run(words),
        ["last-guard", ref words @ ..] => last_guard::run(words),
        ["lead", ref words @ ..] => lead::run(words),
        _ => Err("contend|hold|last-guard|lead …".into()),
    }
}

fn connect(client: &str, addresses: &[&str]) -> Outcome<Vec<Arc<dyn LockBackend>>> {
    let addresses = addresses.iter().copied();
    match client {
        "redis" => Ok(shared(quorate::redis::connect(addresses)?)),
        "fred" => Ok(shared(quorate::fred::connect(addresses)?)),
        other => Err(format!("no client is called {other}").into()),
    }
}

fn shared(nodes: Vec<impl LockBackend>) -> Vec<Arc<dyn LockBackend>> {
    nodes.into_iter().map(|node| Arc::new(node) as _).collect()
}
