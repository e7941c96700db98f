//! Contenders for the same lock: shares, gaps, waits, and the load on the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Race;
use crate::Outcome;
use crate::arena::{Arena, Done, FIVE, Report, Worker};
use crate::contest::{BARE_FRED, BARE_REDIS, LIBRARIES, QUORATE_FRED, QUORATE_REDIS, RSLOCK};
use crate::plan::rotated;
use crate::spec::Spec;
use crate::stats::{mean, median, percentile};

const POLLERS: [&str; 5] = [QUORATE_REDIS, QUORATE_FRED, BARE_REDIS, BARE_FRED, RSLOCK];

/// The contestants that run with a single contender.
const ALONE: [&str; 2] = [BARE_REDIS, BARE_FRED];

/// The duration of a hold, except in *queue*.
const HOLD: Duration = Duration::from_millis(1);

/// The contenders for a lock.
pub(super) struct Crowd {
    pub(super) measure: &'static str,
    pub(super) setting: String,
    pub(super) processes: usize,
    /// Contenders in each process.
    pub(super) each: usize,
    pub(super) hold: Duration,
}

impl Crowd {
    /// Records the keys that are left on the nodes, and deletes them.
    pub(super) fn sweep(&self, race: &mut Race<'_>, contestant: &str) {
        let place = format!("{}, {}", self.measure, self.setting);
        race.arena.sweep(&mut race.book, contestant, &place);
    }
}

/// Measures eight contenders in one process and in eight, two in two, and one alone.
pub(super) fn handover(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions() {
        let settings: [(usize, usize, &[&str]); 4] =
            [(1, 8, &POLLERS), (8, 1, &POLLERS), (2, 1, &POLLERS), (1, 1, &ALONE)];
        for (processes, each, contestants) in settings {
            let setting = format!("{} in processes: {processes}", processes * each);
            let crowd = Crowd { measure: "handover", setting, processes, each, hold: HOLD };
            for contestant in rotated(contestants, repetition) {
                contend(race, &crowd, contestant)?;
            }
        }
    }
    Ok(())
}

/// Measures fifty contenders in ten processes.
pub(super) fn crowd(race: &mut Race<'_>) -> Outcome {
    let setting = "50 in processes: 10".to_owned();
    let crowd = Crowd { measure: "crowd", setting, processes: 10, each: 5, hold: HOLD };
    for repetition in 0..race.plan.repetitions_up_to(3) {
        for contestant in rotated(&[QUORATE_REDIS, QUORATE_FRED, BARE_REDIS, RSLOCK], repetition) {
            contend(race, &crowd, contestant)?;
        }
    }
    Ok(())
}

/// Measures one to a thousand contenders in one process.
pub(super) fn waiters(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions_up_to(2) {
        for &each in race.plan.few(&[1, 10, 100, 1000], 2) {
            let setting = format!("waiters: {each}");
            let crowd = Crowd { measure: "waiters", setting, processes: 1, each, hold: HOLD };
            for contestant in rotated(&LIBRARIES, repetition) {
                contend(race, &crowd, contestant)?;
            }
        }
    }
    Ok(())
}

/// Measures two to 24 processes with long holds.
pub(super) fn queue(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions_up_to(3) {
        for &processes in race.plan.few(&[2, 8, 24], 2) {
            let setting = format!("processes: {processes}");
            let hold = Duration::from_millis(20);
            let crowd = Crowd { measure: "queue", setting, processes, each: 1, hold };
            for contestant in rotated(&[QUORATE_REDIS, QUORATE_FRED, RSLOCK], repetition) {
                contend(race, &crowd, contestant)?;
            }
        }
    }
    Ok(())
}

/// Measures sixteen tasks of one process, for five samples' time: shares need many holds.
pub(super) fn one_key(race: &mut Race<'_>) -> Outcome {
    let setting = "one process, tasks: 16".to_owned();
    let crowd = Crowd { measure: "one-key", setting, processes: 1, each: 16, hold: HOLD };
    for repetition in 0..race.plan.repetitions() {
        for contestant in rotated(&LIBRARIES, repetition) {
            contend_for(race, &crowd, contestant, race.plan.sample * 5)?;
        }
    }
    Ok(())
}

fn contend(race: &mut Race<'_>, crowd: &Crowd, contestant: &'static str) -> Outcome {
    // The holds that a median needs.
    let holds = if race.plan.quick { 5 } else { 80 };
    contend_for(race, crowd, contestant, (race.plan.sample * 2).max(crowd.hold * holds))
}

fn contend_for(
    race: &mut Race<'_>,
    crowd: &Crowd,
    contestant: &'static str,
    time: Duration,
) -> Outcome {
    contend_while(race, crowd, contestant, time, |_, _| Ok(()))?;
    crowd.sweep(race, contestant);
    Ok(())
}

/// Lets the crowd compete for `time`, while `meanwhile` disturbs the nodes or the processes.
pub(super) fn contend_while(
    race: &mut Race<'_>,
    crowd: &Crowd,
    contestant: &'static str,
    time: Duration,
    meanwhile: impl FnOnce(&Arena, &mut Vec<Worker>) -> Outcome,
) -> Outcome {
    let Crowd { measure, setting, processes, each, hold } = crowd;
    let spec = Spec::new("contend", contestant)
        .with("runtime", "current-thread")
        .with("contenders", each)
        .with("ttl", 10)
        .with("hold", hold.as_secs_f64())
        .seconds(time);
    let mut workers = Vec::new();
    for process in 0..*processes {
        workers.push(race.arena.spawn(&spec.clone().with("first", process * each), FIVE)?);
    }
    for worker in &mut workers {
        worker.wait_until_ready()?;
    }
    let before = race.arena.done();
    for worker in &mut workers {
        worker.go()?;
    }
    meanwhile(&race.arena, &mut workers)?;
    let contenders = workers.len() * each;
    let mut holds = Vec::new();
    for worker in &mut workers {
        holds.extend(worker.wait_until_done()?.events.iter().filter_map(|event| Hold::read(event)));
    }
    let done = race.arena.done().since(&before);
    let mut rest = Report::default();
    for worker in workers {
        rest = worker.finish()?;
    }
    rest.enter(&mut race.book, measure, setting, contestant);
    for (metric, value) in figures(holds, &done, time, contenders) {
        race.book.add(measure, setting, contestant, metric, value);
    }
    Ok(())
}

/// One hold of the lock. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    who: u64,
    asked: u64,
    acquired: u64,
    releasing: u64,
    released: u64,
}

impl Hold {
    fn read(event: &[u64]) -> Option<Self> {
        let &[who, asked, acquired, releasing, released] = event else {
            return None;
        };
        Some(Self { who, asked, acquired, releasing, released })
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
    let gaps: Vec<f64> = pairs
        .iter()
        .map(|(one, next)| next.acquired.saturating_sub(one.releasing) as f64 / 1e3)
        .collect();
    let overlaps = pairs.iter().filter(|(one, next)| next.acquired < one.releasing).count();
    let mut waits: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for hold in &holds {
        waits.entry(hold.who).or_default().push((hold.acquired - hold.asked) as f64 / 1e6);
    }
    let fewest = waits.values().map(Vec::len).min().filter(|_| waits.len() == contenders);
    let most = waits.values().map(Vec::len).max();
    // The holds of a contender, as a fraction of the mean.
    let share = |holds: Option<usize>| {
        holds.unwrap_or_default() as f64 * contenders as f64 / count.max(1.0)
    };
    let all: Vec<f64> = waits.values().flatten().copied().collect();
    let means: Vec<f64> = waits.values().map(|waits| mean(waits)).collect();
    let served: BTreeSet<u64> = holds.iter().map(|hold| hold.who).collect();
    let held: Vec<f64> =
        holds.iter().map(|hold| (hold.releasing - hold.acquired) as f64 / 1e6).collect();
    let releases: Vec<f64> =
        holds.iter().map(|hold| (hold.released - hold.releasing) as f64 / 1e3).collect();
    let nodes = FIVE as f64;
    let mut figures = vec![
        ("holds/s", count / time.as_secs_f64()),
        ("overlaps", overlaps as f64),
        ("never served", contenders as f64 - served.len() as f64),
        ("least share", share(fewest)),
        ("greatest share", share(most)),
    ];
    if holds.is_empty() {
        return figures;
    }
    figures.extend([
        ("to another %", 100.0 * to_another / (pairs.len() as f64).max(1.0)),
        ("gap p50 µs", median(&gaps)),
        ("gap p99 µs", percentile(&gaps, 99.0)),
        ("longest gap ms", percentile(&gaps, 100.0) / 1e3),
        ("held p50 ms", median(&held)),
        ("release p50 µs", median(&releases)),
        ("wait p50 µs", 1e3 * median(&all)),
        ("mean wait ms", mean(&all)),
        ("worst contender's mean wait ms", percentile(&means, 100.0)),
        ("longest wait ms", percentile(&all, 100.0)),
        ("longest wait/mean", percentile(&all, 100.0) / mean(&all)),
        ("commands/hand-over", done.commands / count),
        ("rounds/hand-over", done.sets.iter().sum::<f64>() / nodes / count),
        ("rounds/hand-over at the busiest node", percentile(&done.sets, 100.0) / count),
        ("scripts/hand-over", done.evals / count),
    ]);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn hold(who: u64, asked: u64, acquired: u64, releasing: u64) -> Hold {
        Hold { who, asked, acquired, releasing, released: releasing + 100 }
    }

    fn figure(holds: Vec<Hold>, name: &str) -> Option<f64> {
        let done = Done { commands: 30.0, sets: vec![3.0; 5], evals: 15.0 };
        let figures = figures(holds, &done, Duration::from_secs(1), 8);
        figures.iter().find(|(metric, _)| *metric == name).map(|(_, value)| *value)
    }

    #[test]
    fn the_gap_is_from_release_to_the_next_holder() {
        let holds = vec![hold(2, 0, 11_000, 20_000), hold(1, 0, 1000, 9000)];
        assert_eq!(figure(holds.clone(), "gap p50 µs"), Some(2.0));
        assert_eq!(figure(holds.clone(), "to another %"), Some(100.0));
        assert_eq!(figure(holds.clone(), "overlaps"), Some(0.0));
        assert_eq!(figure(holds.clone(), "never served"), Some(6.0));
        assert_eq!(figure(holds.clone(), "least share"), Some(0.0));
        assert_eq!(figure(holds.clone(), "greatest share"), Some(4.0));
        assert_eq!(figure(holds, "rounds/hand-over"), Some(1.5));
    }

    #[test]
    fn two_holders_at_once_are_seen() {
        let holds = vec![hold(1, 0, 1000, 9000), hold(2, 0, 8000, 20_000)];
        assert_eq!(figure(holds, "overlaps"), Some(1.0));
    }
}
