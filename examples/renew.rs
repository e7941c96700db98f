//! A lease that outlives its ttl, and says in time when it cannot: `cargo run --example renew`.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;
use std::time::Duration;

use quorate::memory::{Fault, MemoryNode};
use quorate::runtime::TokioRuntime;
use quorate::{LeaseEnd, LockManager, Runtime};

const TTL: Duration = Duration::from_millis(500);

/// The time that the work needs to stop. The lease ends so long before its keys may expire.
const MARGIN: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(3, runtime.clone());
    let builder = LockManager::builder(nodes.clone()).runtime(runtime.clone());
    let manager = builder.ttl(TTL).safety_margin(MARGIN).build()?;
    let until = |ttls: u32| runtime.sleep_until(runtime.now() + TTL * ttls);

    let guard = manager.lock("orders:42").await?;
    guard.auto_renew();
    println!("locked for {TTL:?}, and renewed");
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
    let LeaseEnd::Expired { last } = lost else { return Err(lost.into()) };
    println!("a quorum is gone: lost {MARGIN:.0?} before its keys expire: {last}");
    Ok(())
}
