//! How often a cycle allocates, on in-memory nodes: figures, not times, the same in every run.
//!
//! What the nodes and the executor of the simulation allocate is in it, so compare, and do not add up.

#![allow(clippy::print_stdout, reason = "figures for a terminal")]

use std::error::Error;

use allocation_counter::measure;
use quorate_core::LockManager;
use quorate_memory::{MemoryNode, Sim};

const CYCLES: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:44} {:>8} {:>8} {:>8}", "per operation", "count", "bytes", "peak");
    for nodes in [1, 3, 5, 7] {
        let (sim, [manager, _]) = managers(nodes)?;
        let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
        show(&format!("lock and release, {nodes}"), || cycle(&sim, &manager));
    }
    let (sim, [manager, other]) = managers(5)?;
    show("lock and release three keys, 5 nodes", || {
        if let Ok(guard) = sim.block_on(manager.lock(["a", "b", "c"]).no_wait()) {
            let _ = sim.block_on(guard.release());
        }
    });
    let guard = sim.block_on(manager.lock("held").no_wait())?;
    show("a refused try, 5 nodes", || {
        let _ = sim.block_on(other.lock("held").no_wait());
        sim.settle();
    });
    show("extend, 5 nodes", || {
        let _ = sim.block_on(guard.extend());
    });
    Ok(())
}

/// Two processes that share nodes, warm.
fn managers(nodes: usize) -> Result<(Sim, [LockManager; 2]), Box<dyn Error>> {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(nodes, sim.clone());
    let manager = || LockManager::builder(nodes.iter().cloned()).runtime(sim.clone()).build();
    let managers = [manager()?, manager()?];
    for manager in &managers {
        cycle(&sim, manager);
    }
    Ok((sim, managers))
}

fn cycle(sim: &Sim, manager: &LockManager) {
    if let Ok(guard) = sim.block_on(manager.lock("r").no_wait()) {
        let _ = sim.block_on(guard.release());
    }
}

fn show(what: &str, operation: impl Fn()) {
    let all = measure(|| (0..CYCLES).for_each(|_| operation()));
    let each = |total: u64| total as f64 / CYCLES as f64;
    println!(
        "{what:44} {:8.1} {:8.0} {:8}",
        each(all.count_total),
        each(all.bytes_total),
        all.bytes_max
    );
}
