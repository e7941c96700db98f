//! Tries for a lock that another process holds.

use super::Race;
use crate::Outcome;
use crate::arena::FIVE;
use crate::contest::{BARE_FRED, BARE_REDIS, QUORATE_FRED, QUORATE_REDIS, RAW};
use crate::plan::rotated;
use crate::spec::Spec;

/// Measures all contestants but rslock, which tries several times.
const TRIERS: [&str; 5] = [QUORATE_REDIS, QUORATE_FRED, BARE_REDIS, BARE_FRED, RAW];

pub(super) fn refused(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions() {
        for contestant in rotated(&TRIERS, repetition) {
            sample(race, contestant)?;
        }
    }
    Ok(())
}

fn sample(race: &mut Race<'_>, contestant: &'static str) -> Outcome {
    const SETTING: &str = "held by another process";
    let spec = |job| {
        let spec = Spec::new(job, contestant).with("runtime", "current-thread");
        spec.with("ttl", 60).seconds(race.plan.sample)
    };
    let mut holder = race.arena.spawn(&spec("hold"), FIVE)?;
    holder.wait_until_ready()?;
    let mut worker = race.arena.spawn(&spec("refused"), FIVE)?;
    worker.wait_until_ready()?;
    worker.go()?;
    worker.wait_until_done()?.enter(&mut race.book, "refused", SETTING, contestant);
    worker.finish()?;
    holder.go()?;
    holder.wait_until_done()?;
    holder.finish()?;
    race.arena.sweep(&mut race.book, contestant, "refused");
    Ok(())
}
