//! The load on the nodes while processes wait for a long hold.

use std::thread;

use super::Race;
use crate::Outcome;
use crate::arena::FIVE;
use crate::contest::{BARE_REDIS, QUORATE_FRED, QUORATE_REDIS, RSLOCK};
use crate::plan::rotated;
use crate::spec::Spec;

const WAITERS: u32 = 8;

pub(super) fn waiting(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions_up_to(2) {
        for contestant in rotated(&[QUORATE_REDIS, QUORATE_FRED, BARE_REDIS, RSLOCK], repetition) {
            sample(race, contestant)?;
        }
    }
    Ok(())
}

fn sample(race: &mut Race<'_>, contestant: &'static str) -> Outcome {
    const SETTING: &str = "8 in processes: 8";
    let spec = |job| {
        let spec = Spec::new(job, contestant).with("runtime", "current-thread");
        spec.with("tasks", 1).with("ttl", 20)
    };
    let mut holder = race.arena.spawn(&spec("hold"), FIVE)?;
    holder.wait_until_ready()?;
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(race.arena.spawn(&spec("take"), FIVE)?);
    }
    for waiter in &mut waiters {
        waiter.wait_until_ready()?;
        waiter.go()?;
    }
    // The first attempts follow each other faster than later ones.
    let time = race.plan.sample * 2;
    thread::sleep(time);
    let before = race.arena.done();
    thread::sleep(time);
    let done = race.arena.done().since(&before);
    let each = time.as_secs_f64() * f64::from(WAITERS);
    holder.go()?;
    holder.wait_until_done()?;
    for waiter in &mut waiters {
        waiter.wait_until_done()?;
    }
    for worker in waiters.into_iter().chain([holder]) {
        worker.finish()?;
    }
    for (metric, value) in [
        ("commands/s of a waiter", done.commands / each),
        ("scripts/s of a waiter", done.evals / each),
        ("rounds/s of a waiter", done.sets.iter().sum::<f64>() / FIVE as f64 / each),
    ] {
        race.book.add("waiting", SETTING, contestant, metric, value);
    }
    race.arena.sweep(&mut race.book, contestant, "waiting");
    Ok(())
}
