//! Takes and gives back locks that nobody else wants, as fast as it can.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{connect, finish, metric, ready};
use crate::Outcome;
use crate::contest::Contestant;
use crate::spec::Spec;
use crate::stats::percentile;
use crate::usage;

/// `tasks`, `seconds`; `record=0` for no latencies, which take memory; `pids` of the nodes.
pub(super) async fn run<C: Contestant>(spec: &Spec) -> Outcome {
    let contestant = Arc::new(connect::<C>(spec).await?);
    let (tasks, time) = (spec.number("tasks")?, spec.time("seconds")?);
    let load = Load { tasks, records: spec.number_or("record", 1u8)? == 1 };
    let nodes = spec.list("pids")?;
    load.run(&contestant, "w", Duration::from_millis(50)).await?;

    ready().await?;
    let memory = usage::rss();
    let (own, theirs, start) = (usage::cpu("self"), usage::cpu_of(&nodes), Instant::now());
    let laps = load.run(&contestant, "c", time).await?;
    let elapsed = start.elapsed().as_secs_f64();
    let cycles = laps.cycles as f64;
    let (own, theirs) =
        (usage::cpu("self").saturating_sub(own), usage::cpu_of(&nodes).saturating_sub(theirs));

    metric("cycles", cycles);
    metric("failed", laps.failed);
    metric("cycles/s", cycles / elapsed);
    metric("client CPU µs/cycle", own.as_secs_f64() * 1e6 / cycles);
    metric("node CPU µs/cycle", theirs.as_secs_f64() * 1e6 / cycles);
    metric("RSS growth MB", (usage::rss() as f64 - memory as f64) / 1e6);
    metric("RSS MB", usage::rss() as f64 / 1e6);
    if load.records {
        laps.tell();
    }
    finish(&*contestant).await
}

#[derive(Clone, Copy)]
struct Load {
    tasks: usize,
    records: bool,
}

/// What happened, latencies in microseconds.
#[derive(Default)]
struct Laps {
    cycles: u64,
    failed: u64,
    acquires: Vec<f64>,
    releases: Vec<f64>,
    both: Vec<f64>,
}

impl Load {
    async fn run<C: Contestant>(
        self,
        contestant: &Arc<C>,
        name: &str,
        time: Duration,
    ) -> Outcome<Laps> {
        let deadline = Instant::now() + time;
        let tasks: Vec<_> = (0..self.tasks)
            .map(|task| {
                let prefix = format!("race:{}:{name}:{task}", std::process::id());
                let lap = self.task(Arc::clone(contestant), prefix, deadline);
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
        while start < deadline {
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

    fn tell(&self) {
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
