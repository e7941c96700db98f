//! The delay between the expiry of a killed holder's keys and the next holder.

use std::thread;
use std::time::Duration;

use super::Race;
use crate::Outcome;
use crate::arena::FIVE;
use crate::contest::LIBRARIES;
use crate::plan::rotated;
use crate::spec::Spec;
use crate::stats::median;
use crate::usage::clock;

pub(super) fn crash(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions() {
        for contestant in rotated(&LIBRARIES, repetition) {
            sample(race, contestant)?;
        }
    }
    Ok(())
}

fn sample(race: &mut Race<'_>, contestant: &'static str) -> Outcome {
    let ttl = if race.plan.quick { 0.3 } else { 1.0 };
    let setting = format!("ttl: {ttl} s");
    let spec = |job| {
        let spec = Spec::new(job, contestant).with("runtime", "current-thread");
        spec.with("tasks", 1).with("ttl", ttl)
    };
    // The waiter connects before the holder acquires, so the held key has most of its ttl left.
    let mut waiter = race.arena.spawn(&spec("take"), FIVE)?;
    waiter.wait_until_ready()?;
    let mut holder = race.arena.spawn(&spec("hold"), FIVE)?;
    holder.wait_until_ready()?;
    waiter.go()?;
    thread::sleep(Duration::from_millis(100));
    let left: Vec<f64> =
        (0..FIVE).map(|node| race.arena.node(node).pttl("race:held") as f64).collect();
    let seen = clock();
    holder.kill()?;
    let report = waiter.wait_until_done()?;
    let acquired = report.metric("acquired").ok_or("the waiter did not say when")?;
    waiter.finish()?;
    let after = (acquired - seen as f64) / 1e6 - median(&left);
    race.book.add("crash", &setting, contestant, "ms beyond the ttl", after);
    race.arena.sweep(&mut race.book, contestant, "crash");
    Ok(())
}
