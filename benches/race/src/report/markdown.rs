//! The tables of the report.

use std::fmt::Write as _;

use super::ratios;
use crate::book::{Book, Entry};
use crate::measure::MEASURES;
use crate::plan::Plan;

/// The columns of a measure's table. The JSON report has all metrics.
fn columns(measure: &str) -> &'static [&'static str] {
    match measure {
        "latency" | "nodes" => {
            &["cycle p50 µs", "cycle p99 µs", "client CPU µs/cycle", "node CPU µs/cycle"]
        }
        "fencing" => {
            &["cycle p50 µs", "cycle p99 µs", "acquire p50 µs", "release p50 µs", "cycles"]
        }
        "throughput" => {
            &["cycles/s", "cycle p99 µs", "client CPU µs/cycle", "node CPU µs/cycle", "failed"]
        }
        "one-node" => &[
            "cycle p50 µs",
            "cycle p99 µs",
            "cycles/s",
            "client CPU µs/cycle",
            "node CPU µs/cycle",
            "failed",
        ],
        "one-key" => &[
            "holds/s",
            "least share",
            "greatest share",
            "gap p50 µs",
            "longest wait ms",
            "rounds/hand-over",
            "never served",
            "overlaps",
        ],
        "handover" => &[
            "holds/s",
            "gap p50 µs",
            "gap p99 µs",
            "to another %",
            "least share",
            "mean wait ms",
            "longest wait ms",
            "longest wait/mean",
            "commands/hand-over",
            "rounds/hand-over",
            "never served",
            "overlaps",
        ],
        "crowd" | "queue" | "waiters" => &[
            "holds/s",
            "rounds/hand-over",
            "rounds/hand-over at the busiest node",
            "commands/hand-over",
            "gap p50 µs",
            "longest wait ms",
            "never served",
            "overlaps",
        ],
        "gate" => &[
            "holds/s",
            "gap p50 µs",
            "longest gap ms",
            "longest wait ms",
            "to another %",
            "least share",
            "never served",
            "overlaps",
        ],
        "killed" => &["gap p50 ms", "longest gap ms", "helper keys", "helper keys after 11 s"],
        "refused" => &["try p50 µs", "try p99 µs", "tries"],
        "waiting" => &["commands/s of a waiter", "scripts/s of a waiter", "rounds/s of a waiter"],
        "hung" | "dead" => &[
            "acquire p50 µs",
            "acquire p99 µs",
            "acquire max µs",
            "release p50 µs",
            "release p99 µs",
            "release max µs",
            "cycles",
            "failed",
            "left",
        ],
        "memory" => &[
            "cycles/s",
            "cycles/s until 1/6",
            "cycles/s until 2/6",
            "cycles/s until 4/6",
            "RSS MB at 1/6",
            "RSS MB at 2/6",
            "RSS MB at 4/6",
            "RSS MB",
            "ended after s",
            "failed",
            "closed after ms",
            "left",
        ],
        "crash" => &["ms beyond the ttl"],
        "leases" => &[
            "taken",
            "taken/s",
            "bytes/lease",
            "bytes/lease at the end",
            "released/s",
            "renewals/s",
            "CPU %",
            "late wake-up ms",
            "lost",
        ],
        _ => &[],
    }
}

pub(super) fn render(plan: &Plan, book: &Book) -> String {
    let mut text = String::from("# Race\n\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Five nodes on one machine if no other number is named, all contestants interleaved; medians of {}\n\
         repetitions of {:?}, of {} for *latency*.\n",
        plan.repetitions(),
        plan.sample,
        plan.repetitions_of_what_varies(),
    );
    for measure in MEASURES.iter().filter(|measure| plan.includes(measure.name)) {
        let _ = writeln!(text, "## {}: {}\n", measure.name, measure.about);
        table(&mut text, book, measure.name);
        if measure.name == "hung" {
            to_healthy(&mut text, book);
        }
        if measure.name == "handover" {
            to_acquire(&mut text, book);
        }
    }
    comparison(&mut text, book);
    leftovers(&mut text, book);
    for failure in book.failures() {
        let _ = writeln!(text, "\n**{failure}**");
    }
    text
}

fn table(text: &mut String, book: &Book, measure: &str) {
    let columns = columns(measure);
    let _ = writeln!(text, "| | | {} |", columns.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---:|".repeat(columns.len()));
    let mut rows: Vec<(&str, &str)> = Vec::new();
    for Entry { setting, contestant, .. } in
        book.entries().iter().filter(|entry| entry.measure == measure)
    {
        if !rows.contains(&(setting, contestant)) {
            rows.push((setting, contestant));
        }
    }
    for (setting, contestant) in rows {
        let cells = columns.iter().map(|metric| {
            let figure = book.median(measure, setting, contestant, metric);
            figure.map_or_else(|| "–".to_owned(), number)
        });
        let cells: Vec<_> = cells.collect();
        let _ = writeln!(text, "| {setting} | {contestant} | {} |", cells.join(" | "));
    }
    text.push('\n');
}

/// Appends the ratios of runs with a hung node to runs with healthy nodes.
fn to_healthy(text: &mut String, book: &Book) {
    let ratios = ratios::of_hung(book);
    if ratios.is_empty() {
        return;
    }
    text.push_str("To healthy nodes, within each repetition, then the median:\n\n");
    let _ = writeln!(text, "| | | {} |", ratios::HUNG.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---:|".repeat(ratios::HUNG.len()));
    let mut rows: Vec<(&str, &str)> = Vec::new();
    for ratio in &ratios {
        let row = (ratio.setting.as_str(), ratio.of);
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    for (setting, of) in rows {
        let cells = ratios::HUNG.map(|metric| {
            let same = ratios.iter().find(|ratio| {
                (ratio.setting.as_str(), ratio.of, ratio.metric.as_str()) == (setting, of, metric)
            });
            same.map_or_else(|| "–".to_owned(), |ratio| number(ratio.value))
        });
        let _ = writeln!(text, "| {setting} | {of} | {} |", cells.join(" | "));
    }
    text.push('\n');
}

/// Appends the ratios of the gap between two holders to an uncontended lock.
fn to_acquire(text: &mut String, book: &Book) {
    let gaps = ratios::of_gaps(book);
    if gaps.is_empty() {
        return;
    }
    text.push_str(
        "The gap as a ratio to a client by hand without competitors: to an acquire at full speed (p50 of \
         *latency*),\nto an acquire by a client that holds for the same time, and to the time in which that \
         client releases\nand acquires again:\n\n",
    );
    text.push_str(
        "| | | to acquire | to acquire at its pace | to gap |\n|---|---|---:|---:|---:|\n",
    );
    let shown = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), |it| format!("{it:.2}"));
    for gap in gaps {
        let ratios::Gap { setting, of, .. } = gap;
        let ratios = [gap.to_acquire, gap.to_acquire_at_its_pace, gap.to_gap].map(shown);
        let _ = writeln!(text, "| {setting} | {of} | {} |", ratios.join(" | "));
    }
    text.push('\n');
}

fn comparison(text: &mut String, book: &Book) {
    let ratios = ratios::all(book);
    if ratios.is_empty() {
        return;
    }
    text.push_str("## Ratios: within each repetition, then the median\n\n");
    text.push_str(
        "| | | cycles/s | p50 | client CPU | node CPU |\n|---|---|---:|---:|---:|---:|\n",
    );
    let mut rows: Vec<(&str, &str, &str, &str)> = Vec::new();
    for ratio in &ratios {
        let row = (ratio.of, ratio.to, ratio.measure, ratio.setting.as_str());
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    for (of, to, measure, setting) in rows {
        let cell = |metric: &str| {
            let same = ratios.iter().find(|ratio| {
                (ratio.of, ratio.to, ratio.measure, ratio.setting.as_str())
                    == (of, to, measure, setting)
                    && ratio.metric == metric
            });
            same.map_or_else(|| "–".to_owned(), |ratio| format!("{:.2}", ratio.value))
        };
        let cells = ["cycles/s", "cycle p50 µs", "client CPU µs/cycle", "node CPU µs/cycle"];
        let cells = cells.map(cell).join(" | ");
        let _ = writeln!(text, "| {of} to {to} | {measure}, {setting} | {cells} |");
    }
    text.push('\n');
}

fn leftovers(text: &mut String, book: &Book) {
    text.push_str("## Keys left on the nodes\n\n");
    if book.leftovers().is_empty() {
        text.push_str("None, after any run.\n");
        return;
    }
    text.push_str(
        "A node that hung for longer than the cleanup bound (here the ttl) may execute an acquire after\n\
         it resumes and keep the key for one ttl. That counts as no failure.\n\n",
    );
    text.push_str("| | after | keys | one of them |\n|---|---|---:|---|\n");
    for left in book.leftovers() {
        let (contestant, place) = (&left.contestant, &left.place);
        let _ = writeln!(text, "| {contestant} | {place} | {} | {} |", left.keys, left.example);
    }
}

/// Formats a number with at least three digits and a comma between thousands.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value == value.round() || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let plain = format!("{value:.digits$}");
    let (whole, part) = plain.split_once('.').map_or((&*plain, None), |(w, p)| (w, Some(p)));
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        let left = whole.len() - place;
        if place > 0 && left % 3 == 0 && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    part.map_or_else(|| text.clone(), |part| format!("{text}.{part}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        for (value, text) in [
            (0.0, "0"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (-123.4, "-123"),
            (1_234_567.8, "1,234,568"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
