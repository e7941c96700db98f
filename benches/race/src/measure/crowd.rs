//! Measures of many that compete for one lock.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::{ENTRIES_LAST, FIVE, Race, SECOND, job, rotated};
use crate::Outcome;
use crate::arena::{Arena, Worker};
use crate::book::{PAST_CLEANUP, median, percentile};
use crate::contest::{ALL, BARE_REDIS, OURS, QUORATE_FRED, QUORATE_REDIS, RSLOCK};
use crate::worker::Job;

struct Crowd {
    measure: &'static str,
    setting: String,
    processes: usize,
    each: usize,
    hold: Duration,
    time: Duration,
}

/// Measures sixteen tasks of one process, for five samples' time: shares need many holds.
pub(super) fn one_key(race: &mut Race<'_>) -> Outcome {
    let (setting, time) = ("one process, tasks: 16".to_owned(), race.plan.sample() * 5);
    let crowd = Crowd { processes: 1, each: 16, ..Crowd::new("one-key", setting, time) };
    for repetition in 0..race.plan.repetitions {
        for contestant in rotated(&[QUORATE_REDIS, QUORATE_FRED, RSLOCK], repetition) {
            crowd.contend(race, contestant, |_, _| Ok(()))?;
        }
    }
    Ok(())
}

/// Measures eight processes; then two of them are killed, and then the gate node hangs.
pub(super) fn handover(race: &mut Race<'_>) -> Outcome {
    let setting = "8 in processes: 8".to_owned();
    let healthy = Crowd::new("handover", setting, race.plan.sample() * 2);
    for repetition in 0..race.plan.repetitions {
        for contestant in rotated(&ALL, repetition) {
            healthy.contend(race, contestant, |_, _| Ok(()))?;
        }
    }
    let hangs = if race.plan.quick { SECOND } else { 15 * SECOND };
    let killed = Crowd::new("handover", "2 of 8 are killed".to_owned(), 4 * SECOND);
    let setting = format!("the gate hangs for {hangs:?}, {PAST_CLEANUP}");
    let hung = Crowd::new("handover", setting, hangs + 4 * SECOND);
    for repetition in 0..race.plan.repetitions.min(3) {
        for contestant in rotated(&OURS, repetition) {
            // If a killed process held the lock, or had an acquire in flight, the gap is the ttl.
            killed.contend(race, contestant, |_, workers| {
                thread::sleep(SECOND);
                workers.drain(2..4);
                Ok(())
            })?;
            hung.contend(race, contestant, |arena, _| {
                thread::sleep(SECOND);
                let gate = gate_of(arena);
                arena.node(gate).pause();
                thread::sleep(hangs);
                arena.node(gate).resume();
                Ok(())
            })?;
        }
    }
    Ok(())
}

fn gate_of(arena: &Arena) -> usize {
    // The wait queue may be empty at one look.
    let mut looks = (0..100).flat_map(|_| 0..FIVE);
    let keeps = |node: &usize| arena.node(*node).keys().iter().any(|key| key.ends_with(":waiters"));
    looks.find(keeps).unwrap_or(0)
}

/// Measures the load on the nodes in the second half of a hold that seven processes wait for.
pub(super) fn waiting(race: &mut Race<'_>) -> Outcome {
    let (setting, half) = ("7 in processes: 7", race.plan.sample() * 3);
    let crowd = Crowd::new("waiting", setting.to_owned(), half * 2);
    let crowd = Crowd { hold: half * 2, ..crowd };
    for repetition in 0..race.plan.repetitions.min(2) {
        for contestant in rotated(&[QUORATE_REDIS, QUORATE_FRED, BARE_REDIS, RSLOCK], repetition) {
            let mut load = 0.0;
            crowd.run(race, contestant, |arena, _| {
                // The first attempts follow each other faster than later ones.
                thread::sleep(half);
                let before = arena.commands();
                thread::sleep(half.mul_f64(0.8));
                load = arena.commands() - before;
                Ok(())
            })?;
            let figure = ["waiting", setting, contestant, "commands/s of a waiter"];
            race.book.add(figure, load / (half.as_secs_f64() * 0.8 * 7.0));
        }
    }
    Ok(())
}

/// What happens while a crowd competes.
trait Meanwhile: FnOnce(&Arena, &mut Vec<Worker>) -> Outcome {}

impl<F: FnOnce(&Arena, &mut Vec<Worker>) -> Outcome> Meanwhile for F {}

impl Crowd {
    /// Eight processes of one contender that holds the lock for 1 ms.
    fn new(measure: &'static str, setting: String, time: Duration) -> Self {
        let hold = Duration::from_millis(1);
        Self { measure, setting, processes: 8, each: 1, hold, time }
    }

    /// Lets the crowd compete, and records figures.
    fn contend(&self, race: &mut Race<'_>, contestant: &str, meanwhile: impl Meanwhile) -> Outcome {
        let (holds, contenders, commands) = self.run(race, contestant, meanwhile)?;
        for (metric, value) in figures(holds, commands, self.time, contenders) {
            race.book.add([self.measure, &self.setting, contestant, metric], value);
        }
        Ok(())
    }

    /// Returns the holds, the number of contenders that were left, and the commands of the nodes.
    fn run(
        &self,
        race: &mut Race<'_>,
        contestant: &str,
        meanwhile: impl Meanwhile,
    ) -> Outcome<(Vec<Hold>, usize, f64)> {
        let job =
            Job { count: self.each, hold: self.hold, ..job("contend", contestant, self.time) };
        let spawn =
            |process| race.arena.spawn(&Job { first: process * self.each, ..job.clone() }, FIVE);
        let mut workers = (0..self.processes).map(spawn).collect::<Outcome<Vec<_>>>()?;
        workers.iter_mut().try_for_each(|worker| worker.wait_until("ready").map(drop))?;
        let before = race.arena.commands();
        workers.iter_mut().try_for_each(Worker::go)?;
        meanwhile(&race.arena, &mut workers)?;
        let contenders = workers.len() * self.each;
        let mut holds = Vec::new();
        for worker in &mut workers {
            holds.extend(worker.wait_until("done")?.events);
        }
        let commands = race.arena.commands() - before;
        workers.into_iter().try_for_each(Worker::finish)?;
        if contenders < self.processes * self.each {
            if race.plan.quick {
                race.arena.mend();
            } else {
                thread::sleep(ENTRIES_LAST);
            }
        }
        let place = format!("{}, {}", self.measure, self.setting);
        race.arena.sweep(&mut race.book, contestant, &place);
        Ok((holds, contenders, commands))
    }
}

/// One hold of the lock: the contender, and when it asked, acquired and began to release, in nanoseconds.
type Hold = [u64; 4];

fn figures(
    mut holds: Vec<Hold>,
    commands: f64,
    time: Duration,
    contenders: usize,
) -> Vec<(&'static str, f64)> {
    holds.sort_by_key(|[_, _, acquired, _]| *acquired);
    let count = holds.len() as f64;
    let pairs: Vec<_> = holds.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let to_another = pairs.iter().filter(|(one, next)| one[0] != next[0]).count() as f64;
    let overlaps = pairs.iter().filter(|(one, next)| next[2] < one[3]).count() as f64;
    // Measured from the start of the release.
    let gap = |(one, next): &(Hold, Hold)| next[2].saturating_sub(one[3]) as f64 / 1e3;
    let gaps: Vec<f64> = pairs.iter().map(gap).collect();
    let mut served: BTreeMap<u64, usize> = BTreeMap::new();
    holds.iter().for_each(|[who, ..]| *served.entry(*who).or_default() += 1);
    let fewest = served.values().min().filter(|_| served.len() >= contenders);
    // The holds of a contender, as a fraction of the mean.
    let share = fewest.map_or(0.0, |fewest| *fewest as f64 * contenders as f64 / count);
    let wait = |[_, asked, acquired, _]: &Hold| (acquired - asked) as f64 / 1e6;
    let waits: Vec<f64> = holds.iter().map(wait).collect();
    let (longest, mean) = (percentile(&waits, 100.0), waits.iter().sum::<f64>() / count.max(1.0));
    vec![
        ("holds/s", count / time.as_secs_f64()),
        ("gap p50 µs", median(&gaps)),
        ("longest gap ms", percentile(&gaps, 100.0) / 1e3),
        ("to another %", 100.0 * to_another / (pairs.len() as f64).max(1.0)),
        ("least share", share),
        ("longest wait ms", longest),
        ("longest wait/mean", longest / mean.max(f64::MIN_POSITIVE)),
        ("commands/hand-over", commands / count.max(1.0)),
        ("overlaps", overlaps),
    ]
}
