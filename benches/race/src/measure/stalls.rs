//! Failures in the wait queue: killed waiters, and a gate node that hangs.

use std::thread;
use std::time::Duration;

use super::Race;
use super::contention::{Crowd, contend_while};
use crate::Outcome;
use crate::arena::{Arena, FIVE};
use crate::book::PAST_CLEANUP;
use crate::contest::OURS;
use crate::plan::rotated;
use crate::spec::Spec;
use crate::stats::{median, percentile};

const WAITERS: usize = 8;

/// Their positions in the wait queue.
const KILLED: [usize; 2] = [2, 3];

/// The longest life of a killed waiter's entry (W3), and 1 s.
const HELPERS_LAST: Duration = Duration::from_secs(11);

/// Two of eight processes are killed while they wait.
pub(super) fn killed(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions_up_to(3) {
        for contestant in rotated(&OURS, repetition) {
            kill_two_waiters(race, contestant)?;
            kill_two_in_a_loop(race, contestant)?;
        }
    }
    Ok(())
}

/// The other processes acquire the lock again and again. In one of four runs a killed process holds the
/// lock, or has an acquire in flight; then the gap is the ttl.
fn kill_two_in_a_loop(race: &mut Race<'_>, contestant: &'static str) -> Outcome {
    let before = Duration::from_secs(1);
    let crowd = Crowd {
        measure: "killed",
        setting: "2 of 8 in a tight loop".to_owned(),
        processes: WAITERS,
        each: 1,
        hold: Duration::from_millis(1),
    };
    contend_while(race, &crowd, contestant, 4 * before, |_, workers| {
        thread::sleep(before);
        KILLED.into_iter().rev().try_for_each(|place| workers.remove(place).kill())
    })?;
    if race.plan.quick {
        race.arena.mend();
    } else {
        thread::sleep(HELPERS_LAST);
    }
    crowd.sweep(race, contestant);
    Ok(())
}

/// Each waiter acquires the lock once.
fn kill_two_waiters(race: &mut Race<'_>, contestant: &'static str) -> Outcome {
    const SETTING: &str = "2 of 8 that take it once";
    let spec = |job| {
        let spec = Spec::new(job, contestant).with("runtime", "current-thread");
        spec.with("tasks", 1).with("ttl", 20)
    };
    let mut holder = race.arena.spawn(&spec("hold"), FIVE)?;
    holder.wait_until_ready()?;
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        let mut waiter = race.arena.spawn(&spec("take"), FIVE)?;
        waiter.wait_until_ready()?;
        waiter.go()?;
        thread::sleep(Duration::from_millis(100));
        waiters.push(waiter);
    }
    for place in KILLED.into_iter().rev() {
        waiters.remove(place).kill()?;
    }
    holder.go()?;
    let mut acquired = Vec::new();
    for waiter in &mut waiters {
        let report = waiter.wait_until_done()?;
        acquired.push(report.metric("acquired").ok_or("a waiter did not say when")? / 1e6);
    }
    holder.wait_until_done()?;
    for worker in waiters.into_iter().chain([holder]) {
        worker.finish()?;
    }
    acquired.sort_by(f64::total_cmp);
    let gaps: Vec<f64> = acquired.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let helpers = helper_keys(&race.arena);
    if !race.plan.quick {
        thread::sleep(HELPERS_LAST);
    }
    for (metric, value) in [
        ("gap p50 ms", median(&gaps)),
        ("longest gap ms", percentile(&gaps, 100.0)),
        ("helper keys", helpers),
        ("helper keys after 11 s", helper_keys(&race.arena)),
    ] {
        race.book.add("killed", SETTING, contestant, metric, value);
    }
    if race.plan.quick {
        race.arena.mend();
    }
    race.arena.sweep(&mut race.book, contestant, "killed");
    Ok(())
}

/// Eight processes compete while the gate node hangs: for 15 s, or 1 s if quick.
pub(super) fn gate(race: &mut Race<'_>) -> Outcome {
    let hangs = Duration::from_secs(if race.plan.quick { 1 } else { 15 });
    let before = Duration::from_secs(1);
    for repetition in 0..race.plan.repetitions_up_to(2) {
        for contestant in rotated(&OURS, repetition) {
            let crowd = Crowd {
                measure: "gate",
                setting: format!("hangs for {hangs:?}, {PAST_CLEANUP}"),
                processes: WAITERS,
                each: 1,
                hold: Duration::from_millis(1),
            };
            contend_while(race, &crowd, contestant, hangs + 4 * before, |arena, _| {
                thread::sleep(before);
                let gate = gate_of(arena);
                arena.node(gate).pause();
                thread::sleep(hangs);
                arena.node(gate).resume();
                Ok(())
            })?;
            crowd.sweep(race, contestant);
        }
    }
    Ok(())
}

/// Finds the gate node.
fn gate_of(arena: &Arena) -> usize {
    // The wait queue may be empty at one look.
    let mut looks = (0..100).flat_map(|_| 0..FIVE);
    let keeps = |node: &usize| arena.node(*node).keys().iter().any(|key| key.ends_with(":waiters"));
    looks.find(keeps).unwrap_or(0)
}

/// Counts the keys of the wait queue on all nodes.
fn helper_keys(arena: &Arena) -> f64 {
    let keys = (0..FIVE).flat_map(|node| arena.node(node).keys());
    keys.filter(|key| key.contains(":quorate:")).count() as f64
}
