//! The first program of the README, on the nodes that its arguments name:
//! `cargo run --example first -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 …`

#![expect(clippy::print_stdout, reason = "an example reports what it does")]

use quorate::LockManager;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = quorate::redis::connect(std::env::args().skip(1))?;
    let locks = LockManager::builder(nodes).build()?;

    // Acquires the lock, renews it while the body runs, and releases it.
    // If the lock is lost, the body is dropped and the result is an error.
    let shipped = locks.with("orders:42", async |_lease| ship(42).await).await;

    // Ends all waiting and all leases for good, releases the locks, and waits until every node that
    // answers is clean, for at most 2 s.
    println!("{}", locks.close(Duration::from_secs(2)).await);
    println!("{} orders shipped", shipped?);
    Ok(())
}

async fn ship(order: u32) -> u32 {
    order / 42 // the work that only one process may do at a time
}
