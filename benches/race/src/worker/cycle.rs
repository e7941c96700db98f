//! Acquires and releases uncontended locks without pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{connect, finish, metric, ready};
use crate::Outcome;
use crate::contest::Contestant;
use crate::spec::Spec;
use crate::stats::percentile;
use crate::usage;

/// Runs the job *cycle*. Settings: `tasks`, `seconds`, `pids` of the nodes, and `record=0` to keep no
/// latencies, which take memory.
pub(super) async fn run<C: Contestant>(spec: &Spec) -> Outcome {
    let contestant = Arc::new(connect::<C>(spec).await?);
    let (tasks, time) = (spec.number("tasks")?, spec.time("seconds")?);
    let enough = Arc::new(AtomicBool::new(false));
    let records = spec.number_or("record", 1u8)? == 1;
    let load = Load { tasks, records, enough, count: Arc::default() };
    let nodes = spec.list("pids")?;
    load.run(&contestant, "w", Duration::from_millis(50)).await?;

    ready().await?;
    let memory = megabytes();
    let (own, theirs, start) = (usage::own_cpu(), usage::cpu_of(&nodes), Instant::now());
    let watch = load.clone().watch(time);
    let watch = (!load.records).then(|| tokio::spawn(watch));
    let laps = load.run(&contestant, "c", time).await?;
    if let Some(watch) = watch {
        watch.abort();
    }
    let elapsed = start.elapsed().as_secs_f64();
    let cycles = laps.cycles as f64;
    let (own, theirs) =
        (usage::own_cpu().saturating_sub(own), usage::cpu_of(&nodes).saturating_sub(theirs));

    metric("cycles", cycles);
    metric("failed", laps.failed);
    metric("cycles/s", cycles / elapsed);
    metric("client CPU µs/cycle", own.as_secs_f64() * 1e6 / cycles);
    metric("node CPU µs/cycle", theirs.as_secs_f64() * 1e6 / cycles);
    metric("RSS growth MB", megabytes() - memory);
    metric("RSS MB", megabytes());
    if load.records {
        laps.report();
    }
    finish(&*contestant).await
}

#[derive(Clone)]
struct Load {
    tasks: usize,
    records: bool,
    /// Ends the load early.
    enough: Arc<AtomicBool>,
    /// The cycles so far.
    count: Arc<AtomicU64>,
}

/// A load that uses more memory than this is ended.
const MOST_MEGABYTES: f64 = 4000.0;

fn megabytes() -> f64 {
    usage::rss() as f64 / 1e6
}

/// The results of a load, latencies in microseconds.
#[derive(Default)]
struct Laps {
    cycles: u64,
    failed: u64,
    acquires: Vec<f64>,
    releases: Vec<f64>,
    both: Vec<f64>,
}

impl Load {
    /// Reports memory and speed in each sixth of the time. Ends a load that uses too much memory.
    async fn watch(self, time: Duration) {
        const LOOKS: u32 = 6;
        let start = Instant::now();
        for look in 1..LOOKS {
            let count = self.count.load(Ordering::Relaxed);
            while start.elapsed() < time / LOOKS * look {
                if megabytes() > MOST_MEGABYTES {
                    metric("ended after s", start.elapsed().as_secs_f64());
                    self.enough.store(true, Ordering::Relaxed);
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let done = self.count.load(Ordering::Relaxed) - count;
            metric(&format!("RSS MB at {look}/{LOOKS}"), megabytes());
            let each = (time / LOOKS).as_secs_f64();
            metric(&format!("cycles/s until {look}/{LOOKS}"), done as f64 / each);
        }
    }

    async fn run<C: Contestant>(
        &self,
        contestant: &Arc<C>,
        name: &str,
        time: Duration,
    ) -> Outcome<Laps> {
        let deadline = Instant::now() + time;
        let tasks: Vec<_> = (0..self.tasks)
            .map(|task| {
                let prefix = format!("race:{}:{name}:{task}", std::process::id());
                let lap = self.clone().task(Arc::clone(contestant), prefix, deadline);
                tokio::spawn(lap)
            })
            .collect();
        let mut all = Laps::default();
        for task in tasks {
            all.add(task.await?);
        }
        Ok(all)
    }

    async fn task<C: Contestant>(
        self,
        contestant: Arc<C>,
        prefix: String,
        deadline: Instant,
    ) -> Laps {
        let mut laps = Laps::default();
        let mut start = Instant::now();
        while start < deadline && !self.enough.load(Ordering::Relaxed) {
            let number = laps.cycles + laps.failed;
            let Some(held) = contestant.acquire(&format!("{prefix}:{number}")).await else {
                laps.failed += 1;
                start = Instant::now();
                continue;
            };
            let acquired = Instant::now();
            let released = contestant.release(held).await;
            let end = Instant::now();
            laps.failed += u64::from(!released);
            laps.cycles += u64::from(released);
            self.count.fetch_add(1, Ordering::Relaxed);
            if self.records {
                laps.acquires.push(micros(acquired - start));
                laps.releases.push(micros(end - acquired));
                laps.both.push(micros(end - start));
            }
            start = end;
        }
        laps
    }
}

impl Laps {
    fn add(&mut self, other: Self) {
        self.cycles += other.cycles;
        self.failed += other.failed;
        self.acquires.extend(other.acquires);
        self.releases.extend(other.releases);
        self.both.extend(other.both);
    }

    fn report(&self) {
        for (what, times) in
            [("cycle", &self.both), ("acquire", &self.acquires), ("release", &self.releases)]
        {
            metric(&format!("{what} p50 µs"), percentile(times, 50.0));
            metric(&format!("{what} p99 µs"), percentile(times, 99.0));
            metric(&format!("{what} max µs"), percentile(times, 100.0));
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
