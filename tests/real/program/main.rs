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
        "pool" => addresses.map(pooled).collect(),
        other => Err(format!("no client is called {other}").into()),
    }
}

/// A node over a pool of two connections, which have the time that a slow machine takes.
fn pooled(address: &str) -> Outcome<Arc<dyn LockBackend>> {
    let manager = quorate::redis::redis::Client::open(address)?;
    let pool = quorate::redis::bb8::Pool::builder().max_size(2).build_unchecked(manager);
    Ok(Arc::new(quorate::redis::from_pool(address, pool)))
}

fn shared(nodes: Vec<impl LockBackend>) -> Vec<Arc<dyn LockBackend>> {
    nodes.into_iter().map(|node| Arc::new(node) as _).collect()
}
