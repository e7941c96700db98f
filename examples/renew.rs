//! A lease that outlives its ttl, and says in time when it cannot: `cargo run --example renew`.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;
use std::time::Duration;

use quorate::memory::{Fault, MemoryNode};
use quorate::runtime::TokioRuntime;
use quorate::{LockManager, Lost, Runtime};

const TTL: Duration = Duration::from_millis(500);

/// The time that the work needs to stop.
const MARGIN: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(3, runtime.clone());
    let builder = LockManager::builder(runtime.clone(), nodes.clone());
    let manager = builder.ttl(TTL).margin(MARGIN).build()?;
    let until = |ttls: u32| runtime.sleep_until(runtime.now() + TTL * ttls);

    let guard = manager.lock("orders:42").await?;
    guard.keep_alive();
    println!("locked for {TTL:?}, and kept alive");
    until(2).await;
    println!("two ttls later it is still ours: {}", guard.is_valid());

    nodes[0].inject(Fault::Dead);
    until(2).await;
    println!("a node is dead, and two ttls later it is still ours: {}", guard.is_valid());

    nodes[0].heal();
    until(1).await;
    let kept = nodes[0].keys().len() == 1;
    println!("the node came back empty, and the lease repaired it: {kept}");

    nodes[0].inject(Fault::Dead);
    nodes[1].inject(Fault::Hung);
    let lost = guard.lost().await;
    let left = guard.valid_until() - runtime.now();
    let Lost::Expired { votes } = lost else { return Err(lost.into()) };
    println!("a majority is gone, told {left:.0?} before anybody else can have it: {votes}");
    Ok(())
}
