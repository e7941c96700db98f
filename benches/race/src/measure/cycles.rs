//! Cycles of an acquire and a release without contention, on healthy nodes and with one that hangs.

use std::thread;
use std::time::Duration;

use super::{FIVE, Race};
use crate::Outcome;
use crate::contest::{ALL, FENCED, ON_ONE_NODE, WITH_OWN_THREAD};
use crate::plan::rotated;
use crate::spec::Spec;

const RUNTIMES: [&str; 2] = ["current-thread", "multi-thread"];

/// The node that hangs: the last one, since a client that calls nodes one by one has its quorum before.
const HUNG: usize = FIVE - 1;

/// The setting that those with a hung node are compared to.
pub(crate) const HEALTHY: &str = "healthy";

/// One run of a worker.
struct Sample {
    measure: &'static str,
    contestant: &'static str,
    runtime: &'static str,
    tasks: usize,
    nodes: usize,
    ttl: f64,
    time: Duration,
    /// When a node hangs.
    hang: Hang,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hang {
    Never,
    /// Before the worker connects.
    Before,
    /// When so much of the time has passed.
    After(Duration),
}

/// Measures one task.
pub(super) fn latency(race: &mut Race<'_>) -> Outcome {
    let repetitions = race.plan.repetitions_of_what_varies();
    grid(race, "latency", &WITH_OWN_THREAD, &[1], FIVE, repetitions)
}

/// Measures many tasks.
pub(super) fn throughput(race: &mut Race<'_>) -> Outcome {
    let tasks = race.plan.few(&[16, 64, 256], 1);
    grid(race, "throughput", &WITH_OWN_THREAD, tasks, FIVE, race.plan.repetitions)
}

/// Measures one task and many tasks on a single node.
pub(super) fn one_node(race: &mut Race<'_>) -> Outcome {
    let tasks = race.plan.few(&[1, 16, 64], 2);
    grid(race, "one-node", &ON_ONE_NODE, tasks, 1, race.plan.repetitions)
}

fn grid(
    race: &mut Race<'_>,
    measure: &'static str,
    contestants: &[&'static str],
    tasks: &[usize],
    nodes: usize,
    repetitions: usize,
) -> Outcome {
    for repetition in 0..repetitions {
        for runtime in RUNTIMES {
            for &tasks in tasks {
                for contestant in rotated(contestants, repetition) {
                    let sample = Sample::new(race, measure, contestant);
                    let setting = format!("{runtime}, tasks: {tasks}");
                    Sample { runtime, tasks, nodes, ..sample }.take(race, &setting)?;
                }
            }
        }
    }
    Ok(())
}

/// Measures one task with fencing tokens and the restart guard. A short ttl makes the first quarantine short.
pub(super) fn fencing(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions {
        for nodes in [3, FIVE] {
            for contestant in rotated(&FENCED, repetition) {
                let sample = Sample::new(race, "fencing", contestant);
                Sample { nodes, ttl: 1.0, ..sample }.take(race, &format!("{nodes} nodes"))?;
            }
        }
    }
    Ok(())
}

/// Measures all settings of one contestant directly after each other, so that a disturbance affects all
/// and their ratios less.
pub(super) fn hung(race: &mut Race<'_>) -> Outcome {
    let during = Hang::After(race.plan.sample / 5);
    let hangs = [(HEALTHY, Hang::Never), ("hung before", Hang::Before), ("hung during", during)];
    for repetition in 0..race.plan.repetitions {
        // With a hung node rslock, the last contestant, takes seconds for a cycle.
        for contestant in rotated(race.plan.few(&ALL, ALL.len() - 1), repetition) {
            for (setting, hang) in rotated(&hangs, repetition) {
                let sample = Sample::new(race, "hung", contestant);
                Sample { hang, time: race.plan.sample * 2, ..sample }.take(race, setting)?;
            }
        }
    }
    Ok(())
}

impl Sample {
    /// One task on five healthy nodes.
    fn new(race: &Race<'_>, measure: &'static str, contestant: &'static str) -> Self {
        let (runtime, time, hang) = (RUNTIMES[0], race.plan.sample, Hang::Never);
        let (tasks, nodes, ttl) = (1, FIVE, 10.0);
        Self { measure, contestant, runtime, tasks, nodes, ttl, time, hang }
    }

    fn take(&self, race: &mut Race<'_>, setting: &str) -> Outcome {
        let spec = Spec::new("cycle", self.contestant)
            .with("runtime", self.runtime)
            .with("tasks", self.tasks)
            .with("ttl", self.ttl)
            .seconds(self.time);
        if self.hang == Hang::Before {
            race.arena.node(HUNG).pause();
        }
        let mut worker = race.arena.spawn(&spec, self.nodes)?;
        worker.wait_until_ready()?;
        worker.go()?;
        if let Hang::After(time) = self.hang {
            thread::sleep(time);
            race.arena.node(HUNG).pause();
        }
        let report = worker.wait_until_done()?;
        if self.hang != Hang::Never {
            race.arena.node(HUNG).resume();
            // The node answers its calls in flight, and `close` waits for it again.
            thread::sleep(Duration::from_millis(200));
        }
        race.book.enter(&report, self.measure, setting, self.contestant);
        worker.finish()?;
        race.arena.sweep(&mut race.book, self.contestant, &format!("{}, {setting}", self.measure));
        Ok(())
    }
}
