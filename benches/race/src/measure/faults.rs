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

/// The one that fails: last, so that a serial client is not hurt more than it deserves.
const NODE: usize = FIVE - 1;

const TTL: f64 = 10.0;

/// In a setting: what the others are compared to.
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

/// How much a client keeps for a node that does not answer: for a minute, which is six ttls. Where
/// samples are longer or shorter than usual, so is this.
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

/// Each contestant meets all faults one right after the other: what disturbs one of these samples
/// disturbs the others, and the ratio of two of them the less.
fn grid(
    race: &mut Race<'_>,
    measure: &'static str,
    faults: &[(&'static str, Fault)],
    repetitions: usize,
) -> Outcome {
    for repetition in 0..repetitions {
        // rslock, which comes last, takes seconds for a cycle with a node that hangs.
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
        let told = worker.wait_until_done()?;
        match self.fault {
            Fault::None => {}
            Fault::Hung(_) => {
                race.arena.node(NODE).resume();
                // It answers what it owes, and is no longer one that `close` does not wait for.
                thread::sleep(Duration::from_millis(200));
            }
            Fault::Dead(_) => race.arena.restart(NODE),
        }
        told.enter(&mut race.book, measure, setting, contestant);
        worker.finish()?.enter(&mut race.book, measure, setting, contestant);
        race.arena.sweep(&mut race.book, contestant, &format!("{measure}, {setting}"));
        Ok(())
    }
}
