//! One node of five hangs (`SIGSTOP`) or dies (`SIGKILL`), before the start or in the middle.

use std::thread;
use std::time::Duration;

use super::Race;
use crate::Outcome;
use crate::arena::FIVE;
use crate::book::PAST_CLEANUP;
use crate::contest::{ALL, BARE_REDIS, QUORATE_FRED, QUORATE_REDIS};
use crate::plan::rotated;
use crate::spec::Spec;

/// The node that fails: the last one, since a client that calls nodes one by one has its quorum before.
const NODE: usize = FIVE - 1;

const TTL: f64 = 10.0;

/// The setting that the others are compared to.
pub(crate) const HEALTHY: &str = "healthy";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Hung(When),
    Dead(When),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    During,
}

pub(super) fn hung(race: &mut Race<'_>) -> Outcome {
    let faults = [
        (HEALTHY, Fault::None),
        ("hung before", Fault::Hung(When::Before)),
        ("hung during", Fault::Hung(When::During)),
    ];
    let repetitions = race.plan.repetitions();
    grid(race, "hung", &faults, repetitions)
}

pub(super) fn dead(race: &mut Race<'_>) -> Outcome {
    let faults =
        [("dead before", Fault::Dead(When::Before)), ("dead during", Fault::Dead(When::During))];
    let repetitions = race.plan.repetitions_up_to(3);
    grid(race, "dead", &faults, repetitions)
}

/// Measures the memory that a client uses while a node hangs, for 150 samples' time: 60 s by default,
/// which is six ttls.
pub(super) fn memory(race: &mut Race<'_>) -> Outcome {
    let samples = if race.plan.quick { 10.0 } else { 150.0 };
    let seconds = samples * race.plan.sample.as_secs_f64();
    for contestant in [QUORATE_REDIS, QUORATE_FRED, BARE_REDIS] {
        let spec = Spec::new("cycle", contestant)
            .with("runtime", "current-thread")
            .with("tasks", 64)
            .with("record", 0)
            .with("ttl", TTL)
            .with("seconds", seconds);
        let past = if seconds > TTL { PAST_CLEANUP } else { "within the ttl" };
        let setting = format!("hung {past}, seconds: {seconds:.1}");
        let load = Load { spec, fault: Fault::Hung(When::During), strikes_after: Duration::ZERO };
        load.sample(race, "memory", &setting, contestant)?;
    }
    Ok(())
}

/// Measures all faults of one contestant directly after each other, so that a disturbance affects all
/// and their ratios less.
fn grid(
    race: &mut Race<'_>,
    measure: &'static str,
    faults: &[(&'static str, Fault)],
    repetitions: usize,
) -> Outcome {
    for repetition in 0..repetitions {
        // With a hung node rslock, the last contestant, takes seconds for a cycle.
        for contestant in rotated(race.plan.few(&ALL, ALL.len() - 1), repetition) {
            for (setting, fault) in rotated(faults, repetition) {
                let spec = Spec::new("cycle", contestant)
                    .with("runtime", "current-thread")
                    .with("tasks", 1)
                    .with("ttl", TTL)
                    .seconds(race.plan.sample * 2);
                let load = Load { spec, fault, strikes_after: race.plan.sample / 5 };
                load.sample(race, measure, setting, contestant)?;
            }
        }
    }
    Ok(())
}

struct Load {
    spec: Spec,
    fault: Fault,
    strikes_after: Duration,
}

impl Load {
    fn sample(
        self,
        race: &mut Race<'_>,
        measure: &'static str,
        setting: &str,
        contestant: &'static str,
    ) -> Outcome {
        match self.fault {
            Fault::Hung(When::Before) => race.arena.node(NODE).pause(),
            Fault::Dead(When::Before) => race.arena.node(NODE).kill(),
            _ => {}
        }
        let mut worker = race.arena.spawn(&self.spec, FIVE)?;
        worker.wait_until_ready()?;
        worker.go()?;
        thread::sleep(self.strikes_after);
        match self.fault {
            Fault::Hung(When::During) => race.arena.node(NODE).pause(),
            Fault::Dead(When::During) => race.arena.node(NODE).kill(),
            _ => {}
        }
        let report = worker.wait_until_done()?;
        match self.fault {
            Fault::None => {}
            Fault::Hung(_) => {
                race.arena.node(NODE).resume();
                // The node answers its calls in flight, and `close` waits for it again.
                thread::sleep(Duration::from_millis(200));
            }
            Fault::Dead(_) => race.arena.restart(NODE),
        }
        report.enter(&mut race.book, measure, setting, contestant);
        worker.finish()?.enter(&mut race.book, measure, setting, contestant);
        race.arena.sweep(&mut race.book, contestant, &format!("{measure}, {setting}"));
        Ok(())
    }
}
