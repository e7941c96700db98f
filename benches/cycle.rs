//! The pure half, and whole operations on in-memory nodes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use futures_util::future::join_all;
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
    let mut group = criterion.benchmark_group("lock and release on in-memory nodes");
    for count in [1, 3, 5, 7] {
        let Some((sim, manager)) = manager(count) else {
            return;
        };
        group.bench_function(BenchmarkId::from_parameter(count), |bench| {
            bench.iter(|| {
                let guard = sim.block_on(manager.try_lock("r"));
                guard.map(|guard| sim.block_on(guard.release()))
            });
        });
    }
}

fn several_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lock and release several keys on five nodes");
    for count in [1, 4, 16] {
        let Some((sim, manager)) = manager(5) else {
            return;
        };
        let keys: Vec<String> = (0..count).map(|key| format!("r:{key}")).collect();
        group.bench_function(BenchmarkId::from_parameter(count), |bench| {
            bench.iter(|| {
                let guard = sim.block_on(manager.try_lock(keys.as_slice()));
                guard.map(|guard| sim.block_on(guard.release()))
            });
        });
    }
}

fn extend(criterion: &mut Criterion) {
    let Some((sim, manager)) = manager(5) else {
        return;
    };
    let Ok(guard) = sim.block_on(manager.try_lock("r")) else {
        return;
    };
    criterion.bench_function("extend on five in-memory nodes", |bench| {
        bench.iter(|| sim.block_on(guard.extend()));
    });
}

fn contended(criterion: &mut Criterion) {
    let Some((sim, manager)) = manager(5) else {
        return;
    };
    criterion.bench_function("a refused try on five in-memory nodes", |bench| {
        let held = sim.block_on(manager.try_lock("held"));
        bench.iter(|| {
            let refused = sim.block_on(manager.try_lock("held")).is_err();
            // What was lost is given back in the background, and must not pile up there.
            sim.block_on(manager.settle(Duration::from_secs(1)));
            refused
        });
        drop(held);
    });
    // The waits are virtual: what is timed are the rounds, and how the lock goes from one to the next.
    criterion.bench_function("eight contenders, once each, on five in-memory nodes", |bench| {
        bench.iter(|| {
            let once = async || {
                let guard = manager.lock("contended").await.ok()?;
                guard.release().await.ok()
            };
            sim.block_on(join_all((0..8).map(|_| once())))
        });
    });
}

fn manager(nodes: usize) -> Option<(Sim, LockManager)> {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(nodes, sim.clone());
    let manager = LockManager::builder(sim.clone(), nodes).build().ok()?;
    Some((sim, manager))
}

criterion_group!(benches, round, cycle, several_keys, extend, contended);
criterion_main!(benches);
