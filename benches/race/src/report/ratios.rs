//! How quorate compares: within each repetition, then the median.

use crate::book::{Book, Entry};
use crate::contest::{BARE_FRED, BARE_REDIS, QUORATE_FRED, QUORATE_REDIS, RAW, RSLOCK};
use crate::stats::median;

/// Who is compared to whom.
const PAIRS: [(&str, &str); 12] = [
    (QUORATE_REDIS, BARE_REDIS),
    (QUORATE_FRED, BARE_FRED),
    (QUORATE_REDIS, RSLOCK),
    (QUORATE_FRED, RSLOCK),
    (QUORATE_REDIS, RAW),
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
                && matches!(entry.measure, "latency" | "throughput" | "fencing")
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

/// Samples of one repetition were taken one after the other: what disturbed one disturbed both.
pub(super) fn paired(entry: &Entry, other: &Entry) -> f64 {
    let pairs = entry.samples.iter().zip(&other.samples);
    median(&pairs.map(|(one, other)| one / other).collect::<Vec<_>>())
}
