//! Locks without async, on in-memory nodes: `cargo run --example blocking`.
//!
//! Two threads count together. A third one looks for a free lock, and then the nodes fail under a lock.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use quorate::memory::{Fault, MemoryNode};
use quorate::runtime::TokioRuntime;
use quorate::{LockManager, WithError};

fn main() -> Result<(), Box<dyn Error>> {
    // Outside of tokio, its background tasks run on a thread of their own.
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(3, runtime.clone());
    let locks =
        LockManager::builder(nodes.clone()).runtime(runtime).ttl(Duration::from_secs(2)).build()?;

    let counter = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..5).try_for_each(|_| count(&locks, &counter)));
        }
    });
    println!("counted to {}", counter.load(Ordering::Relaxed));

    let guard = locks.lock("counter").auto_renew().lock_blocking()?;
    let second = locks.try_lock_blocking("counter")?;
    println!("a second one is {}", if second.is_some() { "locked" } else { "not locked" });
    guard.release_blocking()?;
    println!("held until the release");

    let mut steps = 0;
    let result = locks.lock("counter").with_blocking(|lease| {
        nodes[..2].iter().for_each(|node| node.inject(Fault::Hung));
        // Nothing stops this loop but its look at the lease.
        while lease.is_valid() {
            steps += 1;
            thread::sleep(Duration::from_millis(20));
        }
    });
    match result {
        Err(WithError::Lost(stopped)) => {
            println!("stopped after {steps} steps: {}", stopped.reason);
        }
        other => return Err(format!("expected a lost lock: {other:?}").into()),
    }
    nodes.iter().for_each(MemoryNode::heal);
    println!("{}", locks.close_blocking(Duration::from_secs(2))?);
    Ok(())
}

/// Adds one under the lock, in two steps.
fn count(locks: &LockManager, counter: &AtomicU32) -> Result<(), WithError> {
    locks.lock("counter").with_blocking(|_lease| {
        let count = counter.load(Ordering::Relaxed);
        thread::yield_now();
        counter.store(count + 1, Ordering::Relaxed);
    })
}
