//! Ratios of contestants and settings: within each repetition, then the median.

use crate::book::{Book, Entry};
use crate::contest::{
    ALL, BARE_FRED, BARE_REDIS, DISTKIT, FENCED, OWN_THREAD, QUORATE_FRED, QUORATE_REDIS, RAW,
    RSLOCK,
};
use crate::measure::HEALTHY;
use crate::stats::median;

/// The contestants that are compared in the same setting.
const PAIRS: [(&str, &str); 14] = [
    (QUORATE_REDIS, BARE_REDIS),
    (QUORATE_FRED, BARE_FRED),
    (QUORATE_REDIS, RSLOCK),
    (QUORATE_FRED, RSLOCK),
    (QUORATE_REDIS, RAW),
    (QUORATE_REDIS, DISTKIT),
    (OWN_THREAD, QUORATE_REDIS),
    (BARE_REDIS, RAW),
    (FENCED[1], FENCED[0]),
    (FENCED[2], FENCED[0]),
    (FENCED[3], FENCED[0]),
    (FENCED[5], FENCED[4]),
    (FENCED[6], FENCED[4]),
    (FENCED[7], FENCED[4]),
];

pub(super) const METRICS: [&str; 4] =
    ["cycles/s", "cycle p50 µs", "client CPU µs/cycle", "node CPU µs/cycle"];

pub(super) struct Ratio {
    pub(super) row: [String; 2],
    pub(super) metric: String,
    pub(super) value: f64,
}

/// The ratios of all figures that are compared, row by row.
pub(super) fn all(book: &Book) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    let is_compared = |entry: &&Entry| METRICS.contains(&&*entry.metric);
    for (of, to) in PAIRS {
        let ours = |entry: &&Entry| entry.contestant == of && entry.measure != "hung";
        for entry in book.entries.iter().filter(is_compared).filter(ours) {
            let row = [format!("{of} to {to}"), format!("{}, {}", entry.measure, entry.setting)];
            let other = book.find(entry.measure, &entry.setting, to, &entry.metric);
            ratios.extend(other.map(|other| Ratio::new(row, entry, other)));
        }
    }
    // Each contestant with a hung node, to itself with healthy nodes.
    for of in ALL {
        let hung = |entry: &&Entry| {
            entry.contestant == of && entry.measure == "hung" && entry.setting != HEALTHY
        };
        for entry in book.entries.iter().filter(is_compared).filter(hung) {
            let row = [of.to_owned(), format!("{} to {HEALTHY}", entry.setting)];
            let healthy = book.find(entry.measure, HEALTHY, of, &entry.metric);
            ratios.extend(healthy.map(|healthy| Ratio::new(row, entry, healthy)));
        }
    }
    ratios
}

impl Ratio {
    fn new(row: [String; 2], entry: &Entry, other: &Entry) -> Self {
        Self { row, metric: entry.metric.clone(), value: paired(entry, other) }
    }
}

/// The samples of one repetition follow each other directly, so a disturbance affects both.
pub(super) fn paired(entry: &Entry, other: &Entry) -> f64 {
    let pairs = entry.samples.iter().zip(&other.samples);
    median(&pairs.map(|(one, other)| one / other).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_each_repetition_and_then_the_median() {
        let mut book = Book::default();
        // The machine was slow in the second repetition, for both.
        for (healthy, hung) in [(100.0, 120.0), (900.0, 990.0), (100.0, 130.0)] {
            book.add("hung", HEALTHY, QUORATE_FRED, "cycle p50 µs", healthy);
            book.add("hung", "hung before", QUORATE_FRED, "cycle p50 µs", hung);
            book.add("hung", "hung before", QUORATE_FRED, "failed", hung);
            book.add("latency", "alone", QUORATE_REDIS, "cycle p50 µs", 3.0 * hung);
            book.add("latency", "alone", RAW, "cycle p50 µs", hung);
        }
        let ratios = all(&book);
        let shown: Vec<_> = ratios.iter().map(|it| (it.row.join(", "), it.value)).collect();
        assert_eq!(shown[0], ("quorate/redis to raw, latency, alone".to_owned(), 3.0));
        assert_eq!(shown[1].0, "quorate/fred, hung before to healthy");
        assert!((shown[1].1 - 1.2).abs() < 1e-9 && shown.len() == 2);
    }
}
