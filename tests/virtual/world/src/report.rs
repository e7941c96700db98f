//! Many seeds, on all cores, and what came of them; or one seed, so that it fits a screen.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::history::{Event, What};
use crate::oracle::{Breach, Violation};
use crate::plan::{CLASSES, Class};
use crate::run::{Outcome, run};
use crate::world::lock;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    from: u64,
    seeds: u64,
    class: Option<Class>, // `None` for all classes, each with its part of the seeds.
    twice: bool,
    pub(crate) replay: Option<u64>,
}

impl Options {
    pub(crate) fn usage() -> String {
        let words = CLASSES.map(|(_, word, _)| word).join(", ");
        format!(
            "options: --seeds N, --from SEED, --twice, --class NAME, --replay SEED\n\
             classes, which README.md describes: all, {words}\n"
        )
    }

    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let (class, twice, replay) = (Some(Class::Promised), false, None);
        let mut options = Self { from: 1, seeds: 1_000, class, twice, replay };
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
                "--twice" => options.twice = true,
                "--class" => {
                    let word = words.next().unwrap_or_default();
                    options.class = Class::of_word(&word);
                    if options.class.is_none() && word != "all" {
                        return Err("--class takes one of its words".to_owned());
                    }
                }
                other => return Err(format!("{other} is not an option")),
            }
        }
        Ok(options)
    }

    pub(crate) fn class(&self) -> Class {
        self.class.unwrap_or(Class::Promised)
    }
}

/// After so many failures the rest of a class is not run.
const ENOUGH: usize = 10;

#[derive(Debug)]
pub(crate) struct Report {
    class: Class,
    seeds: u64,
    pub(crate) failures: BTreeMap<u64, String>, // Seeds that went wrong, each with what went wrong first.
}

pub(crate) fn sweep(options: &Options) -> Vec<Report> {
    let chosen = CLASSES.into_iter().filter_map(|(class, _, part)| match options.class {
        None => Some((class, (options.seeds * part).div_ceil(1_000))),
        Some(one) => (one == class).then_some((class, options.seeds)),
    });
    chosen.map(|(class, seeds)| sweep_class(options, class, seeds)).collect()
}

fn sweep_class(options: &Options, class: Class, seeds: u64) -> Report {
    let (next, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let report = Mutex::new(Report { class, seeds: 0, failures: BTreeMap::new() });
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= seeds {
                        break;
                    }
                    let seed = options.from + place;
                    let wrong = run_one(seed, class, options.twice);
                    let mut report = lock(&report);
                    report.seeds += 1;
                    report.failures.extend(wrong.map(|wrong| (seed, wrong)));
                    if report.failures.len() >= ENOUGH {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What went wrong first in a run.
fn run_one(seed: u64, class: Class, twice: bool) -> Option<String> {
    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(seed, class))) else {
        return Some("a panic".to_owned());
    };
    let first = outcome.violations.first().map(Violation::to_string);
    let differs = || run(seed, class).history.digest() != outcome.history.digest();
    first.or_else(|| (twice && differs()).then(|| "two runs of it differ".to_owned()))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, seeds, failures } = self;
        let word = class.word();
        writeln!(f, "{word}: {seeds} seeds, {} with violations", failures.len())?;
        for (seed, what) in failures {
            writeln!(f, "  seed {seed}: {what}")?;
            writeln!(f, "    replay: cargo xtask sim --replay {seed} --class {word}")?;
        }
        Ok(())
    }
}

/// Describes what a world was like, what went wrong in it, and the last 30 events before the first mistake.
pub(crate) fn tell(seed: u64, outcome: &Outcome) -> String {
    let Outcome { world, violations, simulated, history, .. } = outcome;
    let mut text = format!("seed {seed}: {world}\n");
    if violations.is_empty() {
        let _ = writeln!(text, "nothing went wrong in {simulated:?}");
    }
    for violation in violations.iter().take(5) {
        let _ = writeln!(text, "WRONG: {violation}");
    }
    if violations.len() > 5 {
        let _ = writeln!(text, "… and {} more", violations.len() - 5);
    }
    let _ = writeln!(text);
    let overlap = |violation: &&Violation| violation.breach == Breach::Overlap;
    let told = violations.iter().find(overlap).or_else(|| violations.first());
    let end = told.map_or(Duration::MAX, |violation| violation.at);
    let locks = told.map_or(&[][..], |violation| &violation.locks);
    // Those of the locks that it is about, and of the world.
    let concerns = |event: &&Event| match &event.what {
        _ if event.at > end => false,
        What::Granted { lock, .. }
        | What::Fenced(lock, ..)
        | What::Extended(lock, _)
        | What::Relied(lock)
        | What::Ended(lock) => locks.is_empty() || locks.contains(lock),
        _ => true,
    };
    let events = history.events();
    let mut events: Vec<&Event> = events.iter().filter(concerns).collect();
    events.sort_by_key(|event| event.at);
    for event in events.split_off(events.len().saturating_sub(30)) {
        let _ = writeln!(text, "{event}");
    }
    text
}
