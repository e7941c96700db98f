//! The report: tables as Markdown, and a chart.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::book::{Book, Figure, median};
use crate::contest::{
    ALL, BARE_FRED, BARE_REDIS, FENCED, OURS, OWN_THREAD, QUORATE_FRED, QUORATE_REDIS, RSLOCK,
};
use crate::measure::{HEALTHY, MEASURES, Plan};

const PAIRS: [(&str, &str); 5] = [
    (QUORATE_REDIS, BARE_REDIS),
    (QUORATE_FRED, BARE_FRED),
    (QUORATE_REDIS, RSLOCK),
    (QUORATE_FRED, RSLOCK),
    (OWN_THREAD, QUORATE_REDIS),
];

const COMPARED: [&str; 4] =
    ["cycles/s", "cycle p50 µs", "client CPU µs/cycle", "node CPU µs/cycle"];

/// A cell of a table: the two parts of its row, its column and its text.
type Cell = ([String; 2], String, String);

pub(crate) fn write(plan: &Plan, book: &Book) -> Outcome {
    let (text, chart) = (render(plan, book), chart(book));
    println!("{text}");
    let out = plan.out();
    fs::create_dir_all(&out)?;
    let mut places = vec![(out.join("race.md"), out.join("race.svg"))];
    if plan.publish {
        places.push((Path::new("benches/RACE.md").into(), Path::new("benches/race.svg").into()));
    }
    for (tables, picture) in places {
        fs::write(&tables, &text)?;
        println!("wrote {}", tables.display());
        if chart.contains("<rect x=") {
            fs::write(picture, &chart)?;
        }
    }
    Ok(())
}

fn render(plan: &Plan, book: &Book) -> String {
    let mut text = format!(
        "# Race\n\nFive nodes on one machine if no other number is named, all contestants interleaved; medians of {}\n\
         repetitions of {:?}, three times as many for *latency*. Instructions of a\n\
         cycle: [INSTRUCTIONS.md](INSTRUCTIONS.md).\n",
        plan.repetitions,
        plan.sample(),
    );
    // Writing to a string does not fail.
    for (name, about, _) in MEASURES.iter().filter(|(name, ..)| plan.includes(name)) {
        let _ = writeln!(text, "\n## {name}: {about}\n");
        let of_measure = book.entries.iter().filter(|([measure, ..], _)| measure == name);
        let cell = |([_, setting, contestant, metric], samples): &(Figure, Vec<f64>)| {
            ([setting, contestant].map(String::clone), metric.clone(), number(median(samples)))
        };
        table(&mut text, &of_measure.map(cell).collect::<Vec<_>>());
    }
    let ratios = ratios(book).into_iter();
    let ratios: Vec<Cell> =
        ratios.map(|(row, of, ratio)| (row, of, format!("{ratio:.2}"))).collect();
    if !ratios.is_empty() {
        text.push_str("\n## Ratios: within each repetition, then the median\n\n");
        table(&mut text, &ratios);
    }
    text.push_str(
        "\n## Keys left on the nodes\n\nA node that hung for longer than the cleanup bound (here the ttl) may execute \
         an acquire after\nit resumes and keep the key for one ttl. That counts as no failure.\n\n",
    );
    let none = ["None, after any run.".to_owned()];
    let left = if book.leftovers.is_empty() { &none[..] } else { &book.leftovers };
    left.iter().for_each(|left| _ = writeln!(text, "- {left}"));
    book.failures.iter().for_each(|failure| _ = writeln!(text, "\n**{failure}**"));
    text
}

/// Writes a table. Rows and columns are in the order of their first cells.
fn table(text: &mut String, cells: &[Cell]) {
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    for (row, column, _) in cells {
        if !rows.contains(&row) {
            rows.push(row);
        }
        if !columns.contains(&&**column) {
            columns.push(column);
        }
    }
    let _ = writeln!(text, "| | | {} |", columns.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---:|".repeat(columns.len()));
    for row in rows {
        let cell = |of: &&str| cells.iter().find(|(other, column, _)| other == row && column == of);
        let texts = columns.iter().map(|column| cell(column).map_or("–", |(.., text)| text));
        let _ =
            writeln!(text, "| {} | {} |", row.join(" | "), texts.collect::<Vec<_>>().join(" | "));
    }
}

/// The ratios of all figures that are compared, row by row: each contestant to others, and to itself with healthy
/// nodes.
fn ratios(book: &Book) -> Vec<([String; 2], String, f64)> {
    let healthy = ALL.map(|name| (name, name));
    let of_client = |all: &'static [&'static str]| all[1..].iter().map(|name| (*name, all[0]));
    let fenced = FENCED.chunks(4).flat_map(of_client);
    let mut ratios = Vec::new();
    for (of, to) in PAIRS.into_iter().chain(fenced).chain(healthy) {
        for ([measure, setting, contestant, metric], samples) in &book.entries {
            let is_hung = measure == "hung";
            if contestant != of || !COMPARED.contains(&&**metric) || is_hung != (of == to) {
                continue;
            }
            let row = match is_hung {
                true if setting == HEALTHY => continue,
                true => [of.to_owned(), format!("{setting} to {HEALTHY}")],
                false => [format!("{of} to {to}"), format!("{measure}, {setting}")],
            };
            let base = if is_hung { HEALTHY } else { setting };
            let other = book.find([measure, base, to, metric]);
            ratios.extend(other.map(|other| (row, metric.clone(), paired(samples, other))));
        }
    }
    ratios
}

/// The samples of one repetition follow each other directly, so a disturbance affects both.
fn paired(samples: &[f64], others: &[f64]) -> f64 {
    median(&samples.iter().zip(others).map(|(one, other)| one / other).collect::<Vec<_>>())
}

/// Formats a number with at least three digits and a comma between thousands.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value == value.round() || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let mut text = format!("{value:.digits$}");
    let mut place = text.find('.').unwrap_or(text.len());
    let first = usize::from(value < 0.0);
    while place > first + 3 {
        place -= 3;
        text.insert(place, ',');
    }
    text
}

/// A bar of the chart: its name, length and label.
type Bar = (&'static str, f64, String);

/// Draws a chart: cycles per second, and the latency of a cycle.
fn chart(book: &Book) -> String {
    const WIDTH: usize = 760;
    const LEFT: usize = 110;
    const STEP: usize = 26;
    let throughput = |contestant: &'static str| {
        let samples =
            book.find(["throughput", "current-thread, tasks: 64", contestant, "cycles/s"]);
        samples.map(median).map(|median| (contestant, median, format!("{:.0}k", median / 1e3)))
    };
    let latency = |contestant: &'static str| {
        let of = |name| book.find(["latency", "current-thread, tasks: 1", name, "cycle p50 µs"]);
        let ratio = paired(of(contestant)?, of(BARE_REDIS)?);
        Some((contestant, ratio, format!("{ratio:.2}")))
    };
    let panels: [(&str, Vec<Bar>); 2] = [
        (
            "Lock and release, 64 tasks: cycles per second (more is better)",
            ALL.into_iter().filter_map(throughput).collect(),
        ),
        (
            "One task alone: median latency, bare redis-rs = 1 (less is better)",
            ALL.into_iter().filter_map(latency).collect(),
        ),
    ];
    let (mut top, mut svg) = (0, String::new());
    for (title, bars) in panels.into_iter().filter(|(_, bars)| !bars.is_empty()) {
        let y = top + 24;
        let _ = writeln!(svg, "<text x=\"10\" y=\"{y}\" font-weight=\"bold\">{title}</text>");
        let longest = bars.iter().map(|(_, value, _)| *value).fold(f64::MIN_POSITIVE, f64::max);
        for (place, (name, value, label)) in bars.iter().enumerate() {
            let y = top + 40 + place * STEP;
            let (length, base) = (value / longest * (WIDTH - LEFT - 70) as f64, y + 14);
            let colour = if OURS.contains(name) { "#1a7f5a" } else { "#b8bec6" };
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{name}</text>\
                 <rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"18\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{base}\">{label}</text>",
                LEFT - 8,
                LEFT as f64 + length + 6.0,
            );
        }
        top += 50 + STEP * bars.len();
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{top}\" fill=\"#fff\"/>\n{svg}</svg>\n"
    )
}
