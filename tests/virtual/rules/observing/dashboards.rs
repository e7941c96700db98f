//! `examples/observability`: the dashboard and the alerting rules use metrics and labels that are there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use yaml_rust2::YamlLoader;

const DASHBOARD: &str = include_str!("../../../../examples/observability/dashboard.json");
const ALERTS: &str = include_str!("../../../../examples/observability/alerts.yaml");
const OPERATIONS: &str = include_str!("../../../../crates/quorate/docs/operations.md");

/// The tables that a test in the core compares with what is emitted.
const TABLES: &str = include_str!("../../../../crates/quorate-core/src/telemetry.rs");

struct Metric {
    is_histogram: bool,
    labels: BTreeSet<&'static str>,
    /// The values that the table names, of whatever label.
    values: BTreeSet<&'static str>,
}

fn metrics() -> BTreeMap<&'static str, Metric> {
    let spans = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect::<BTreeSet<_>>();
    let mut metrics = BTreeMap::new();
    let mut above = "";
    for row in TABLES.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [name, kind, labels, values, ..] = cells[..] else { continue };
        // A row without a name goes on with the one above.
        above = if name.is_empty() { above } else { name.trim_matches('`') };
        if above.starts_with("quorate_") {
            let metric = metrics.entry(above).or_insert_with(|| Metric {
                is_histogram: kind == "histogram",
                labels: spans(labels),
                values: BTreeSet::new(),
            });
            metric.values.extend(spans(values));
        }
    }
    metrics
}

/// The selectors of an expression: the name of a metric, and the matchers between the braces behind it.
fn selectors(expr: &str) -> impl Iterator<Item = (&str, &str)> {
    expr.match_indices("quorate_").map(|(at, _)| {
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let (name, rest) = expr[at..].split_at(expr[at..].find(|c| !is_part(c)).unwrap());
        let inside = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        (name, inside.map_or("", |(inside, _)| inside))
    })
}

/// Fails where an expression asks for a series that no program exports. Returns the metrics.
fn assert_exported(expr: &str, metrics: &BTreeMap<&'static str, Metric>) -> Vec<String> {
    let mut labels = BTreeSet::from(["instance", "job"]);
    let used: Vec<_> = selectors(expr).collect();
    assert!(!used.is_empty(), "no metric of quorate: {expr}");
    for (name, matchers) in &used {
        let metric =
            metrics.get(name).unwrap_or_else(|| panic!("no such metric: {name} in {expr}"));
        labels.extend(metric.labels.iter().copied());
        for matcher in matchers.split(", ").filter(|matcher| !matcher.is_empty()) {
            let (label, value) = matcher.split_once('=').unwrap();
            let value = value.trim_start_matches('~').trim_matches('"');
            match label {
                "job" => assert_eq!(value, "$job", "{expr}"),
                "quantile" => assert!(metric.is_histogram, "{name} has no quantiles: {expr}"),
                _ => {
                    assert!(metric.labels.contains(label), "{name} has no label {label}: {expr}");
                    for value in value.split('|') {
                        assert!(metric.values.contains(value), "{label} is never {value}: {expr}");
                    }
                }
            }
        }
        let has_quantile = matchers.contains("quantile=");
        assert_eq!(
            metric.is_histogram, has_quantile,
            "{name} needs a quantile, or has none: {expr}"
        );
    }
    for by in expr.split("by (").skip(1) {
        for label in by.split(')').next().unwrap().split(", ") {
            assert!(labels.contains(label), "there is no label {label}: {expr}");
        }
    }
    let opened = expr.matches('(').count();
    assert_eq!(opened, expr.matches(')').count(), "{expr}");
    used.iter().map(|(name, _)| (*name).to_owned()).collect()
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let metrics = metrics();
    assert!(metrics.len() >= 14, "the table of metrics is another one");
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut shown, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}");
        let place = &panel["gridPos"];
        assert!(places.insert((place["x"].as_u64(), place["y"].as_u64())), "{title} hides another");
        let mut letters = BTreeSet::new();
        for target in panel["targets"].as_array().unwrap() {
            assert!(letters.insert(target["refId"].as_str()), "{title}");
            shown.extend(assert_exported(target["expr"].as_str().unwrap(), &metrics));
        }
    }
    assert_eq!(shown, metrics.keys().map(|name| (*name).to_owned()).collect());
}

#[test]
fn each_alert_asks_for_series_that_exist_and_is_explained() {
    let metrics = metrics();
    let file = YamlLoader::load_from_str(ALERTS).unwrap().remove(0);
    let [group] = &file["groups"].as_vec().unwrap()[..] else { panic!("one group") };
    let mut names = BTreeSet::new();
    for rule in group["rules"].as_vec().unwrap() {
        let name = rule["alert"].as_str().unwrap();
        let expr = rule["expr"].as_str().unwrap();
        assert_exported(expr, &metrics);
        assert!(names.insert(name), "{name} is there twice");
        assert!(expr.contains("> "), "{name} has no threshold");
        assert!(rule["for"].as_str().unwrap().ends_with('m'), "{name}");
        assert!(["page", "ticket"].contains(&rule["labels"]["severity"].as_str().unwrap()));
        let summary = rule["annotations"]["summary"].as_str().unwrap();
        for label in summary.split("$labels.").skip(1) {
            let label = label.split(' ').next().unwrap();
            assert!(expr.contains(&format!("{label}, ")) || expr.contains(&format!("{label})")));
        }
        assert!(OPERATIONS.contains(&format!("| `{name}` |")), "the guide does not explain {name}");
    }
}
