//! Readers beside a writer, on in-memory nodes a round trip of 0.4 ms away, in virtual time: the same in every run.
//!
//! Ten processes read for 5 ms each, without a pause, and one writes for 5 ms, 50 ms after its last write. The row *the same,
//! all exclusive* has locks in place of the reads.

#![allow(clippy::print_stdout, reason = "figures for a terminal")]

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_core::{LockManager, Runtime as _};
use quorate_memory::{Effect, MemoryNode, Rule, Sim};

const READERS: usize = 10;
const MS: Duration = Duration::from_millis(1);
const HOLD: Duration = Duration::from_millis(5);
const RUN: Duration = Duration::from_secs(20);

/// Reads, writes, and the longest wait of the writer.
type Figures = Arc<Mutex<(u32, u32, Duration)>>;

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:34} {:>10} {:>10} {:>22}",
        "10 readers + 1 writer", "reads/s", "writes/s", "longest wait to write"
    );
    for nodes in [3, 5] {
        for (name, shares) in [("readers", true), ("the same, all exclusive", false)] {
            let (reads, writes, longest) = run(nodes, shares)?;
            let each = |count: u32| f64::from(count) / RUN.as_secs_f64();
            let name = format!("{name}, nodes: {nodes}");
            println!("{name:34} {:10.0} {:10.1} {longest:22.1?}", each(reads), each(writes));
        }
    }
    Ok(())
}

/// One more read, or one more write that waited for so long.
fn note(figures: &Figures, writes: bool, waited: Duration) {
    let mut had = figures.lock().unwrap_or_else(PoisonError::into_inner);
    if writes {
        (had.1, had.2) = (had.1 + 1, had.2.max(waited));
    } else {
        had.0 += 1;
    }
}

fn run(nodes: usize, shares: bool) -> Result<(u32, u32, Duration), Box<dyn Error>> {
    let (sim, figures) = (Sim::new(1), Figures::default());
    let nodes = MemoryNode::cluster(nodes, sim.clone());
    for node in &nodes {
        let way = Duration::from_micros(200);
        node.add_rule(Rule::new(Effect::Delay { least: way, most: way }));
    }
    for number in 0..=READERS {
        let client = sim.client(0);
        let seen = nodes.iter().map(|node| node.seen_by(&client));
        let locks = LockManager::builder(seen).runtime(client.clone()).build()?;
        let (writes, figures) = (number == READERS, Arc::clone(&figures));
        client.clone().spawn(Box::pin(async move {
            loop {
                let request = if writes || !shares { locks.lock("r") } else { locks.read("r") };
                let asked = client.now();
                let Ok(guard) = request.await else { continue };
                let waited = client.now().saturating_duration_since(asked);
                client.sleep_until(client.now() + HOLD).await;
                drop(guard.release().await);
                note(&figures, writes, waited);
                if writes {
                    client.sleep_until(client.now() + 50 * MS).await;
                }
            }
        }));
    }
    sim.advance(RUN);
    let had = *figures.lock().unwrap_or_else(PoisonError::into_inner);
    sim.end();
    Ok(had)
}
