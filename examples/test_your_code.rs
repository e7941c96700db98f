//! A critical section of your own, tested against nodes that fail, in no time.
//!
//! Run the tests with `cargo test --example test_your_code`; as a program it runs the same checks.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorate::memory::{Fault, MemoryNode, Sim};
use quorate::{LockManager, Runtime, WithError};

/// The code under test: it reads, takes its time, and writes.
///
/// # Errors
///
/// [`WithError`] if the lock cannot be acquired, or was lost: then nothing is written.
pub async fn add_one(
    locks: &LockManager,
    clock: &impl Runtime,
    counter: &AtomicU64,
) -> Result<(), WithError> {
    let work = async |_| {
        let seen = counter.load(Ordering::Relaxed);
        clock.sleep_until(clock.now() + Duration::from_millis(50)).await;
        counter.store(seen + 1, Ordering::Relaxed);
    };
    locks.with("counter", work).await
}

fn nothing_is_lost_while_two_nodes_fail(seed: u64) -> Result<Duration, Box<dyn Error>> {
    let sim = Sim::new(seed);
    let nodes = MemoryNode::cluster(5, sim.clone());
    nodes[0].inject(Fault::Dead);
    nodes[1].inject(Fault::Slow(Duration::from_millis(300)));
    let locks = LockManager::builder(nodes).runtime(sim.clone()).build()?;
    let counter = Arc::new(AtomicU64::new(0));
    for _ in 0..20 {
        let (locks, clock, counter) = (locks.clone(), sim.clone(), Arc::clone(&counter));
        sim.spawn(Box::pin(async move {
            drop(add_one(&locks, &clock, &counter).await);
        }));
    }
    sim.settle();
    match counter.load(Ordering::Relaxed) {
        20 => Ok(sim.elapsed()),
        other => Err(format!("seed {seed}: {other} of 20 additions were kept").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut simulated = Duration::ZERO;
    for seed in 0..100 {
        simulated += nothing_is_lost_while_two_nodes_fail(seed)?;
    }
    println!("100 runs, {simulated:.0?} of simulated time, nothing lost");
    Ok(())
}

#[test]
fn nothing_is_lost() -> Result<(), Box<dyn Error>> {
    nothing_is_lost_while_two_nodes_fail(1).map(drop)
}
