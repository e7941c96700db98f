//! Stages: checks that run one after the other, with a line of progress each.

#![expect(clippy::disallowed_methods, reason = "it tells how long a stage took")]

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::cmd::{IS_QUIET, Outcome};

/// One check.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn() -> Outcome,
}

impl Stage {
    pub(crate) const fn new(name: &'static str, about: &'static str, run: fn() -> Outcome) -> Self {
        Self { name, about, run }
    }
}

/// Runs the stages until one fails. What their commands print is shown only of one that fails.
pub(crate) fn run(stages: &[Stage]) -> Outcome {
    IS_QUIET.store(true, Ordering::Relaxed);
    let start = Instant::now();
    for stage in stages {
        println!("== {}: {}", stage.name, stage.about);
        let start = Instant::now();
        (stage.run)().map_err(|why| {
            format!("{} FAILED: {why}\nonly this stage: cargo xtask {0}", stage.name)
        })?;
        let seconds = start.elapsed().as_secs_f32();
        println!("== {}: passed in {seconds:.1} s", stage.name);
    }
    println!("== {} stages passed in {:.1} s", stages.len(), start.elapsed().as_secs_f32());
    Ok(())
}
