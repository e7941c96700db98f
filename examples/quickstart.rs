//! The main job on in-memory nodes: `cargo run --example quickstart`.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;

use quorate::memory::{Fault, MemoryNode};
use quorate::runtime::TokioRuntime;
use quorate::{LockError, LockManager};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(5, runtime.clone());
    let manager = LockManager::builder(nodes.clone()).runtime(runtime).build()?;

    println!("-- five healthy nodes");
    quorate_examples::tell(&manager).await?;

    println!("-- one is dead and one hangs: three are a quorum");
    nodes[0].inject(Fault::Dead);
    nodes[1].inject(Fault::Hung);
    quorate_examples::tell(&manager).await?;

    println!("-- a third one dies: no quorum, and the error says why");
    nodes[2].inject(Fault::Dead);
    match manager.lock("orders:42").no_wait().await {
        Err(error @ LockError::NoQuorum(_)) => println!("{error}"),
        other => return Err(format!("expected no quorum: {other:?}").into()),
    }

    println!("-- all are well again");
    for node in &nodes {
        node.heal();
    }
    quorate_examples::tell(&manager).await
}
