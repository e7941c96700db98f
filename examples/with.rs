//! Work under a lock that is renewed as long as the work lasts: `cargo run --example with`.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;
use std::future::pending;
use std::num::ParseIntError;
use std::time::Duration;

use quorate::memory::{Fault, MemoryNode};
use quorate::runtime::TokioRuntime;
use quorate::{LeaseEnd, LockError, LockManager, Runtime, WithError};

const TTL: Duration = Duration::from_millis(300);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(3, runtime.clone());
    let manager = LockManager::builder(nodes.clone()).ttl(TTL).runtime(runtime.clone()).build()?;

    println!("-- a value, after three ttls");
    let mut orders = vec![7];
    let work = async |_| {
        runtime.sleep_until(runtime.now() + TTL * 3).await;
        orders.push(42);
        orders.len()
    };
    println!("{} orders", manager.with("orders", work).await?);

    println!("-- an error of your own comes back as the value");
    let parsed: Result<u32, ParseIntError> = manager.with("orders", async |_| "x".parse()).await?;
    println!("{parsed:?}");

    println!("-- another guard holds it");
    let guard = manager.lock("orders").await?;
    match manager.lock("orders").no_wait().with(async |_| ()).await {
        Err(WithError::Lock(LockError::Held(votes))) => println!("not begun: {votes}"),
        other => return Err(format!("expected it to be held: {other:?}").into()),
    }
    guard.release().await?;

    println!("-- two of three nodes die: the work is stopped in time");
    let work = async |_| {
        println!("begun");
        nodes[0].inject(Fault::Dead);
        nodes[1].inject(Fault::Dead);
        pending::<()>().await;
    };
    match manager.with("orders", work).await {
        Err(WithError::Lost(stopped)) => match stopped.reason {
            LeaseEnd::Expired { last } => println!("stopped: {last}"),
            other => return Err(other.into()),
        },
        other => return Err(format!("expected it to be lost: {other:?}").into()),
    }
    Ok(())
}
