//! Many seeds, on all cores, and what came of them.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::nemesis::Faults;
use crate::plan::Class;
use crate::run::run;
use crate::waiting::Waits;

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The first seed.
    pub(crate) from: u64,
    /// How many.
    pub(crate) seeds: u64,
    /// Which promises the worlds keep.
    pub(crate) class: Class,
    /// Runs each seed twice and compares the histories.
    pub(crate) twice: bool,
    /// Stops after so many failures.
    pub(crate) failures: usize,
    /// On how many threads; `None` for one on each core.
    pub(crate) threads: Option<usize>,
    /// Runs one seed and prints its history.
    pub(crate) replay: Option<u64>,
}

impl Options {
    /// What can be said.
    pub(crate) const USAGE: &str = "options: --seeds N, --from SEED, --twice, --threads N, \
        --class promised|broken|guarded|storm|revoked|line|kills|gate, \
        --failures N (stop after so many), --replay SEED";

    /// Reads the words of a command line.
    ///
    /// # Errors
    ///
    /// The word that is not understood.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            from: 1,
            seeds: 1_000,
            class: Class::Promised,
            twice: false,
            failures: 10,
            threads: None,
            replay: None,
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().and_then(|value| value.parse::<u64>().ok());
                value.ok_or_else(|| format!("{word} takes a number"))
            };
            match word.as_str() {
                "--seeds" => options.seeds = number()?,
                "--from" => options.from = number()?,
                "--replay" => options.replay = Some(number()?),
                "--failures" => options.failures = usize::try_from(number()?).unwrap_or(1),
                "--threads" => options.threads = usize::try_from(number()?).ok(),
                "--twice" => options.twice = true,
                "--class" => {
                    let class = words.next().and_then(|word| Class::of_word(&word));
                    options.class = class.ok_or("--class takes one of its words")?;
                }
                other => return Err(format!("{other} is not an option")),
            }
        }
        Ok(options)
    }
}

/// What came of many seeds.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// How many were run.
    pub(crate) seeds: u64,
    /// Seeds that went wrong, each with what went wrong first.
    pub(crate) failures: BTreeMap<u64, String>,
    /// Worlds in which two held one resource.
    pub(crate) overlaps: u64,
    /// How many fencing tokens were judged.
    pub(crate) tokens: u64,
    /// How many visitors with a stale token were refused.
    pub(crate) refused: u64,
    /// Worlds in which tokens were out of order, for which there was an excuse.
    pub(crate) excused: u64,
    /// How much time passed in all worlds together.
    pub(crate) simulated: Duration,
    /// What was injected.
    pub(crate) faults: Faults,
    /// What waiting cost.
    pub(crate) waits: Waits,
    /// How long it took.
    pub(crate) took: Duration,
    class: Option<Class>,
}

/// Runs the seeds.
#[expect(clippy::disallowed_methods, reason = "it tells how long it took")]
pub(crate) fn sweep(options: &Options) -> Report {
    let start = Instant::now();
    let next = AtomicU64::new(options.from);
    let enough = AtomicBool::new(false);
    let report = Mutex::new(Report { class: Some(options.class), ..Report::default() });
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or_else(cores);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed - options.from >= options.seeds || enough.load(Ordering::Relaxed) {
                        break;
                    }
                    let one = one(seed, options);
                    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                    report.add(one);
                    if report.failures.len() >= options.failures {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = start.elapsed();
    report
}

fn one(seed: u64, options: &Options) -> Report {
    let mut report = Report { seeds: 1, ..Report::default() };
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(seed, options.class))) else {
        report.failures.insert(seed, "a panic".to_owned());
        return report;
    };
    report.overlaps = u64::from(outcome.overlaps > 0);
    report.tokens = outcome.tokens;
    report.refused = outcome.refused;
    report.excused = u64::from(outcome.excused > 0);
    report.simulated = outcome.simulated;
    report.faults = outcome.faults;
    report.waits = outcome.waits;
    if let Some(first) = outcome.violations.first() {
        report.failures.insert(seed, first.to_string());
    } else if options.twice {
        let again = run(seed, options.class);
        if again.history.digest() != outcome.history.digest() {
            report.failures.insert(seed, "two runs of it differ".to_owned());
        }
    }
    report
}

impl Report {
    fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.failures.extend(other.failures);
        self.overlaps += other.overlaps;
        self.tokens += other.tokens;
        self.refused += other.refused;
        self.excused += other.excused;
        self.simulated += other.simulated;
        self.waits.add(&other.waits);
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let per_second = self.seeds as f64 / self.took.as_secs_f64().max(1e-9);
        let years = self.simulated.as_secs_f64() / (365.25 * 86_400.0);
        writeln!(
            f,
            "{} seeds in {:.1} s ({per_second:.0} a second), {years:.3} simulated years",
            self.seeds,
            self.took.as_secs_f64(),
        )?;
        let faults: Vec<String> =
            self.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "faults injected: {}", faults.join(", "))?;
        if self.class.is_some_and(Class::is_about_waiting) {
            write!(f, "{}", self.waits)?;
        }
        writeln!(
            f,
            "fencing tokens: {}, and {} times a stale one was refused",
            self.tokens, self.refused
        )?;
        if matches!(self.class, Some(Class::Broken | Class::Storm)) {
            writeln!(f, "two holders in {} worlds, whose promises were broken", self.overlaps)?;
        }
        if matches!(self.class, Some(Class::Broken | Class::Guarded)) {
            writeln!(f, "tokens out of order in {} worlds, whose nodes forgot", self.excused)?;
        }
        writeln!(f, "violations: {}", self.failures.len())?;
        let class = match self.class {
            None | Some(Class::Promised) => String::new(),
            Some(class) => format!(" --class {}", class.word()),
        };
        for (seed, what) in &self.failures {
            writeln!(f, "  seed {seed}: {what}")?;
            writeln!(f, "    replay: cargo xtask sim --replay {seed}{class}")?;
        }
        Ok(())
    }
}
