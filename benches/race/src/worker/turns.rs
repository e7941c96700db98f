//! Cycles of four variants in turn, so that a disturbance affects all: plain, fenced, guarded, and both.

use std::time::{Duration, Instant};

use quorate::LockManager;

use super::{connect, finish, metric, ready};
use crate::Outcome;
use crate::contest::{Manages, TURNS, Variant};
use crate::plan::rotated;
use crate::spec::Spec;
use crate::stats::percentile;

/// With the restart guard a new node is in quarantine for one ttl.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the job *turns*. Settings: `seconds`, `ttl`.
pub(super) async fn run<M: Manages>(spec: &Spec) -> Outcome {
    let plain = connect::<M>(spec).await?;
    let guarded = connect::<M::Guarded>(spec).await?;
    let mut laps = TURNS.map(|variant| Laps::new(variant, &plain, &guarded));
    turns(&mut laps, Duration::from_millis(100)).await?;
    laps.iter_mut().for_each(Laps::clear);
    ready().await?;
    turns(&mut laps, spec.time("seconds")?).await?;
    for lap in &laps {
        lap.report();
    }
    finish(&plain).await
}

async fn turns(laps: &mut [Laps<'_>; 4], time: Duration) -> Outcome {
    let start = Instant::now();
    let mut turn = 0;
    while start.elapsed() < time {
        for place in rotated(&[0, 1, 2, 3], turn) {
            laps[place].cycle(turn).await?;
        }
        turn += 1;
    }
    Ok(())
}

struct Laps<'a> {
    variant: Variant,
    manager: &'a LockManager,
    acquires: Vec<f64>,
    releases: Vec<f64>,
    both: Vec<f64>,
}

impl<'a> Laps<'a> {
    fn new<M: Manages>(variant: Variant, plain: &'a M, guarded: &'a M::Guarded) -> Self {
        let manager = if variant.guarded { guarded.manager() } else { plain.manager() };
        Self { variant, manager, acquires: Vec::new(), releases: Vec::new(), both: Vec::new() }
    }

    async fn cycle(&mut self, turn: usize) -> Outcome {
        let name = format!("race:{}:{}:{turn}", std::process::id(), self.variant.name);
        let request = self.manager.lock(name).timeout(TIMEOUT);
        let request = if self.variant.fenced { request.fenced() } else { request };
        let start = Instant::now();
        let guard = request.await?;
        let acquired = Instant::now();
        guard.release().await?;
        let end = Instant::now();
        self.acquires.push(micros(acquired - start));
        self.releases.push(micros(end - acquired));
        self.both.push(micros(end - start));
        Ok(())
    }

    fn clear(&mut self) {
        self.acquires.clear();
        self.releases.clear();
        self.both.clear();
    }

    fn report(&self) {
        let name = self.variant.name;
        metric(&format!("{name}: cycle p99 µs"), percentile(&self.both, 99.0));
        for (what, times) in
            [("cycle", &self.both), ("acquire", &self.acquires), ("release", &self.releases)]
        {
            metric(&format!("{name}: {what} p50 µs"), percentile(times, 50.0));
        }
        metric(&format!("{name}: cycles"), self.both.len());
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
