//! The samples of all measures.

use crate::contest::OURS;
use crate::stats::median;

/// Marks a setting in which a node hangs past the cleanup bound: keys may be left there (C3).
pub(crate) const PAST_CLEANUP: &str = "past the cleanup bound";

/// The samples of each figure, in the order in which they were first taken.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) entries: Vec<Entry>,
    /// The keys that were on the nodes after a contestant had closed: a line for each run.
    pub(crate) leftovers: Vec<String>,
    /// The number of keys that quorate left: must be 0.
    pub(crate) keys_left: usize,
    /// The measures that failed, and why.
    pub(crate) failures: Vec<String>,
}

/// One figure.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) measure: &'static str,
    pub(crate) setting: String,
    pub(crate) contestant: String,
    pub(crate) metric: String,
    pub(crate) samples: Vec<f64>,
}

/// The report of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) metrics: Vec<(String, f64)>,
    pub(crate) events: Vec<Vec<u64>>,
}

impl Entry {
    fn key(&self) -> (&str, &str, &str, &str) {
        (self.measure, &self.setting, &self.contestant, &self.metric)
    }
}

impl Book {
    pub(crate) fn add(
        &mut self,
        measure: &'static str,
        setting: &str,
        contestant: &str,
        metric: &str,
        value: f64,
    ) {
        let key = (measure, setting, contestant, metric);
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.key() == key) {
            entry.samples.push(value);
            return;
        }
        let [setting, contestant, metric] = [setting, contestant, metric].map(str::to_owned);
        self.entries.push(Entry { measure, setting, contestant, metric, samples: vec![value] });
    }

    /// Adds all metrics of a report.
    pub(crate) fn enter(
        &mut self,
        report: &Report,
        measure: &'static str,
        setting: &str,
        contestant: &str,
    ) {
        for (metric, value) in &report.metrics {
            self.add(measure, setting, contestant, metric, *value);
        }
    }

    pub(crate) fn find(
        &self,
        measure: &str,
        setting: &str,
        contestant: &str,
        metric: &str,
    ) -> Option<&Entry> {
        let key = (measure, setting, contestant, metric);
        self.entries.iter().find(|entry| entry.key() == key)
    }

    /// The median of one figure.
    pub(crate) fn median(
        &self,
        measure: &str,
        setting: &str,
        contestant: &str,
        metric: &str,
    ) -> Option<f64> {
        self.find(measure, setting, contestant, metric).map(|entry| median(&entry.samples))
    }

    /// Records that keys were left. Those of quorate count, but for settings with [`PAST_CLEANUP`].
    pub(crate) fn leave(&mut self, contestant: &str, place: &str, keys: usize, example: &str) {
        self.leftovers.push(format!("{contestant}, after {place}: {keys}, such as {example}"));
        let is_ours = OURS.iter().any(|name| contestant.starts_with(name));
        self.keys_left += if is_ours && !place.contains(PAST_CLEANUP) { keys } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_of_its_samples() {
        let mut book = Book::default();
        for value in [3.0, 9.0, 4.0] {
            book.add("latency", "alone", "raw", "p50", value);
        }
        book.add("latency", "alone", "rslock", "p50", 7.0);
        assert_eq!(book.median("latency", "alone", "raw", "p50"), Some(4.0));
        assert_eq!(book.median("latency", "alone", "raw", "p99"), None);
        assert_eq!(book.entries.len(), 2);
    }

    #[test]
    fn only_what_we_left_counts() {
        let mut book = Book::default();
        book.leave("rslock", "hung", 5, "a");
        book.leave("quorate/fred", PAST_CLEANUP, 3, "a");
        book.leave("quorate/redis", "hung", 2, "a");
        assert_eq!(book.keys_left, 2);
    }
}
