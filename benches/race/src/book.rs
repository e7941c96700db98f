//! The samples of all measures.

use crate::arena::Report;
use crate::contest::OURS;

/// Marks a setting in which a node hangs past the cleanup bound: keys may be left there (C3).
pub(crate) const PAST_CLEANUP: &str = "past the cleanup bound";

/// Measure, setting, contestant and metric.
pub(crate) type Figure = [String; 4];

/// The samples of each figure, in the order in which they were first taken.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) entries: Vec<(Figure, Vec<f64>)>,
    /// The keys that were on the nodes after a contestant had closed: a line for each run.
    pub(crate) leftovers: Vec<String>,
    pub(crate) keys_left: usize, // The number of keys that quorate left: must be 0.
    pub(crate) failures: Vec<String>,
}

impl Book {
    pub(crate) fn add(&mut self, figure: [&str; 4], value: f64) {
        match self.entries.iter_mut().find(|(known, _)| *known == figure) {
            Some((_, samples)) => samples.push(value),
            None => self.entries.push((figure.map(str::to_owned), vec![value])),
        }
    }

    pub(crate) fn enter(&mut self, report: &Report, [measure, setting, contestant]: [&str; 3]) {
        for (metric, value) in &report.metrics {
            self.add([measure, setting, contestant, metric], *value);
        }
    }

    pub(crate) fn find(&self, figure: [&str; 4]) -> Option<&[f64]> {
        self.entries.iter().find(|(known, _)| *known == figure).map(|(_, samples)| &**samples)
    }

    /// Records that keys were left. Those of quorate count, but for settings with [`PAST_CLEANUP`].
    pub(crate) fn leave(&mut self, contestant: &str, place: &str, keys: usize, example: &str) {
        self.leftovers.push(format!("{contestant}, after {place}: {keys} ({example})"));
        let is_ours = OURS.iter().any(|name| contestant.starts_with(name));
        self.keys_left += if is_ours && !place.contains(PAST_CLEANUP) { keys } else { 0 };
    }
}

/// The middle value, or the mean of the two in the middle; 0 without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// The value that `percent` of all values do not exceed; 0 without values.
pub(crate) fn percentile(values: &[f64], percent: f64) -> f64 {
    let sorted = sorted(values);
    let place = (percent / 100.0 * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(place).copied().unwrap_or_default()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
