//! A runtime of your own: here one of bare threads, in `support/std_runtime.rs`.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;
use std::sync::Arc;

use quorate::memory::{MemoryNode, conformance};
use quorate::{LockManager, Runtime};
use quorate_examples::{StdRuntime, block_on};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = StdRuntime::new();
    let shared: Arc<dyn Runtime> = Arc::new(runtime.clone());
    for case in block_on(conformance::runtime(&shared))? {
        println!("ok: {case}");
    }
    let nodes = MemoryNode::cluster(5, runtime.clone());
    let manager = LockManager::builder(nodes).runtime(runtime).build()?;
    block_on(quorate_examples::tell(&manager))
}
