//! The samples of all measures.

use std::collections::BTreeMap;

use crate::contest::OURS;
use crate::stats::median;

/// Marks a setting in which a node hangs past the cleanup bound: keys may be left there (C3).
pub(crate) const PAST_CLEANUP: &str = "past the cleanup bound";

/// The samples of each figure, in the order in which they were first taken.
#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: Vec<Entry>,
    places: BTreeMap<[String; 4], usize>,
    leftovers: Vec<Leftover>,
    failures: Vec<String>,
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

/// Keys that were on the nodes after the contestant had closed.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    pub(crate) contestant: String,
    pub(crate) place: String,
    pub(crate) keys: usize,
    pub(crate) example: String,
}

impl Entry {
    pub(crate) fn median(&self) -> f64 {
        median(&self.samples)
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
        let key = [measure, setting, contestant, metric].map(str::to_owned);
        let next = self.entries.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            let (setting, contestant) = (setting.to_owned(), contestant.to_owned());
            let (metric, samples) = (metric.to_owned(), Vec::new());
            self.entries.push(Entry { measure, setting, contestant, metric, samples });
        }
        self.entries[place].samples.push(value);
    }

    pub(crate) fn leave(&mut self, leftover: Leftover) {
        self.leftovers.push(leftover);
    }

    /// Records that a measure failed.
    pub(crate) fn fail(&mut self, why: String) {
        self.failures.push(why);
    }

    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn leftovers(&self) -> &[Leftover] {
        &self.leftovers
    }

    /// The number of keys that quorate left: must be 0. Settings with [`PAST_CLEANUP`] do not count.
    pub(crate) fn keys_left(&self) -> usize {
        let ours = |left: &&Leftover| {
            let is_ours = OURS.iter().any(|name| left.contestant.starts_with(name));
            is_ours && !left.place.contains(PAST_CLEANUP)
        };
        self.leftovers.iter().filter(ours).map(|left| left.keys).sum()
    }

    /// The median of one figure.
    pub(crate) fn median(
        &self,
        measure: &str,
        setting: &str,
        contestant: &str,
        metric: &str,
    ) -> Option<f64> {
        let key = [measure, setting, contestant, metric].map(str::to_owned);
        self.places.get(&key).map(|place| self.entries[*place].median())
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
        assert_eq!(book.entries().len(), 2);
    }

    #[test]
    fn only_what_we_left_counts() {
        let mut book = Book::default();
        for (contestant, keys) in [("rslock", 5), ("quorate/redis", 2)] {
            let (place, example) = (String::new(), String::new());
            book.leave(Leftover { contestant: contestant.to_owned(), place, keys, example });
        }
        assert_eq!(book.keys_left(), 2);
    }
}
