//! The measures: what is run, with whom, and how often.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::Outcome;
use crate::arena::Arena;
use crate::book::Book;
use crate::contest::{ALL, BARE_REDIS, FENCED, OWN_THREAD, QUORATE_REDIS, RSLOCK};
use crate::worker::Job;

mod crowd;

use crowd::{handover, one_key, waiting};

/// A measure: its name, its subject, and how it runs.
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
pub(crate) fn job(kind: &str, contestant: &str, time: Duration) -> Job {
    let (kind, contestant, ttl) = (kind.to_owned(), contestant.to_owned(), 10 * SECOND);
    let (hold, addresses, pids) = (Duration::from_millis(1), Vec::new(), Vec::new());
    let (threads, count, first, cycles) = (1, 1, 0, 0);
    Job { kind, contestant, threads, count, first, ttl, hold, time, cycles, addresses, pids }
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
