//! The first program of the README, on the nodes that its arguments name:
//! `cargo run --example first --features redis -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 …`

#![expect(clippy::print_stdout, reason = "an example reports what it does")]

use quorate::LockManager;

async fn ship(order: u32) -> Result<(), Box<dyn std::error::Error>> {
    let nodes = std::env::args().skip(1);
    let locks = LockManager::builder(quorate::redis::connect(nodes)?).build()?;
    // Waits for the lock, renews it while the body runs, and releases it.
    let body = async |_lease| println!("only this process ships {order}");
    locks.with(format!("orders:{order}"), body).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ship(42).await
}
