//! The warnings of the library, by node.

use std::fmt;
use std::sync::{Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// The fields `message` and `node` of an event, and all of them as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warning {
    what: String,
    node: String,
    pub(crate) text: String,
}

static WARNINGS: Mutex<Vec<Warning>> = Mutex::new(Vec::new());

/// Has the warnings of all threads noted from here on.
pub(crate) fn listen() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Listener).unwrap());
}

/// The warnings `what` about the node at this port.
pub(crate) fn warnings(what: &str, port: u16) -> Vec<Warning> {
    let port = format!(":{port}");
    let is_it = |it: &&Warning| it.what == what && it.node.ends_with(&port);
    WARNINGS.lock().unwrap().iter().filter(is_it).cloned().collect()
}

struct Listener;

impl Subscriber for Listener {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "quorate" && *metadata.level() == Level::WARN && metadata.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut warning = Warning::default();
        event.record(&mut warning);
        WARNINGS.lock().unwrap().push(warning);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Warning {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        self.text += &format!("{field}: {value}; ");
        match field.name() {
            "message" => self.what = value,
            "node" => self.node = value,
            _ => {}
        }
    }
}
