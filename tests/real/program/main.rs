//! The processes that tests start: each line that they print is read by a test.
//!
//! - `program work WORKLOAD redis|fred|pool TTL-MS PORT on|off ADDRESS…`: see [`work`] and [`workloads`].
//! - `program last-guard current-thread|multi-thread|smol redis|fred|memory TTL-SECONDS ADDRESS…`: see
//!   [`last_guard`].

#![allow(clippy::print_stdout, reason = "its output is what a test reads")]

use std::env;
use std::error::Error;
use std::sync::Arc;

use quorate::LockBackend;

mod last_guard;
mod work;
mod workloads;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["last-guard", ref words @ ..] => last_guard::run(words),
        ["work", ref words @ ..] => work::run(words),
        _ => Err("last-guard|work …".into()),
    }
}

fn connect(client: &str, addresses: &[&str]) -> Outcome<Vec<Arc<dyn LockBackend>>> {
    let addresses = addresses.iter().copied();
    match client {
        "redis" => Ok(shared(quorate::redis::connect(addresses)?)),
        "fred" => Ok(shared(quorate::fred::connect(addresses)?)),
        "pool" => Ok(shared(quorate::redis::builder().pooled(2, addresses)?)),
        other => Err(format!("no client is called {other}").into()),
    }
}

fn shared(nodes: Vec<impl LockBackend>) -> Vec<Arc<dyn LockBackend>> {
    nodes.into_iter().map(|node| Arc::new(node) as _).collect()
}
