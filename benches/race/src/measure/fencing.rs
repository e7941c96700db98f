//! The cost of fencing tokens and of the restart guard on healthy nodes.

use super::Race;
use crate::Outcome;
use crate::arena::FIVE;
use crate::contest::{OURS, TURNS};
use crate::plan::rotated;
use crate::spec::Spec;

/// Measures the latency of one task, the variants in turn within one process.
pub(super) fn fencing(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions() {
        for nodes in [3, FIVE] {
            for client in rotated(&OURS, repetition) {
                turns(race, client, nodes)?;
            }
        }
    }
    Ok(())
}

fn turns(race: &mut Race<'_>, client: &'static str, nodes: usize) -> Outcome {
    let spec = Spec::new("turns", client)
        .with("runtime", "current-thread")
        .with("ttl", 1)
        .seconds(race.plan.sample * TURNS.len() as u32);
    let mut worker = race.arena.spawn(&spec, nodes)?;
    worker.wait_until_ready()?;
    worker.go()?;
    let report = worker.wait_until_done()?;
    let setting = format!("{nodes} nodes");
    for (metric, value) in &report.metrics {
        let (variant, metric) = metric.split_once(": ").ok_or("whose metric?")?;
        let contestant = format!("{client} {variant}");
        race.book.add("fencing", &setting, &contestant, metric, *value);
    }
    worker.finish()?;
    race.arena.sweep(&mut race.book, client, &format!("fencing, {setting}"));
    Ok(())
}
