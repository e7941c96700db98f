//! The measures: what is run, with whom, and how often.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::Outcome;
use crate::arena::{Arena, Worker};
use crate::book::{Book, PAST_CLEANUP, median, percentile};
use crate::contest::{
    ALL, BARE_REDIS, FENCED, OURS, OWN_THREAD, QUORATE_FRED, QUORATE_REDIS, RSLOCK,
};
use crate::worker::Job;

/// A measure: its name, what it is about, and how it runs.
type Measure = (&'static str, &'static str, fn(&mut Race<'_>) -> Outcome);

/// What `--only` can choose from.
pub(crate) const MEASURES: &[Measure] = &[
    ("latency", "one task alone", latency),
    ("throughput", "many tasks, each its own locks", throughput),
    ("one-node", "a single node, by the number of tasks", one_node),
    ("fencing", "what fencing tokens and the restart guard cost", fencing),
    ("hung", "one node of five is hung, one task", hung),
    ("one-key", "sixteen tasks of one process want one lock, held for 1 ms", one_key),
    ("handover", "eight processes want one lock, held for 1 ms, with and without faults", handover),
    ("waiting", "seven processes wait on a long hold", waiting),
    ("leases", "many locks held by one process", leases),
];

/// The nodes of most measures.
const FIVE: usize = 5;

/// The node that hangs: the last one, since a client that calls nodes one by one has its quorum before.
const HUNG: usize = FIVE - 1;

/// The setting that those with a hung node are compared to.
pub(crate) const HEALTHY: &str = "healthy";

const SECOND: Duration = Duration::from_secs(1);

/// The longest life of a killed waiter's entry (W3), and 1 s.
const ENTRIES_LAST: Duration = Duration::from_secs(11);

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    quick: bool,
    only: Vec<String>,
    pub(crate) repetitions: usize,
    pub(crate) publish: bool,
}

impl Plan {
    pub(crate) fn parse(words: &[String]) -> Outcome<Self> {
        let mut plan = Self { quick: false, only: Vec::new(), repetitions: 5, publish: false };
        let names = MEASURES.iter().map(|(name, ..)| *name).collect::<Vec<_>>();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match (word, &mut words) {
                ("--quick", _) => (plan.quick, plan.repetitions) = (true, 1),
                ("--publish", _) => plan.publish = true,
                ("--repetitions", words) => {
                    plan.repetitions = words.next().unwrap_or_default().parse()?;
                }
                ("--only", words) => {
                    let only = words.next().unwrap_or_default().split(',');
                    plan.only = only.map(str::to_owned).collect();
                }
                _ => return Err(format!("{word} is not an option").into()),
            }
        }
        match plan.only.iter().find(|name| !names.contains(&&***name)) {
            Some(name) => Err(format!("no measure {name:?}; there are {names:?}").into()),
            None => Ok(plan),
        }
    }

    /// The duration of one sample, in most measures.
    pub(crate) const fn sample(&self) -> Duration {
        Duration::from_millis(if self.quick { 30 } else { 400 })
    }

    pub(crate) fn out(&self) -> PathBuf {
        if self.quick { "target/race/quick".into() } else { "target/race".into() }
    }

    pub(crate) fn includes(&self, measure: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == measure)
    }

    /// All settings, or in a quick run the first `few`.
    fn few<'a, T>(&self, all: &'a [T], few: usize) -> &'a [T] {
        if self.quick { &all[..few] } else { all }
    }
}

pub(crate) struct Race<'a> {
    plan: &'a Plan,
    arena: Arena,
    book: Book,
}

pub(crate) fn run(plan: &Plan) -> Outcome<Book> {
    let mut race = Race { plan, arena: Arena::start(FIVE), book: Book::default() };
    for (name, _, run) in MEASURES.iter().filter(|(name, ..)| plan.includes(name)) {
        let start = std::time::Instant::now();
        if let Err(why) = run(&mut race) {
            race.book.failures.push(format!("{name}: {why}"));
            race.arena.mend();
        }
        println!("{name}: {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(race.book)
}

/// All of `all`, rotated by `repetition`, so that no contestant is always the first.
fn rotated<T: Copy>(all: &[T], repetition: usize) -> Vec<T> {
    let (head, tail) = all.split_at(repetition % all.len());
    [tail, head].concat()
}

/// A job of one task on one thread.
fn job(kind: &'static str, contestant: &str, time: Duration) -> Job {
    let (contestant, ttl) = (contestant.to_owned(), 10 * SECOND);
    let (hold, addresses, pids) = (Duration::from_millis(1), Vec::new(), Vec::new());
    Job { kind, contestant, threads: 1, count: 1, first: 0, ttl, hold, time, addresses, pids }
}

/// One task: it takes little time and varies much.
fn latency(race: &mut Race<'_>) -> Outcome {
    let often = if race.plan.quick { 1 } else { 3 };
    grid(race, "latency", &WITH_OWN_THREAD, &[1], FIVE, often * race.plan.repetitions)
}

fn throughput(race: &mut Race<'_>) -> Outcome {
    let tasks = race.plan.few(&[16, 64, 256], 1);
    grid(race, "throughput", &WITH_OWN_THREAD, tasks, FIVE, race.plan.repetitions)
}

fn one_node(race: &mut Race<'_>) -> Outcome {
    let tasks = race.plan.few(&[1, 16, 64], 2);
    grid(race, "one-node", &[QUORATE_REDIS, BARE_REDIS, RSLOCK], tasks, 1, race.plan.repetitions)
}

const WITH_OWN_THREAD: [&str; 6] = [ALL[0], OWN_THREAD, ALL[1], ALL[2], ALL[3], ALL[4]];

fn grid(
    race: &mut Race<'_>,
    measure: &str,
    contestants: &[&'static str],
    tasks: &[usize],
    nodes: usize,
    repetitions: usize,
) -> Outcome {
    for repetition in 0..repetitions {
        for (threads, runtime) in [(1, "current-thread"), (2, "multi-thread")] {
            for &count in tasks {
                for contestant in rotated(contestants, repetition) {
                    let job =
                        Job { threads, count, ..job("cycle", contestant, race.plan.sample()) };
                    let setting = format!("{runtime}, tasks: {count}");
                    race.take(measure, &setting, &job, nodes, Hang::Never)?;
                }
            }
        }
    }
    Ok(())
}

/// Measures one task with fencing tokens and the restart guard. A short ttl makes the first quarantine short.
fn fencing(race: &mut Race<'_>) -> Outcome {
    for repetition in 0..race.plan.repetitions {
        for nodes in [3, FIVE] {
            for contestant in rotated(&FENCED, repetition) {
                let job = Job { ttl: SECOND, ..job("cycle", contestant, race.plan.sample()) };
                race.take("fencing", &format!("{nodes} nodes"), &job, nodes, Hang::Never)?;
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hang {
    Never,
    Before,
    After(Duration), // When so much of the time has passed.
}

/// Measures all settings of one contestant directly after each other, so that a disturbance affects all
/// and their ratios less.
fn hung(race: &mut Race<'_>) -> Outcome {
    let during = Hang::After(race.plan.sample() / 5);
    let hangs = [(HEALTHY, Hang::Never), ("hung before", Hang::Before), ("hung during", during)];
    for repetition in 0..race.plan.repetitions {
        // With a hung node rslock, the last contestant, takes seconds for a cycle.
        for contestant in rotated(race.plan.few(&ALL, ALL.len() - 1), repetition) {
            for (setting, hang) in rotated(&hangs, repetition) {
                let job = job("cycle", contestant, 2 * race.plan.sample());
                race.take("hung", setting, &job, FIVE, hang)?;
            }
        }
    }
    Ok(())
}

impl Race<'_> {
    /// Runs one worker on so many nodes, and records its metrics.
    fn take(
        &mut self,
        measure: &str,
        setting: &str,
        job: &Job,
        nodes: usize,
        hang: Hang,
    ) -> Outcome {
        if hang == Hang::Before {
            self.arena.node(HUNG).pause();
        }
        let mut worker = self.arena.spawn(job, nodes)?;
        worker.wait_until("ready")?;
        worker.go()?;
        if let Hang::After(time) = hang {
            thread::sleep(time);
            self.arena.node(HUNG).pause();
        }
        let report = worker.wait_until("done")?;
        if hang != Hang::Never {
            self.arena.node(HUNG).resume();
            // The node answers its calls in flight, and `close` waits for it again.
            thread::sleep(Duration::from_millis(200));
        }
        self.book.enter(&report, [measure, setting, &job.contestant]);
        worker.finish()?;
        self.arena.sweep(&mut self.book, &job.contestant, &format!("{measure}, {setting}"));
        Ok(())
    }
}

/// Measures renewed leases on three nodes for five ttls.
fn leases(race: &mut Race<'_>) -> Outcome {
    let (count, ttl) = if race.plan.quick { (100, SECOND / 2) } else { (100_000, 30 * SECOND) };
    let job = Job { count, ttl, ..job("leases", QUORATE_REDIS, 5 * ttl) };
    race.take("leases", &format!("renewed, ttl: {ttl:?}, nodes: 3"), &job, 3, Hang::Never)
}

struct Crowd {
    measure: &'static str,
    setting: String,
    processes: usize,
    each: usize,
    hold: Duration,
    time: Duration,
}

/// Measures sixteen tasks of one process, for five samples' time: shares need many holds.
fn one_key(race: &mut Race<'_>) -> Outcome {
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
fn handover(race: &mut Race<'_>) -> Outcome {
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
fn waiting(race: &mut Race<'_>) -> Outcome {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_holds() {
        let figure = |holds: [Hold; 2], contenders, name: &str| {
            let figures = figures(holds.into(), 30.0, SECOND, contenders);
            figures.iter().find(|(metric, _)| *metric == name).map(|(_, value)| *value)
        };
        let holds = [[2, 0, 11_000, 20_000], [1, 0, 1000, 9000]];
        for (name, value) in [
            ("gap p50 µs", 2.0),
            ("to another %", 100.0),
            ("overlaps", 0.0),
            ("least share", 0.0),
            ("commands/hand-over", 15.0),
        ] {
            assert_eq!(figure(holds, 8, name), Some(value), "{name}");
        }
        assert_eq!(figure(holds, 2, "least share"), Some(1.0));
        let overlapping = [[1, 0, 1000, 9000], [2, 0, 8000, 20_000]];
        assert_eq!(figure(overlapping, 8, "overlaps"), Some(1.0));
    }
}
