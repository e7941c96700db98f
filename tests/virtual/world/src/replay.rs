//! One seed described so that it fits a screen: what went wrong, and what led to it.

use std::fmt::Write;
use std::time::Duration;

use crate::history::{Event, What};
use crate::oracle::{Breach, Violation};
use crate::run::Outcome;

/// How many lines of the history are shown.
const LINES: usize = 30;

/// Describes what a world was like, what went wrong in it, and the events before the first mistake.
pub(crate) fn tell(seed: u64, outcome: &Outcome) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "seed {seed}: {}", outcome.world);
    if outcome.violations.is_empty() {
        let _ = writeln!(text, "nothing went wrong in {:?}", outcome.simulated);
    }
    for violation in outcome.violations.iter().take(5) {
        let _ = writeln!(text, "WRONG: {violation}");
    }
    if outcome.violations.len() > 5 {
        let _ = writeln!(text, "… and {} more", outcome.violations.len() - 5);
    }
    let _ = writeln!(text);
    let overlap = |violation: &&Violation| violation.breach == Breach::Overlap;
    let told = outcome.violations.iter().find(overlap).or_else(|| outcome.violations.first());
    for event in leading_to(told, &outcome.history.events()) {
        let _ = writeln!(text, "{event}");
    }
    text
}

/// The last events up to the mistake, of the locks and clients that it is about and of the world.
fn leading_to(violation: Option<&Violation>, events: &[Event]) -> Vec<Event> {
    let end = violation.map_or(Duration::MAX, |violation| violation.at);
    let locks = violation.map_or(&[][..], |violation| &violation.locks);
    let concerns = |event: &&Event| match &event.what {
        _ if event.at > end => false,
        What::Granted { lock, .. }
        | What::Fenced { lock, .. }
        | What::Extended { lock, .. }
        | What::Relied { lock }
        | What::Ended { lock } => locks.is_empty() || locks.contains(lock),
        _ => true,
    };
    let mut told: Vec<Event> = events.iter().filter(concerns).cloned().collect();
    told.sort_by_key(|event| event.at);
    told.split_off(told.len().saturating_sub(LINES))
}
