//! The report: tables as Markdown, and a chart.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::book::Book;
use crate::measure::MEASURES;
use crate::plan::Plan;

mod ratios;
mod svg;

/// Writes both and prints the Markdown.
pub(crate) fn write(plan: &Plan, book: &Book) -> Outcome {
    let text = render(plan, book);
    let picture = svg::render(book);
    println!("{text}");
    fs::create_dir_all(&plan.out)?;
    let mut files = vec![(plan.out.join("race.md"), plan.out.join("race.svg"))];
    if plan.publish {
        files.push((Path::new("benches/RACE.md").into(), Path::new("benches/race.svg").into()));
    }
    for (tables, chart) in files {
        put(&tables, &text)?;
        if let Some(picture) = &picture {
            put(&chart, picture)?;
        }
    }
    Ok(())
}

fn put(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn render(plan: &Plan, book: &Book) -> String {
    let mut text = String::from("# Race\n\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Five nodes on one machine if no other number is named, all contestants interleaved; medians of {}\n\
         repetitions of {:?}, of {} for *latency*.\n",
        plan.repetitions,
        plan.sample,
        plan.repetitions_of_what_varies(),
    );
    for measure in MEASURES.iter().filter(|measure| plan.includes(measure.name)) {
        let _ = writeln!(text, "## {}: {}\n", measure.name, measure.about);
        figures(&mut text, book, measure.name);
    }
    comparison(&mut text, book);
    leftovers(&mut text, book);
    for failure in &book.failures {
        let _ = writeln!(text, "\n**{failure}**");
    }
    text
}

/// The figures of a measure. Rows and columns are in the order in which they were first taken.
fn figures(text: &mut String, book: &Book, measure: &str) {
    let (mut columns, mut rows) = (Vec::new(), Vec::new());
    for entry in book.entries.iter().filter(|entry| entry.measure == measure) {
        let row = [entry.setting.clone(), entry.contestant.clone()];
        if !columns.contains(&&*entry.metric) {
            columns.push(&*entry.metric);
        }
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    table(text, &columns, &rows, |[setting, contestant], metric| {
        book.median(measure, setting, contestant, metric).map(number)
    });
}

fn comparison(text: &mut String, book: &Book) {
    let ratios = ratios::all(book);
    if ratios.is_empty() {
        return;
    }
    text.push_str("## Ratios: within each repetition, then the median\n\n");
    let mut rows: Vec<_> = ratios.iter().map(|ratio| ratio.row.clone()).collect();
    rows.dedup();
    table(text, &ratios::METRICS, &rows, |row, metric| {
        let same = ratios.iter().find(|ratio| ratio.row == *row && ratio.metric == metric);
        same.map(|ratio| format!("{:.2}", ratio.value))
    });
}

fn table(
    text: &mut String,
    columns: &[&str],
    rows: &[[String; 2]],
    cell: impl Fn(&[String; 2], &str) -> Option<String>,
) {
    let _ = writeln!(text, "| | | {} |", columns.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---:|".repeat(columns.len()));
    for row in rows {
        let cells =
            columns.iter().map(|column| cell(row, column).unwrap_or_else(|| "–".to_owned()));
        let cells: Vec<_> = cells.collect();
        let _ = writeln!(text, "| {} | {} |", row.join(" | "), cells.join(" | "));
    }
    text.push('\n');
}

fn leftovers(text: &mut String, book: &Book) {
    text.push_str("## Keys left on the nodes\n\n");
    if book.leftovers.is_empty() {
        text.push_str("None, after any run.\n");
        return;
    }
    text.push_str(
        "A node that hung for longer than the cleanup bound (here the ttl) may execute an acquire after\n\
         it resumes and keep the key for one ttl. That counts as no failure.\n\n",
    );
    for left in &book.leftovers {
        let _ = writeln!(text, "- {left}");
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
