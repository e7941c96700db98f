//! Ratios of contestants: within each repetition, then the median.

use crate::book::{Book, Entry};
use crate::contest::{
    ALL, BARE_FRED, BARE_REDIS, DISTKIT, OWN_THREAD, QUORATE_FRED, QUORATE_REDIS, RAW, RSLOCK,
};
use crate::measure::HEALTHY;
use crate::stats::median;

/// The pairs that are compared.
const PAIRS: [(&str, &str); 14] = [
    (QUORATE_REDIS, BARE_REDIS),
    (QUORATE_FRED, BARE_FRED),
    (QUORATE_REDIS, RSLOCK),
    (QUORATE_FRED, RSLOCK),
    (QUORATE_REDIS, RAW),
    (QUORATE_REDIS, DISTKIT),
    (OWN_THREAD, QUORATE_REDIS),
    (BARE_REDIS, RAW),
    ("quorate/redis fenced", "quorate/redis plain"),
    ("quorate/redis guarded", "quorate/redis plain"),
    ("quorate/redis fenced and guarded", "quorate/redis plain"),
    ("quorate/fred fenced", "quorate/fred plain"),
    ("quorate/fred guarded", "quorate/fred plain"),
    ("quorate/fred fenced and guarded", "quorate/fred plain"),
];

const METRICS: [&str; 4] = ["cycles/s", "cycle p50 µs", "client CPU µs/cycle", "node CPU µs/cycle"];

pub(super) struct Ratio {
    pub(super) measure: &'static str,
    pub(super) setting: String,
    pub(super) metric: String,
    pub(super) of: &'static str,
    pub(super) to: &'static str,
    pub(super) value: f64,
}

/// The ratios of all figures that are compared.
pub(super) fn all(book: &Book) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (of, to) in PAIRS {
        let is_compared = |entry: &&Entry| {
            entry.contestant == of
                && matches!(entry.measure, "latency" | "throughput" | "one-node" | "fencing")
                && METRICS.contains(&entry.metric.as_str())
        };
        for entry in book.entries().iter().filter(is_compared) {
            let other = book.entries().iter().find(|other| {
                other.contestant == to
                    && (other.measure, &other.setting, &other.metric)
                        == (entry.measure, &entry.setting, &entry.metric)
            });
            if let Some(other) = other {
                ratios.push(Ratio {
                    measure: entry.measure,
                    setting: entry.setting.clone(),
                    metric: entry.metric.clone(),
                    of,
                    to,
                    value: paired(entry, other),
                });
            }
        }
    }
    ratios
}

/// The metrics that are compared between a run with a hung node and one with healthy nodes.
pub(super) const HUNG: [&str; 4] =
    ["acquire p50 µs", "acquire p99 µs", "release p50 µs", "release p99 µs"];

/// The ratios of each contestant with a hung node to itself with healthy nodes.
pub(super) fn of_hung(book: &Book) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for entry in book.entries().iter().filter(|entry| entry.measure == "hung") {
        let healthy = book.entries().iter().find(|other| {
            (other.measure, other.setting.as_str()) == (entry.measure, HEALTHY)
                && (&other.contestant, &other.metric) == (&entry.contestant, &entry.metric)
        });
        let contestant = ALL.into_iter().find(|name| *name == entry.contestant);
        if let (Some(healthy), Some(of)) = (healthy, contestant)
            && entry.setting != HEALTHY
            && HUNG.contains(&entry.metric.as_str())
        {
            ratios.push(Ratio {
                measure: entry.measure,
                setting: entry.setting.clone(),
                metric: entry.metric.clone(),
                of,
                to: HEALTHY,
                value: paired(entry, healthy),
            });
        }
    }
    ratios
}

/// The gap between two holders, as a ratio to times of an uncontended lock by hand on the same client.
pub(super) struct Gap {
    pub(super) setting: String,
    pub(super) of: &'static str,
    /// To an acquire at full speed.
    pub(super) to_acquire: Option<f64>,
    /// To an acquire by a client that holds the lock for the same time.
    pub(super) to_acquire_at_its_pace: Option<f64>,
    /// To the time in which that client releases and acquires again.
    pub(super) to_gap: Option<f64>,
}

pub(super) fn of_gaps(book: &Book) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for (of, to) in [(QUORATE_REDIS, BARE_REDIS), (QUORATE_FRED, BARE_FRED)] {
        let by_hand = |measure: &str, setting: &str, metric: &str| {
            book.entries().iter().find(|entry| {
                (entry.measure, &*entry.contestant, &*entry.metric) == (measure, to, metric)
                    && entry.setting.starts_with(setting)
            })
        };
        let acquire = by_hand("latency", "current-thread", "acquire p50 µs");
        let paced = by_hand("handover", "1 in processes", "wait p50 µs");
        let gap = by_hand("handover", "1 in processes", "gap p50 µs");
        let ours = book.entries().iter().filter(|entry| {
            (entry.measure, &*entry.contestant) == ("handover", of) && entry.metric == "gap p50 µs"
        });
        gaps.extend(ours.map(|ours| {
            let to = |other: Option<&Entry>| other.map(|other| paired(ours, other));
            Gap {
                setting: ours.setting.clone(),
                of,
                to_acquire: to(acquire),
                to_acquire_at_its_pace: to(paced),
                to_gap: to(gap),
            }
        }));
    }
    gaps
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
    fn a_gap_is_compared_to_an_acquire_by_hand_on_the_same_client() {
        let mut book = Book::default();
        for (client, acquire) in [(BARE_REDIS, 100.0), (BARE_FRED, 200.0)] {
            book.add("latency", "current-thread, tasks: 1", client, "acquire p50 µs", acquire);
            book.add("latency", "multi-thread, tasks: 1", client, "acquire p50 µs", 1.0);
        }
        book.add("handover", "8 in processes: 1", QUORATE_FRED, "gap p50 µs", 300.0);
        book.add("handover", "1 in processes: 1", BARE_FRED, "wait p50 µs", 400.0);
        book.add("handover", "1 in processes: 1", BARE_FRED, "gap p50 µs", 600.0);
        let gaps = of_gaps(&book);
        let [gap] = &*gaps else { panic!("there is one") };
        assert_eq!((&*gap.setting, gap.of), ("8 in processes: 1", QUORATE_FRED));
        let ratios = [gap.to_acquire, gap.to_acquire_at_its_pace, gap.to_gap];
        assert_eq!(ratios, [Some(1.5), Some(0.75), Some(0.5)]);
    }

    #[test]
    fn a_ratio_is_taken_within_each_repetition_and_then_the_median() {
        let mut book = Book::default();
        // The machine was slow in the second repetition, for both.
        for (healthy, hung) in [(100.0, 120.0), (900.0, 990.0), (100.0, 130.0)] {
            book.add("hung", HEALTHY, QUORATE_FRED, "acquire p99 µs", healthy);
            book.add("hung", "hung before", QUORATE_FRED, "acquire p99 µs", hung);
            book.add("hung", "hung before", QUORATE_FRED, "cycles", hung);
        }
        let ratios = of_hung(&book);
        assert_eq!(ratios.len(), 1);
        assert_eq!((ratios[0].of, ratios[0].setting.as_str()), (QUORATE_FRED, "hung before"));
        assert!((ratios[0].value - 1.2).abs() < 1e-9);
    }
}
