//! The same program on real nodes:
//! `cargo run --example redis -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 …`

use std::env;
use std::error::Error;
use std::time::Duration;

use quorate::LockManager;
use quorate::runtime::TokioRuntime;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let nodes = quorate::redis::connect(env::args().skip(1))?;
    let manager = LockManager::builder(TokioRuntime::new(), nodes).build()?;
    quorate_examples::tell(&manager).await?;
    // What is left to do on slower nodes; without it, a key may stay there until its ttl is over.
    manager.settle(Duration::from_millis(250)).await;
    Ok(())
}
