//! The pure half, and a whole cycle on in-memory nodes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use quorate_core::algorithm::quorum::{NodeCount, Vote};
use quorate_core::algorithm::round::{Round, Step};
use quorate_core::{Drift, LockManager, Ttl};
use quorate_memory::{MemoryNode, Sim};

fn round(criterion: &mut Criterion) {
    let (Some(nodes), Ok(ttl)) = (NodeCount::new(5), Ttl::try_from(Duration::from_secs(10))) else {
        return;
    };
    let start = Instant::now();
    criterion.bench_function("a round of five votes", |bench| {
        bench.iter(|| {
            let patience = Duration::from_millis(500);
            let mut round =
                Round::acquire(black_box(nodes), start, patience, ttl, Drift::default());
            nodes.ids().find_map(|node| match round.on_vote(node, Vote::Granted, start) {
                Step::Wait => None,
                step => Some(step),
            })
        });
    });
}

fn cycle(criterion: &mut Criterion) {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(5, sim.clone());
    let Ok(manager) = LockManager::builder(sim.clone(), nodes).build() else {
        return;
    };
    criterion.bench_function("lock and release on five in-memory nodes", |bench| {
        bench.iter(|| {
            let guard = sim.block_on(manager.try_lock("r"));
            guard.map(|guard| sim.block_on(guard.release()))
        });
    });
}

criterion_group!(benches, round, cycle);
criterion_main!(benches);
