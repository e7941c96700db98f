//! Contenders for the same lock: shares, gaps, waits, and the load on the nodes.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use super::{FIVE, Race};
use crate::Outcome;
use crate::arena::{Arena, Done, Worker};
use crate::book::PAST_CLEANUP;
use crate::contest::{BARE_FRED, BARE_REDIS, LIBRARIES, OURS, QUORATE_FRED, QUORATE_REDIS, RSLOCK};
use crate::plan::rotated;
use crate::spec::Spec;
use crate::stats::{mean, median, percentile};

/// The duration of a hold, except in *waiting*.
const HOLD: Duration = Duration::from_millis(1);

const SECOND: Duration = Duration::from_secs(1);

/// The numbers of the processes that are killed.
const KILLED: [usize; 2] = [2, 3];

/// The longest life of a killed waiter's entry (W3), and 1 s.
const ENTRIES_LAST: Duration = Duration::from_secs(11);

/// The contenders for a lock.
struct Crowd {
    measure: &'static str,
    setting: String,
    processes: usize,
    /// Contenders in each process.
    each: usize,
    hold: Duration,
    time: Duration,
}

/// Measures sixteen tasks of one process, for five samples' time: shares need many holds.
pub(super) fn one_key(race: &mut Race<'_>) -> Outcome {
    let (measure, setting) = ("one-key", "one process, tasks: 16".to_owned());
    let time = race.plan.sample * 5;
    let crowd = Crowd { measure, setting, processes: 1, each: 16, hold: HOLD, time };
    for repetition in 0..race.plan.repetitions {
        for contestant in rotated(&LIBRARIES, repetition) {
            crowd.contend(race, contestant, |_, _| Ok(()))?;
        }
    }
    Ok(())
}

/// Measures eight processes; then two of them are killed, and then the gate node hangs.
pub(super) fn handover(race: &mut Race<'_>) -> Outcome {
    const POLLERS: [&str; 5] = [QUORATE_REDIS, QUORATE_FRED, BARE_REDIS, BARE_FRED, RSLOCK];
    let eight = |setting: &str, time| {
        let (measure, setting) = ("handover", setting.to_owned());
        Crowd { measure, setting, processes: 8, each: 1, hold: HOLD, time }
    };
    let healthy = eight("8 in processes: 8", race.plan.sample * 2);
    for repetition in 0..race.plan.repetitions {
        for contestant in rotated(&POLLERS, repetition) {
            healthy.contend(race, contestant, |_, _| Ok(()))?;
        }
    }
    let hangs = if race.plan.quick { SECOND } else { 15 * SECOND };
    let killed = eight("2 of 8 are killed", 4 * SECOND);
    let hung = eight(&format!("the gate hangs for {hangs:?}, {PAST_CLEANUP}"), hangs + 4 * SECOND);
    for repetition in 0..race.plan.repetitions_up_to(3) {
        for contestant in rotated(&OURS, repetition) {
            // If a killed process held the lock, or had an acquire in flight, the gap is the ttl.
            killed.contend(race, contestant, |_, workers| {
                thread::sleep(SECOND);
                KILLED.into_iter().rev().try_for_each(|place| workers.remove(place).kill())
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

/// Finds the gate node.
fn gate_of(arena: &Arena) -> usize {
    // The wait queue may be empty at one look.
    let mut looks = (0..100).flat_map(|_| 0..FIVE);
    let keeps = |node: &usize| arena.node(*node).keys().iter().any(|key| key.ends_with(":waiters"));
    looks.find(keeps).unwrap_or(0)
}

/// Measures the load on the nodes in the second half of a hold that seven processes wait for.
pub(super) fn waiting(race: &mut Race<'_>) -> Outcome {
    const WAITERS: usize = 7;
    let (measure, setting, half) = ("waiting", "7 in processes: 7", race.plan.sample * 3);
    let (hold, processes) = (half * 2, WAITERS + 1);
    let setting = setting.to_owned();
    let crowd = Crowd { measure, setting, processes, each: 1, hold, time: hold };
    for repetition in 0..race.plan.repetitions_up_to(2) {
        for contestant in rotated(&[QUORATE_REDIS, QUORATE_FRED, BARE_REDIS, RSLOCK], repetition) {
            let mut load = None;
            crowd.run(race, contestant, |arena, _| {
                // The first attempts follow each other faster than later ones.
                thread::sleep(half);
                let before = arena.done();
                thread::sleep(half.mul_f64(0.8));
                load = Some(arena.done().since(&before));
                Ok(())
            })?;
            let load = load.ok_or("no load")?;
            let each = half.as_secs_f64() * 0.8 * WAITERS as f64;
            for (metric, value) in [
                ("commands/s of a waiter", load.commands / each),
                ("rounds/s of a waiter", load.sets / FIVE as f64 / each),
            ] {
                race.book.add(measure, &crowd.setting, contestant, metric, value);
            }
        }
    }
    Ok(())
}

impl Crowd {
    /// Lets the crowd compete, while `meanwhile` disturbs the nodes or the processes, and records figures.
    fn contend(
        &self,
        race: &mut Race<'_>,
        contestant: &'static str,
        meanwhile: impl FnOnce(&Arena, &mut Vec<Worker>) -> Outcome,
    ) -> Outcome {
        let (holds, contenders, done) = self.run(race, contestant, meanwhile)?;
        for (metric, value) in figures(holds, &done, self.time, contenders) {
            race.book.add(self.measure, &self.setting, contestant, metric, value);
        }
        Ok(())
    }

    /// Returns the holds, the number of contenders that were left, and what the nodes did.
    fn run(
        &self,
        race: &mut Race<'_>,
        contestant: &'static str,
        meanwhile: impl FnOnce(&Arena, &mut Vec<Worker>) -> Outcome,
    ) -> Outcome<(Vec<Hold>, usize, Done)> {
        let spec = Spec::new("contend", contestant)
            .with("runtime", "current-thread")
            .with("contenders", self.each)
            .with("ttl", 10)
            .with("hold", self.hold.as_secs_f64())
            .seconds(self.time);
        let spawn =
            |process| race.arena.spawn(&spec.clone().with("first", process * self.each), FIVE);
        let mut workers = (0..self.processes).map(spawn).collect::<Outcome<Vec<_>>>()?;
        workers.iter_mut().try_for_each(|worker| worker.wait_until_ready().map(drop))?;
        let before = race.arena.done();
        workers.iter_mut().try_for_each(Worker::go)?;
        meanwhile(&race.arena, &mut workers)?;
        let contenders = workers.len() * self.each;
        let mut holds = Vec::new();
        for worker in &mut workers {
            let report = worker.wait_until_done()?;
            holds.extend(report.events.iter().filter_map(|event| Hold::read(event)));
        }
        let done = race.arena.done().since(&before);
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
        Ok((holds, contenders, done))
    }
}

/// One hold of the lock. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    who: u64,
    asked: u64,
    acquired: u64,
    releasing: u64,
}

impl Hold {
    fn read(event: &[u64]) -> Option<Self> {
        let &[who, asked, acquired, releasing] = event else {
            return None;
        };
        Some(Self { who, asked, acquired, releasing })
    }
}

fn figures(
    mut holds: Vec<Hold>,
    done: &Done,
    time: Duration,
    contenders: usize,
) -> Vec<(&'static str, f64)> {
    holds.sort_by_key(|hold| hold.acquired);
    let pairs: Vec<_> = holds.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let count = holds.len() as f64;
    let to_another = pairs.iter().filter(|(one, next)| one.who != next.who).count() as f64;
    // Measured from the start of the release.
    let gap = |(one, next): &(Hold, Hold)| next.acquired.saturating_sub(one.releasing) as f64 / 1e3;
    let gaps: Vec<f64> = pairs.iter().map(gap).collect();
    let overlaps = pairs.iter().filter(|(one, next)| next.acquired < one.releasing).count();
    let mut served: BTreeMap<u64, usize> = BTreeMap::new();
    holds.iter().for_each(|hold| *served.entry(hold.who).or_default() += 1);
    let fewest = served.values().min().filter(|_| served.len() >= contenders);
    // The holds of a contender, as a fraction of the mean.
    let share = |holds: Option<&usize>| {
        holds.copied().unwrap_or_default() as f64 * contenders as f64 / count.max(1.0)
    };
    let wait = |hold: &Hold| (hold.acquired - hold.asked) as f64 / 1e6;
    let waits: Vec<f64> = holds.iter().map(wait).collect();
    vec![
        ("holds/s", count / time.as_secs_f64()),
        ("gap p50 µs", median(&gaps)),
        ("longest gap ms", percentile(&gaps, 100.0) / 1e3),
        ("to another %", 100.0 * to_another / (pairs.len() as f64).max(1.0)),
        ("least share", share(fewest)),
        ("greatest share", share(served.values().max())),
        ("longest wait ms", percentile(&waits, 100.0)),
        ("longest wait/mean", percentile(&waits, 100.0) / mean(&waits).max(f64::MIN_POSITIVE)),
        ("commands/hand-over", done.commands / count.max(1.0)),
        ("rounds/hand-over", done.sets / FIVE as f64 / count.max(1.0)),
        ("never served", contenders.saturating_sub(served.len()) as f64),
        ("overlaps", overlaps as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_holds() {
        let hold = |who, acquired, releasing| Hold { who, asked: 0, acquired, releasing };
        let done = Done { commands: 30.0, sets: 15.0, scripts: 15.0 };
        let figure = |holds: &[Hold], name: &str| {
            let figures = figures(holds.to_vec(), &done, Duration::from_secs(1), 8);
            figures.iter().find(|(metric, _)| *metric == name).map(|(_, value)| *value)
        };
        let holds = [hold(2, 11_000, 20_000), hold(1, 1000, 9000)];
        for (name, value) in [
            ("gap p50 µs", 2.0),
            ("to another %", 100.0),
            ("overlaps", 0.0),
            ("never served", 6.0),
            ("least share", 0.0),
            ("greatest share", 4.0),
            ("rounds/hand-over", 1.5),
        ] {
            assert_eq!(figure(&holds, name), Some(value), "{name}");
        }
        let overlapping = [hold(1, 1000, 9000), hold(2, 8000, 20_000)];
        assert_eq!(figure(&overlapping, "overlaps"), Some(1.0));
    }
}
