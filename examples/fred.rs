//! The same program on real nodes:
//! `cargo run --example fred --features fred -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 …`

#![expect(clippy::print_stdout, reason = "an example reports what it does")]

use std::env;
use std::error::Error;
use std::time::Duration;

use quorate::LockManager;
use quorate::runtime::TokioRuntime;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let nodes = quorate::fred::connect(env::args().skip(1))?;
    let manager = LockManager::builder(nodes).runtime(TokioRuntime::new()).build()?;
    quorate_examples::tell(&manager).await?;
    // Without it, a key may stay on a slow node until its ttl ends.
    println!("{}", manager.close(Duration::from_secs(2)).await);
    Ok(())
}
