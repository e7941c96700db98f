//! The tables in the module's documentation are what is emitted.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::ready;
use std::sync::Once;

use futures_util::FutureExt;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::error::QuorumFailure;
use crate::resource::{Label, Resource};
use crate::seam::backend::BackendErrorKind;

const MS: Duration = Duration::from_millis(1);

/// One event, with its fields as text.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    level: String,
    fields: BTreeMap<&'static str, String>,
    in_span: bool,
}

impl Seen {
    fn message(&self) -> &str {
        &self.fields["message"]
    }
}

#[derive(Default)]
struct Log {
    events: Vec<Seen>,
    spans: Vec<String>,
    entered: usize,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::default();
}

/// The subscriber of all threads: scoped subscribers race for the interest in a callsite.
struct Listener;

impl Subscriber for Listener {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "quorate"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let metadata = attributes.metadata();
        let span = format!("{} {} {}", metadata.level(), metadata.name(), fields.0["keys"]);
        LOG.with_borrow_mut(|log| log.spans.push(span));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        LOG.with_borrow_mut(|log| {
            let level = event.metadata().level().to_string();
            log.events.push(Seen { level, fields: fields.0, in_span: log.entered > 0 });
        });
    }

    fn enter(&self, _: &Id) {
        LOG.with_borrow_mut(|log| log.entered += 1);
    }

    fn exit(&self, _: &Id) {
        LOG.with_borrow_mut(|log| log.entered -= 1);
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// What `scene` emits.
fn log(scene: impl FnOnce()) -> Log {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Listener).unwrap());
    LOG.take();
    scene();
    LOG.take()
}

/// What `scene` records. Each figure is described.
fn figures(scene: impl FnOnce()) -> impl Iterator<Item = (metrics::Key, DebugValue)> {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, scene);
    let figures = recorder.snapshotter().snapshot().into_vec().into_iter();
    figures.map(|(key, unit, description, value)| {
        assert!(unit.is_some() && description.is_some(), "{key:?} is described");
        (key.key().clone(), value)
    })
}

fn keys(count: usize) -> Vec<Key> {
    (0..count).map(|index| Key::new(b"", &Resource::new(format!("k{index}")).unwrap())).collect()
}

/// Everything that can be emitted.
fn everything() {
    let keys = &keys(2);
    let error = &BackendError::new(BackendErrorKind::Loading, "LOADING");
    describe_metrics();
    acquired(keys, MS, MS);
    not_acquired(keys, MS, &LockError::Held(QuorumFailure::default()));
    round_lost(keys, "held", MS, &"0 of 3");
    adopted(keys, MS, MS);
    not_adopted(keys, MS, &"it has ended");
    extended(keys, MS, MS);
    not_extended(keys, MS, MS, &"1 of 3");
    extended_late(keys, MS);
    lost(keys, "expired", MS, &"it has expired");
    revoked(keys, Some(&Label::new("ops").unwrap()), MS);
    let unconfirmed = Err(ReleaseError::Unconfirmed(QuorumFailure::default()));
    released(keys, Some(&unconfirmed), Some(MS), MS, MS);
    detached(keys, MS);
    kept(keys, MS, &["n3"]);
    not_kept(keys, &"no quorum");
    not_leading(keys, MS, &"no quorum");
    stopped(MS);
    held(true);
    held(false);
    closed(keys, MS);
    cleaned_up(keys, MS, 1);
    call_settled("n1", "acquire", "granted", Some(MS), None);
    call_settled("n1", "acquire", "failed", Some(MS), Some(error));
    node_failing("n1", "acquire", error);
    node_silent("n1", "acquire", MS);
    node_recovered("n1", "acquire", MS);
    node_cannot("n1", "watch", error);
    runtime_ended("n1");
    let listed = |name: &str| Listed { id: name.into(), name: name.into() };
    node_list_changed("payments", "n1", &[listed("n1")], &[listed("n1"), listed("n2")]);
}

/// The rows of the table under `heading`: the cells without backticks. A row whose first cell is
/// empty goes on with the one above.
fn table(heading: &str) -> Vec<Vec<String>> {
    let source = include_str!("../telemetry.rs");
    let section = source.split_once(heading).unwrap().1;
    let rows = section.lines().skip_while(|line| !line.starts_with("//! |"));
    let rows = rows.take_while(|line| line.starts_with("//! |")).skip(2);
    let mut table: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let cells = row.trim_start_matches("//! |").split('|');
        let cells: Vec<_> = cells.map(|cell| cell.trim().replace('`', "")).collect();
        match table.last_mut() {
            Some(above) if cells[0].is_empty() => {
                above.iter_mut().zip(cells).for_each(|(cell, more)| {
                    *cell = format!("{cell} {more}").trim().to_owned();
                });
            }
            _ => table.push(cells),
        }
    }
    table
}

#[test]
fn the_table_of_events_is_what_is_emitted() {
    let emitted: BTreeSet<_> = log(everything)
        .events
        .iter()
        .map(|event| {
            let fields = event.fields.keys().filter(|field| **field != "message");
            let fields: BTreeSet<_> = fields.map(|field| (*field).to_owned()).collect();
            (event.message().to_owned(), event.level.to_lowercase(), fields)
        })
        .collect();
    let documented: BTreeSet<_> = table("# Events and spans")
        .into_iter()
        .map(|row| {
            let fields = row[3].split(", ").map(str::to_owned).collect();
            (row[0].clone(), row[1].clone(), fields)
        })
        .collect();
    assert_eq!(emitted, documented);
}

#[test]
fn the_table_of_metrics_is_what_is_recorded() {
    let recorded: BTreeSet<_> = figures(everything)
        .map(|(key, value)| {
            let kind = match value {
                DebugValue::Counter(_) => "counter",
                DebugValue::Gauge(_) => "gauge",
                DebugValue::Histogram(_) => "histogram",
            };
            let labels = key.labels().map(|label| label.key().to_owned());
            (key.name().to_owned(), kind.to_owned(), labels.collect::<Vec<_>>())
        })
        .collect();
    let documented: BTreeSet<_> = table("# Metrics")
        .into_iter()
        .map(|row| {
            let labels = row[2].split(", ").filter(|label| !label.is_empty());
            (row[0].clone(), row[1].clone(), labels.map(str::to_owned).collect())
        })
        .collect();
    assert_eq!(recorded, documented);
}

#[test]
fn series_of_which_one_more_is_an_alert_begin_with_zero() {
    let begun: BTreeMap<String, DebugValue> = figures(describe_metrics)
        .map(|(key, value)| {
            let labels: String = key.labels().map(|label| format!(" {}", label.value())).collect();
            (format!("{}{labels}", key.name()), value)
        })
        .collect();
    let is_zero = |value: &DebugValue| matches!(value, DebugValue::Counter(0));
    assert!(begun.values().all(is_zero), "{begun:?}");
    assert!(begun.contains_key("quorate_stops_total"));
    for metric in ["quorate_not_acquired_total", "quorate_lost_total"] {
        let row = table("# Metrics").into_iter().find(|row| row[0] == metric).unwrap();
        let reasons = row[3].split(": ").nth(1).unwrap().split(", ");
        let named: BTreeSet<_> = reasons.map(|reason| format!("{metric} {reason}")).collect();
        let is_of = |name: &&String| name.starts_with(&format!("{metric} "));
        assert_eq!(begun.keys().filter(is_of).cloned().collect::<BTreeSet<_>>(), named);
    }
}

#[test]
fn the_span_is_around_the_acquire_and_not_around_the_code_after_it() {
    struct Acquire(Vec<Key>);
    impl Drop for Acquire {
        fn drop(&mut self) {
            cleaned_up(&self.0, MS, 0);
        }
    }
    let log = log(|| {
        let keys = keys(2);
        let acquire = {
            let on_drop = Acquire(keys.clone());
            async move {
                extended(&on_drop.0, MS, MS);
                std::future::pending::<()>().await;
            }
        };
        let with = async {
            in_lock_span(&keys, async { acquired(&keys, MS, MS) }).await;
            detached(&keys, MS);
        };
        with.now_or_never().unwrap();
        assert!(in_lock_span(&keys, acquire).now_or_never().is_none());
    });
    assert_eq!(log.spans, ["INFO lock k0, k1", "INFO lock k0, k1"]);
    let seen: Vec<_> = log.events.iter().map(|event| (event.message(), event.in_span)).collect();
    let expected =
        [("acquired", true), ("detached", false), ("extended", true), ("cleaned up", true)];
    assert_eq!(seen, expected);
    fn assert_send<T: Send>(_: T) {}
    assert_send(in_lock_span(&[], ready(())));
}
