//! Times of the pure attempt, and of whole operations on in-memory nodes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use futures_util::future::join_all;
use quorate_core::algorithm::attempt::{Action, AttemptMachine, Outcome, Settings};
use quorate_core::algorithm::quorum::NodeCount;
use quorate_core::{LockManager, Ttl};
use quorate_memory::{MemoryNode, Sim};

fn attempt(criterion: &mut Criterion) {
    let (Some(nodes), Ok(ttl)) = (NodeCount::new(5), Ttl::try_from(Duration::from_secs(10))) else {
        return;
    };
    let settings = Settings::new(nodes, ttl, Duration::from_millis(500));
    let settings = nodes.ids().fold(settings, Settings::ordered);
    let now = Instant::now();
    criterion.bench_function("an attempt on five nodes, from acquire to release", |bench| {
        bench.iter(|| {
            let mut attempt = AttemptMachine::<()>::new(black_box(settings), now);
            grant_all(&mut attempt, now);
            attempt.release(now);
            grant_all(&mut attempt, now);
            attempt
        });
    });
}

/// Grants every call on every node.
fn grant_all(attempt: &mut AttemptMachine<()>, now: Instant) {
    while let Some((_, action)) = attempt.poll_send() {
        if let Action::Send(call, _) = action {
            attempt.handle_reply(call, Outcome::Granted(None), now);
        }
    }
    while let Some(decision) = attempt.poll_decision() {
        black_box(decision);
    }
}

fn cycle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lock and release on in-memory nodes");
    for count in [1, 3, 5, 7] {
        let Some((sim, [manager, _])) = managers(count) else {
            return;
        };
        group.bench_function(BenchmarkId::from_parameter(count), |bench| {
            bench.iter(|| {
                let guard = sim.block_on(manager.lock("r").no_wait());
                guard.map(|guard| sim.block_on(guard.release()))
            });
        });
    }
}

fn several_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lock and release several keys on five nodes");
    for count in [1, 4, 16] {
        let Some((sim, [manager, _])) = managers(5) else {
            return;
        };
        let keys: Vec<String> = (0..count).map(|key| format!("r:{key}")).collect();
        group.bench_function(BenchmarkId::from_parameter(count), |bench| {
            bench.iter(|| {
                let guard = sim.block_on(manager.lock(keys.as_slice()).no_wait());
                guard.map(|guard| sim.block_on(guard.release()))
            });
        });
    }
}

fn extend(criterion: &mut Criterion) {
    let Some((sim, [manager, _])) = managers(5) else {
        return;
    };
    let Ok(guard) = sim.block_on(manager.lock("r").no_wait()) else {
        return;
    };
    criterion.bench_function("extend on five in-memory nodes", |bench| {
        bench.iter(|| sim.block_on(guard.extend()));
    });
}

fn contended(criterion: &mut Criterion) {
    let Some((sim, [manager, other])) = managers(5) else {
        return;
    };
    criterion.bench_function("a refused try on five in-memory nodes", |bench| {
        let held = sim.block_on(manager.lock("held").no_wait());
        bench.iter(|| {
            let refused = sim.block_on(other.lock("held").no_wait()).is_err();
            // The undo of a lost round runs in the background and must not accumulate there.
            sim.settle();
            refused
        });
        drop(held);
    });
    // The waits are virtual: only the rounds and the hand-overs are timed.
    criterion.bench_function("eight contenders, once each, on five in-memory nodes", |bench| {
        bench.iter(|| {
            let once = async |manager: &LockManager| {
                let guard = manager.lock("contended").await.ok()?;
                guard.release().await.ok()
            };
            let contenders = (0..8).map(|number| once([&manager, &other][number % 2]));
            sim.block_on(join_all(contenders))
        });
    });
}

/// Creates two processes that share nodes.
fn managers(count: usize) -> Option<(Sim, [LockManager; 2])> {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(count, sim.clone());
    let manager = || LockManager::builder(nodes.iter().cloned()).runtime(sim.clone()).build().ok();
    let managers = [manager()?, manager()?];
    Some((sim, managers))
}

criterion_group!(benches, attempt, cycle, several_keys, extend, contended);
criterion_main!(benches);
