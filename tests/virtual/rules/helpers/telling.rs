//! A subscriber and a recorder that note events and figures, or do something else with them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Once;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Recorder, SharedString, Unit};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// An event, as a subscriber reads it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) level: Level,
    pub(crate) what: String,
    fields: BTreeMap<&'static str, String>,
    /// The span that it happened in.
    span: Option<String>,
}

impl Told {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }
}

#[derive(Default)]
struct Notes {
    told: Vec<Told>,
    spans: Vec<String>,
    within: Vec<usize>,
}

thread_local! {
    /// Of the test on this thread, while it listens.
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// Does something in each of its methods, named for it, and in each figure. As a subscriber it notes the events.
pub(crate) struct Acts<F>(pub(crate) F);

impl<F: Fn(&str) + 'static> Subscriber for Acts<F> {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (self.0)("enabled");
        metadata.target() == "quorate" && NOTES.with_borrow(Option::is_some)
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        (self.0)("new_span");
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let shown = format!("{} {:?}", attributes.metadata().name(), fields.0);
        noted(|notes| {
            notes.spans.push(shown);
            Id::from_u64(notes.spans.len() as u64)
        })
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        (self.0)("event");
        let mut fields = Fields::default();
        event.record(&mut fields);
        let what = fields.0.remove("message").unwrap();
        noted(|notes| {
            let span = notes.within.last().map(|at| notes.spans[at - 1].clone());
            let level = *event.metadata().level();
            notes.told.push(Told { level, what, fields: fields.0, span });
        });
    }

    fn enter(&self, span: &Id) {
        (self.0)("enter");
        noted(|notes| notes.within.push(span.into_u64() as usize));
    }

    fn exit(&self, _: &Id) {
        (self.0)("exit");
        noted(|notes| notes.within.pop());
    }

    fn try_close(&self, _: Id) -> bool {
        (self.0)("try_close");
        true
    }
}

impl<F: Fn(&str)> Recorder for Acts<F> {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &metrics::Metadata<'_>) -> Counter {
        (self.0)(key.name());
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &metrics::Metadata<'_>) -> Gauge {
        (self.0)(key.name());
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &metrics::Metadata<'_>) -> Histogram {
        (self.0)(key.name());
        Histogram::noop()
    }
}

fn noted<T>(note: impl FnOnce(&mut Notes) -> T) -> T {
    NOTES.with_borrow_mut(|notes| note(notes.get_or_insert_default()))
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// Everything that was reported while `scene` was played.
pub(crate) fn told(scene: impl FnOnce()) -> Vec<Told> {
    /// One for all threads: a scoped subscriber of each test would race for the callsites.
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Acts(|_: &str| ())).unwrap());
    NOTES.with_borrow_mut(|notes| *notes = Some(Notes::default()));
    scene();
    NOTES.with_borrow_mut(Option::take).unwrap().told
}

/// Plays `scene` under a subscriber that does this.
pub(crate) fn acting(act: impl Fn(&str) + Send + Sync + 'static, scene: impl FnOnce()) {
    told(|| tracing::subscriber::with_default(Acts(act), scene));
}

pub(crate) fn of(what: &str, told: &[Told]) -> Vec<Told> {
    told.iter().filter(|told| told.what == what).cloned().collect()
}

/// The first event of each kind, with how often it came if that is more than once.
pub(crate) fn story(told: &[Told]) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, Told { level, what, fields, span }) in told.iter().enumerate() {
        if told[..at].iter().any(|earlier| earlier.what == *what) {
            continue;
        }
        let count = match of(what, told).len() {
            1 => String::new(),
            count @ ..10 => format!(" {count} times"),
            _ => " often".to_owned(),
        };
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let span = span.iter().map(|span| format!(" in {span}")).collect::<String>();
        lines.push(format!("{level} {what}{count}: {}{span}", fields.join(", ")));
    }
    lines
}
