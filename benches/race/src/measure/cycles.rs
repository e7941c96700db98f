//! Cycles of an acquire and a release without contention.

use super::Race;
use crate::Outcome;
use crate::arena::FIVE;
use crate::contest::{BARE_REDIS, ON_ONE_NODE, QUORATE_FRED, QUORATE_REDIS, WITH_VARIANTS};
use crate::plan::rotated;
use crate::spec::Spec;

const RUNTIMES: [&str; 2] = ["current-thread", "multi-thread"];

/// Measures one task.
pub(super) fn latency(race: &mut Race<'_>) -> Outcome {
    let repetitions = race.plan.repetitions_of_what_varies();
    grid(race, "latency", &WITH_VARIANTS, &[1], FIVE, repetitions)
}

/// Measures many tasks.
pub(super) fn throughput(race: &mut Race<'_>) -> Outcome {
    let tasks = race.plan.few(&[16, 64, 256], 1);
    grid(race, "throughput", &WITH_VARIANTS, tasks, FIVE, race.plan.repetitions())
}

/// Measures one task and many tasks on a single node.
pub(super) fn one_node(race: &mut Race<'_>) -> Outcome {
    let tasks = race.plan.few(&[1, 16, 64], 2);
    grid(race, "one-node", &ON_ONE_NODE, tasks, 1, race.plan.repetitions())
}

/// Measures one task on one to seven nodes.
pub(super) fn nodes(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions() {
        for count in [1, 3, 5, 7] {
            for contestant in rotated(&[QUORATE_REDIS, QUORATE_FRED, BARE_REDIS], repetition) {
                let sample = Sample { contestant, runtime: RUNTIMES[0], tasks: 1, nodes: count };
                sample.take(race, "nodes", &format!("{count} nodes"))?;
            }
        }
    }
    Ok(())
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
                    let sample = Sample { contestant, runtime, tasks, nodes };
                    sample.take(race, measure, &format!("{runtime}, tasks: {tasks}"))?;
                }
            }
        }
    }
    Ok(())
}

struct Sample {
    contestant: &'static str,
    runtime: &'static str,
    tasks: usize,
    nodes: usize,
}

impl Sample {
    fn take(&self, race: &mut Race<'_>, measure: &'static str, setting: &str) -> Outcome {
        let spec = Spec::new("cycle", self.contestant)
            .with("runtime", self.runtime)
            .with("tasks", self.tasks)
            .with("ttl", 10)
            .seconds(race.plan.sample);
        let mut worker = race.arena.spawn(&spec, self.nodes)?;
        worker.wait_until_ready()?;
        worker.go()?;
        let report = worker.wait_until_done()?;
        report.enter(&mut race.book, measure, setting, self.contestant);
        worker.finish()?.enter(&mut race.book, measure, setting, self.contestant);
        race.arena.sweep(&mut race.book, self.contestant, &format!("{measure}, {setting}"));
        Ok(())
    }
}
