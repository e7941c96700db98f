//! The chart: cycles per second, and the latency of a cycle.

use std::fmt::Write as _;

use super::ratios::paired;
use crate::book::Book;
use crate::contest::{ALL, BARE_REDIS, OURS};

const WIDTH: usize = 760;
const LEFT: usize = 110;
const BAR: usize = 18;
const STEP: usize = 26;

/// A group of bars.
struct Panel {
    title: &'static str,
    bars: Vec<(&'static str, f64, String)>,
}

/// Renders the chart; `None` if neither throughput nor latency was measured.
pub(super) fn render(book: &Book) -> Option<String> {
    let panels = [throughput(book), latency(book)];
    let panels: Vec<_> = panels.into_iter().filter(|panel| !panel.bars.is_empty()).collect();
    if panels.is_empty() {
        return None;
    }
    let height: usize = panels.iter().map(|panel| 50 + STEP * panel.bars.len()).sum();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let mut top = 0;
    for panel in &panels {
        panel.draw(&mut svg, top);
        top += 50 + STEP * panel.bars.len();
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn throughput(book: &Book) -> Panel {
    let bar = |contestant| {
        let setting = "current-thread, tasks: 64";
        let median = book.median("throughput", setting, contestant, "cycles/s")?;
        Some((contestant, median, format!("{:.0}k", median / 1e3)))
    };
    Panel {
        title: "Lock and release, 64 tasks: cycles per second (more is better)",
        bars: ALL.into_iter().filter_map(bar).collect(),
    }
}

fn latency(book: &Book) -> Panel {
    let entry =
        |contestant| book.find("latency", "current-thread, tasks: 1", contestant, "cycle p50 µs");
    let bar = |contestant| {
        let ratio = paired(entry(contestant)?, entry(BARE_REDIS)?);
        Some((contestant, ratio, format!("{ratio:.2}")))
    };
    Panel {
        title: "One task alone: median latency, bare redis-rs = 1 (less is better)",
        bars: ALL.into_iter().filter_map(bar).collect(),
    }
}

impl Panel {
    fn draw(&self, svg: &mut String, top: usize) {
        let title = self.title;
        // Writing to a string does not fail.
        let _ =
            writeln!(svg, "<text x=\"10\" y=\"{}\" font-weight=\"bold\">{title}</text>", top + 24);
        let longest =
            self.bars.iter().map(|(_, value, _)| *value).fold(f64::MIN_POSITIVE, f64::max);
        for (place, (name, value, label)) in self.bars.iter().enumerate() {
            let y = top + 40 + place * STEP;
            let length = value / longest * (WIDTH - LEFT - 70) as f64;
            let colour = if OURS.contains(name) { "#1a7f5a" } else { "#b8bec6" };
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>\
                 <rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{}\">{label}</text>",
                LEFT - 8,
                y + 14,
                LEFT as f64 + length + 6.0,
                y + 14,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_bar_for_each_who_took_part() {
        let mut book = Book::default();
        assert_eq!(render(&book), None);
        let setting = "current-thread, tasks: 64";
        book.add("throughput", setting, "raw", "cycles/s", 90_000.0);
        book.add("throughput", setting, "rslock", "cycles/s", 45_000.0);
        let svg = render(&book).unwrap();
        assert_eq!(svg.matches("<rect x=").count(), 2);
        assert!(svg.contains(">90k<"));
    }
}
