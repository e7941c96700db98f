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
        ("healthy", Fault::None),
        ("hung before", Fault::Hung(When::Before)),
        ("hung during", Fault::Hung(When::During)),
    ];
    grid(race, "hung", &faults)
}

pub(super) fn dead(race: &mut Race<'_>) -> Outcome {
    let faults =
        [("dead before", Fault::Dead(When::Before)), ("dead during", Fault::Dead(When::During))];
    grid(race, "dead", &faults)
}

/// How much a client keeps in memory for a node that does not answer: for three ttls, or, with
/// `--seconds 0.8`, for a minute.
pub(super) fn memory(race: &mut Race<'_>) -> Outcome {
    let samples = if race.plan.quick { 10.0 } else { 75.0 };
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

fn grid(race: &mut Race<'_>, measure: &'static str, faults: &[(&'static str, Fault)]) -> Outcome {
    for repetition in 0..race.plan.repetitions_up_to(3) {
        for (setting, fault) in faults {
            // rslock, which comes last, takes seconds for a cycle with a node that hangs.
            for contestant in rotated(race.plan.few(&ALL, ALL.len() - 1), repetition) {
                let spec = Spec::new("cycle", contestant)
                    .with("runtime", "current-thread")
                    .with("tasks", 1)
                    .with("ttl", TTL)
                    .seconds(race.plan.sample * 2);
                let load = Load { spec, fault: *fault, strikes_after: race.plan.sample / 5 };
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
            Fault::Hung(_) => race.arena.node(NODE).resume(),
            Fault::Dead(_) => race.arena.restart(NODE),
        }
        told.enter(&mut race.book, measure, setting, contestant);
        worker.finish()?.enter(&mut race.book, measure, setting, contestant);
        race.arena.sweep(&mut race.book, contestant, &format!("{measure}, {setting}"));
        Ok(())
    }
}
