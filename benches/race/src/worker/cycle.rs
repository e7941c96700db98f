//! Acquires and releases uncontended locks without pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{connect, finish, metric, ready};
use crate::Outcome;
use crate::contest::Contestant;
use crate::spec::Spec;
use crate::stats::percentile;
use crate::usage;

/// Runs the job *cycle*. Settings: `tasks`, `seconds`, and `pids` of the nodes.
pub(super) async fn run<C: Contestant>(spec: &Spec) -> Outcome {
    let contestant = Arc::new(connect::<C>(spec).await?);
    let (tasks, time) = (spec.number("tasks")?, spec.time("seconds")?);
    let nodes = spec.list("pids")?;
    run_all(&contestant, tasks, "w", Duration::from_millis(50)).await?;

    ready().await?;
    let (own, theirs, start) = (usage::own_cpu(), usage::cpu_of(&nodes), Instant::now());
    let laps = run_all(&contestant, tasks, "c", time).await?;
    let elapsed = start.elapsed().as_secs_f64();
    let own = usage::own_cpu().saturating_sub(own).as_secs_f64() * 1e6;
    let theirs = usage::cpu_of(&nodes).saturating_sub(theirs).as_secs_f64() * 1e6;

    metric("cycle p50 µs", percentile(&laps.times, 50.0));
    metric("cycle p99 µs", percentile(&laps.times, 99.0));
    metric("cycles/s", laps.cycles as f64 / elapsed);
    metric("client CPU µs/cycle", own / laps.cycles as f64);
    metric("node CPU µs/cycle", theirs / laps.cycles as f64);
    metric("failed", laps.failed);
    finish(&*contestant).await
}

/// The results of a load. The times of cycles are in microseconds.
#[derive(Default)]
struct Laps {
    cycles: u64,
    failed: u64,
    times: Vec<f64>,
}

async fn run_all<C: Contestant>(
    contestant: &Arc<C>,
    tasks: usize,
    name: &str,
    time: Duration,
) -> Outcome<Laps> {
    let deadline = Instant::now() + time;
    let task = |task| {
        let prefix = format!("race:{}:{name}:{task}", std::process::id());
        tokio::spawn(run_one(Arc::clone(contestant), prefix, deadline))
    };
    let tasks: Vec<_> = (0..tasks).map(task).collect();
    let mut all = Laps::default();
    for task in tasks {
        let laps = task.await?;
        all.cycles += laps.cycles;
        all.failed += laps.failed;
        all.times.extend(laps.times);
    }
    Ok(all)
}

async fn run_one<C: Contestant>(contestant: Arc<C>, prefix: String, deadline: Instant) -> Laps {
    let mut laps = Laps::default();
    let mut start = Instant::now();
    while start < deadline {
        let number = laps.cycles + laps.failed;
        let released = match contestant.acquire(&format!("{prefix}:{number}")).await {
            Some(held) => contestant.release(held).await,
            None => false,
        };
        let end = Instant::now();
        laps.failed += u64::from(!released);
        laps.cycles += u64::from(released);
        if released {
            laps.times.push((end - start).as_secs_f64() * 1e6);
        }
        start = end;
    }
    laps
}
