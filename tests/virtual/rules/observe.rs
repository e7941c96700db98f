//! What happened is visible: events, spans and figures, with the right fields and without secrets.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::IntoFuture;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use futures_util::future::join;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Recorder, SharedString, Unit};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use quorate_core::Lease;
use quorate_core::error::LeaseEnd;
use quorate_memory::{Fault, MemoryNode};
use quorate_protocol::error_of_reply;
use quorate_tests::wait::receive;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::world::{MS, SECOND, World};

/// An event, as a subscriber reads it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) level: Level,
    what: String,
    fields: BTreeMap<&'static str, String>,
    /// The span that it happened in.
    span: Option<String>,
}

impl Told {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    fn names(&self) -> Vec<&str> {
        self.fields.keys().copied().collect()
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

/// One for all threads: a scoped subscriber of each test would race for the callsites.
struct Listener;

impl Subscriber for Listener {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "quorate" && NOTES.with_borrow(Option::is_some)
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let shown = format!("{} {:?}", attributes.metadata().name(), fields.0);
        noted(|notes| {
            notes.spans.push(shown);
            Id::from_non_zero_u64(NonZeroU64::new(notes.spans.len() as u64).unwrap())
        })
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
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
        noted(|notes| notes.within.push(span.into_u64() as usize));
    }

    fn exit(&self, _: &Id) {
        noted(|notes| notes.within.pop());
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
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Listener).unwrap());
    NOTES.with_borrow_mut(|notes| *notes = Some(Notes::default()));
    scene();
    NOTES.with_borrow_mut(Option::take).unwrap().told
}

pub(crate) fn of(what: &str, told: &[Told]) -> Vec<Told> {
    told.iter().filter(|told| told.what == what).cloned().collect()
}

/// The one event of this name.
fn only(what: &str, told: &[Told]) -> Told {
    let mut found = of(what, told);
    assert_eq!(found.len(), 1, "{what}: {told:#?}");
    found.remove(0)
}

/// So that something takes time.
fn slow(world: &World, delay: Duration) {
    world.inject(.., Fault::Slow(delay));
}

#[test]
fn a_lock_that_is_acquired_and_released_is_reported() {
    let told = told(|| {
        let world = World::new(3);
        slow(&world, 3 * MS);
        let manager = world.builder().key_prefix("app:").build().unwrap();
        let guard = world.sim.block_on(manager.lock(["a", "b\n"])).unwrap();
        world.sim.advance(SECOND);
        world.sim.block_on(guard.release()).unwrap();
        world.sim.settle();
    });
    let acquired = only("acquired", &told);
    assert_eq!(acquired.level, Level::DEBUG);
    assert_eq!(acquired.field("keys"), r"app:a, app:b\n");
    assert_eq!(acquired.field("waited"), "3.0ms");
    assert_eq!(acquired.field("left"), "9.4s");
    assert_eq!(acquired.names(), ["keys", "left", "waited"]);
    assert_eq!(acquired.span.as_deref(), Some(r#"lock {"keys": "app:a, app:b\\n"}"#));

    let released = only("released", &told);
    assert_eq!(released.level, Level::DEBUG);
    assert_eq!(released.field("outcome"), "released");
    assert_eq!(released.field("took"), "3.0ms");
    assert_eq!(released.span, None);

    let answered = of("call settled", &told);
    assert_eq!(answered.len(), 6);
    assert_eq!(answered[0].level, Level::TRACE);
    assert_eq!(answered[0].field("vote"), "granted");
    assert!(told.iter().all(|told| told.level >= Level::DEBUG), "{told:#?}");
}

#[test]
fn a_lost_round_and_a_failed_request_are_reported_with_their_reason() {
    let told = told(|| {
        let world = World::new(3);
        let _guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        slow(&world, 3 * MS);
        world.sim.block_on(world.manager().lock("r").timeout(SECOND)).unwrap_err();
    });
    let refused = of("round lost", &told);
    assert!(refused.len() > 2, "{refused:#?}");
    assert_eq!(refused[0].level, Level::DEBUG);
    assert_eq!(refused[0].field("keys"), "r");
    assert_eq!(refused[0].field("reason"), "held");
    assert_eq!(refused[0].field("took"), "3.0ms");
    assert!(refused[0].field("failure").starts_with("0 of 3 nodes granted, 2 needed; memory-1: "));
    assert_eq!(refused[0].span.as_deref(), Some(r#"lock {"keys": "r"}"#));

    let gave_up = only("not acquired", &told);
    assert_eq!(gave_up.level, Level::DEBUG);
    assert_eq!(gave_up.field("reason"), "held");
    assert_eq!(gave_up.field("error"), "held by another client on 2 of 3 nodes");
    assert_eq!(gave_up.field("waited"), "1.0s");
}

#[test]
fn extensions_are_reported() {
    let told = told(|| {
        let (world, guard) = World::new(3).held();
        world.sim.advance(SECOND);
        world.sim.block_on(guard.extend()).unwrap();
        world.nodes[0].inject(Fault::Hung);
        world.nodes[1].inject(Fault::Hung);
        world.sim.advance(SECOND);
        world.sim.block_on(guard.extend()).unwrap_err();
    });
    let extended = only("extended", &told);
    assert_eq!((extended.field("keys"), extended.field("left")), ("r", "9.4s"));
    let failed = only("not extended", &told);
    assert_eq!(failed.level, Level::DEBUG);
    assert_eq!(failed.field("took"), "500.0ms");
    assert_eq!(failed.field("left"), "7.9s");
    assert!(failed.field("failure").contains("memory-1: no reply within 500.0ms"), "{failed:?}");
}

#[test]
fn a_lost_lease_is_a_warning_with_the_reason_once() {
    let end = |scene: &dyn Fn(&World)| {
        let told = told(|| {
            let world = World::new(3);
            scene(&world);
            world.sim.settle();
        });
        let lost = only("lost", &told);
        assert_eq!(lost.level, Level::WARN);
        assert_eq!(lost.field("keys"), "r");
        (lost.field("reason").to_owned(), lost.field("held").to_owned())
    };
    let lost = |reason: &str, held: &str| (reason.to_owned(), held.to_owned());

    // The holder listens.
    let listens = |world: &World| {
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        assert!(matches!(world.sim.block_on(guard.lost()), LeaseEnd::Expired { .. }));
        world.sim.block_on(guard.lost());
    };
    assert_eq!(end(&listens), lost("expired", "9.4s"));
    // The holder does not notice before the release.
    let sleeps = |world: &World| {
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        world.sim.advance(11 * SECOND);
        assert!(world.sim.block_on(guard.release()).unwrap_err().is_lost());
    };
    assert_eq!(end(&sleeps), lost("expired", "9.4s"));
    let drops = |world: &World| {
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        world.sim.advance(11 * SECOND);
        drop(guard);
    };
    assert_eq!(end(&drops), lost("expired", "9.4s"));
    // Only the nodes know.
    let forgotten = |world: &World| {
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        world.nodes.iter().for_each(|node| node.expire("r"));
        world.sim.advance(SECOND);
        assert!(world.sim.block_on(guard.release()).unwrap_err().is_lost());
    };
    assert_eq!(end(&forgotten), lost("not_held", "1.0s"));
    let limited = |world: &World| {
        let guard = world.sim.block_on(world.manager().lock("r").hold_limit(2 * SECOND)).unwrap();
        guard.auto_renew();
        world.sim.block_on(guard.lost());
    };
    assert_eq!(end(&limited), lost("hold_limit", "2.0s"));
}

#[test]
fn a_lease_that_its_holder_ended_is_no_warning() {
    let told = told(|| {
        let world = World::new(3);
        let (manager, sim) = (world.manager(), &world.sim);
        let record = sim.block_on(manager.lock("r")).unwrap().detach().unwrap();
        sim.advance(SECOND);
        let guard = sim.block_on(manager.adopt(&record)).unwrap();
        drop(guard);
        sim.settle();
        sim.block_on(manager.adopt(&record)).unwrap_err();
        let _held = sim.block_on(manager.lock("s")).unwrap();
        sim.advance(SECOND);
        let _ = sim.block_on(manager.close(SECOND));
    });
    assert_eq!(only("detached", &told).field("held"), "0.0ns");
    assert_eq!(only("adopted", &told).field("keys"), "r");
    assert!(only("not adopted", &told).field("error").starts_with("the lock is gone"));
    let released = of("released", &told);
    let outcomes: Vec<_> = released.iter().map(|event| event.field("outcome")).collect();
    assert_eq!(outcomes, ["dropped", "dropped"], "of the adopted guard, and of the closed one");
    assert_eq!(only("closed", &told).field("held"), "1.0s");
    assert!(told.iter().all(|told| told.level >= Level::DEBUG), "{told:#?}");
}

#[test]
fn the_end_of_the_cleanup_says_how_many_nodes_did_not_answer() {
    let told = told(|| {
        let world = World::new(5);
        world.nodes[4].inject(Fault::Hung);
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        world.sim.block_on(guard.release()).unwrap();
        world.sim.settle();
    });
    let event = only("cleaned up", &told);
    assert_eq!(event.level, Level::DEBUG);
    assert_eq!((event.field("keys"), event.field("unanswered")), ("r", "1"));
    assert!(event.field("took").starts_with("10."), "{event:?}");
}

#[test]
fn a_failing_node_is_reported_once_until_it_has_recovered() {
    let told = told(|| {
        let world = World::new(3);
        let manager = world.manager();
        let round = || {
            let guard = world.sim.block_on(manager.lock("r")).unwrap();
            world.sim.block_on(guard.release()).unwrap();
            world.sim.advance(100 * MS);
        };
        round();
        let readonly = error_of_reply("READONLY You can't write");
        for (node, fault) in [(0, Fault::Failing(readonly)), (1, Fault::Dead)] {
            world.nodes[node].inject(fault);
            (0..50).for_each(|_| round());
            world.nodes[node].heal();
            (0..100).for_each(|_| round());
        }
    });
    let failing = of("node failing", &told);
    let shown = |told: &Told| {
        ["node", "operation", "kind", "error"].map(|name| told.field(name).to_owned())
    };
    assert_eq!(
        failing.iter().map(shown).collect::<Vec<_>>(),
        [
            ["memory-1", "acquire", "ReadOnly", "READONLY You can't write"],
            ["memory-2", "acquire", "Connection", "connection refused"],
        ]
    );
    assert!(failing.iter().all(|told| told.level == Level::WARN));
    let again = of("call failed", &told);
    assert!(again.len() >= 198 && again.iter().all(|told| told.level == Level::DEBUG));
    let recovered = of("node recovered", &told);
    assert_eq!(recovered.len(), 2, "{recovered:#?}");
    assert!(recovered.iter().all(|told| told.level == Level::INFO));
    assert_eq!(recovered[0].field("node"), "memory-1");
    assert_eq!(recovered[0].field("after"), "10.0s");
    assert_eq!(told.iter().filter(|told| told.level <= Level::INFO).count(), 4);
}

#[test]
fn a_silent_node_is_reported_though_rounds_are_won_without_it() {
    let told = told(|| {
        let world = World::new(3);
        let manager = world.manager();
        world.nodes[1].inject(Fault::Hung);
        for _ in 0..100 {
            let guard = world.sim.block_on(manager.lock("r")).unwrap();
            world.sim.block_on(guard.release()).unwrap();
            world.sim.advance(100 * MS);
        }
    });
    let failing = only("node failing", &told);
    assert_eq!((failing.field("node"), failing.field("kind")), ("memory-2", "Silent"));
    assert_eq!(failing.field("error"), "no reply for 500.0ms");
    assert!(of("node recovered", &told).is_empty());
}

/// All that can happen to a lock, on nodes that fail in all ways.
fn everything(world: &World) {
    let (manager, sim) = (world.manager(), &world.sim);
    let unknown = error_of_reply("ERR unknown command 'X', with args beginning with: 'y'");
    for fault in [Fault::Failing(unknown), Fault::Hung, Fault::Dead, Fault::Late(600 * MS)] {
        world.nodes[0].inject(fault);
        let guard = sim.block_on(manager.lock("r")).unwrap();
        sim.block_on(guard.extend()).unwrap();
        sim.block_on(world.manager().lock("r").timeout(MS)).unwrap_err();
        let record = guard.detach().unwrap();
        let guard = sim.block_on(manager.adopt(&record)).unwrap();
        sim.block_on(guard.release()).unwrap();
        sim.block_on(manager.adopt(&record)).unwrap_err();
        world.nodes[0].heal();
        sim.advance(20 * SECOND);
    }
    let guard = sim.block_on(manager.lock("r")).unwrap();
    let next = manager.lock("r").into_future();
    let (released, next) = sim.block_on(join(guard.release(), next));
    released.unwrap();
    sim.block_on(next.unwrap().lost());
    let guard = sim.block_on(manager.lock("r")).unwrap();
    world.inject(.., Fault::Hung);
    sim.block_on(guard.extend()).unwrap_err();
    sim.block_on(manager.lock("r").no_wait()).unwrap_err();
    let _ = sim.block_on(manager.close(SECOND));
    sim.settle();
}

#[test]
fn an_invalid_request_is_reported_and_counted() {
    let world = World::new(3);
    let (snapshotter, recorder) = recorder();
    let told = told(|| {
        metrics::with_local_recorder(&recorder, || {
            let manager = world.manager();
            world.sim.block_on(manager.lock("")).unwrap_err();
            world.sim.block_on(manager.lock("r").no_wait().ttl(MS)).unwrap_err();
            world.sim.block_on(manager.lock("r").hold_limit(Duration::ZERO)).unwrap_err();
        });
    });
    let told: Vec<_> = told.iter().filter(|told| told.what == "not acquired").collect();
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|told| told.field("reason") == "invalid"), "{told:#?}");
    let counted = figures(&snapshotter);
    assert_eq!(counted["not_acquired_total invalid"], [3], "{counted:#?}");
}

#[test]
fn a6_no_event_and_no_metric_shows_a_token() {
    let world = World::complete(3);
    let (figures, recorder) = recorder();
    let told = told(|| metrics::with_local_recorder(&recorder, || everything(&world)));
    let mut kinds: Vec<_> = told.iter().map(|told| &*told.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), 16, "all but `node lacks operation`: {kinds:?}");
    let tokens = world.log.tokens();
    assert!(tokens.len() > 10);
    let shown = format!("{told:?} {:?}", figures.snapshot().into_vec());
    for token in tokens {
        assert!(!shown.contains(std::str::from_utf8(&token).unwrap()));
    }
}

#[test]
fn a6_no_token_is_printed_anywhere() {
    let world = World::complete(5);
    let manager = world.manager();
    world.occupy(3..);
    let request = manager.lock("r");
    let mut printed = format!("{manager:?} {request:?} {:?}", manager.lock("r").no_wait());
    let guard = world.sim.block_on(request).unwrap();
    printed += &format!("{guard:?} {:?}", guard.lease());
    world.nodes[..3].iter().for_each(MemoryNode::restart);
    let error = world.sim.block_on(guard.extend()).unwrap_err();
    printed += &format!("{error} {error:?}");
    let error = world.sim.block_on(manager.lock(vec![0_u8; 9]).no_wait()).map(drop);
    printed += &format!("{error:?}");
    let record = world.sim.block_on(manager.lock("s")).unwrap().detach().unwrap();
    printed += &format!("{record:?}");
    let tokens = world.log.tokens();
    assert!(tokens.len() > 2);
    for token in tokens {
        let token = String::from_utf8(token).unwrap();
        assert!(!printed.contains(&token), "{printed}");
        assert!(!printed.contains(&token[..8]), "{printed}");
    }
}

fn recorder() -> (Snapshotter, DebuggingRecorder) {
    let recorder = DebuggingRecorder::new();
    (recorder.snapshotter(), recorder)
}

/// All figures: name and labels, and the count or the measured values in milliseconds.
fn figures(snapshotter: &Snapshotter) -> BTreeMap<String, Vec<u64>> {
    let figures = snapshotter.snapshot().into_vec().into_iter();
    let named = figures.map(|(key, unit, description, value)| {
        assert!(unit.is_some() && description.is_some(), "{key:?} is described");
        let mut name = key.key().name().strip_prefix("quorate_").unwrap().to_owned();
        for label in key.key().labels() {
            name = format!("{name} {}", label.value());
        }
        let values = match value {
            DebugValue::Counter(count) => vec![count],
            DebugValue::Gauge(value) => vec![value.0 as u64],
            DebugValue::Histogram(values) => {
                values.into_iter().map(|value| (value.0 * 1e3).round() as u64).collect()
            }
        };
        (name, values)
    });
    named.filter(|(_, values)| *values != [0_u64; 1] || values.is_empty()).collect()
}

#[test]
fn the_metrics_of_a_story_are_right() {
    let (snapshotter, recorder) = recorder();
    metrics::with_local_recorder(&recorder, || {
        let world = World::new(3);
        let (manager, sim) = (world.manager(), &world.sim);
        slow(&world, 10 * MS);
        let guard = sim.block_on(manager.lock("r")).unwrap();
        sim.block_on(world.manager().lock("r").no_wait()).unwrap_err();
        sim.advance(1_970 * MS);
        sim.block_on(guard.extend()).unwrap();
        world.nodes[0].inject(Fault::Failing(error_of_reply("LOADING")));
        sim.advance(1_010 * MS);
        sim.block_on(guard.release()).unwrap();
        sim.settle();
        world.nodes[0].heal();
        world.nodes[2].inject(Fault::Hung);
        let guard = sim.block_on(manager.lock("r")).unwrap();
        sim.block_on(guard.lost());
        drop(guard);
        sim.settle();
    });
    let figures = figures(&snapshotter);
    let figure = |name: &str| figures.get(name).map_or(&[][..], Vec::as_slice);
    for (name, values) in [
        ("acquired_total", &[2_u64][..]),
        ("not_acquired_total held", &[1]),
        ("rounds_lost_total held", &[1]),
        ("lost_total expired", &[1]),
        ("extensions_total extended", &[1]),
        ("releases_total released", &[1]),
        ("releases_total dropped", &[1]),
        // The second needs the node that is still slow, too.
        ("wait_seconds", &[10, 10]),
        ("hold_seconds", &[3_000, 9_388]),
        ("node_votes_total memory-1 acquire granted", &[2]),
        ("node_votes_total memory-1 acquire refused", &[1]),
        ("node_votes_total memory-1 extend granted", &[1]),
        ("node_votes_total memory-3 acquire silent", &[1]),
        // The other two were answered: behind a hung acquire, a pool sends no release.
        ("node_votes_total memory-3 release granted", &[1]),
        ("node_votes_total memory-3 release refused", &[1]),
        ("node_latency_seconds memory-2 acquire", &[10, 10, 10]),
        ("node_latency_seconds memory-2 extend", &[10]),
    ] {
        assert_eq!(figure(name), values, "{name}: {figures:#?}");
    }
    assert_eq!(figure("validity_left_seconds"), [8_378]);
    assert!(figure("node_votes_total memory-1 release failed")[0] > 1, "it is sent again");
}

/// A recorder that panics at one figure.
struct Panics(&'static str);

impl Panics {
    fn at(&self, key: &Key) {
        assert!(key.name() != self.0, "on purpose");
    }
}

impl Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &metrics::Metadata<'_>) -> Counter {
        self.at(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &metrics::Metadata<'_>) -> Gauge {
        self.at(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &metrics::Metadata<'_>) -> Histogram {
        self.at(key);
        Histogram::noop()
    }
}

#[test]
fn a1_a_lock_is_released_though_the_recorder_panics() {
    for figure in ["quorate_hold_seconds", "quorate_releases_total", "quorate_node_votes_total"] {
        for awaited in [true, false] {
            let (world, guard) = World::new(3).held();
            metrics::with_local_recorder(&Panics(figure), || {
                if awaited {
                    world.sim.block_on(guard.release()).unwrap();
                } else {
                    drop(guard);
                }
                world.catch_up();
            });
            assert_eq!(world.keys_left(), 0, "{figure}, awaited: {awaited}");
        }
    }
}

/// A subscriber that does something in each of its methods, named for it.
struct Acts<F>(F);

impl<F: Fn(&'static str) + 'static> Subscriber for Acts<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        self.0("enabled");
        true
    }

    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.0("new_span");
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0("event");
    }

    fn enter(&self, _: &Id) {
        self.0("enter");
    }

    fn exit(&self, _: &Id) {
        self.0("exit");
    }

    fn try_close(&self, _: Id) -> bool {
        self.0("try_close");
        true
    }
}

/// Before the first poll, or in the middle, a subscriber begins to panic. A lock is taken and given
/// back all the same, and a cancelled acquisition leaves nothing behind.
#[test]
fn a1_a_subscriber_that_panics_keeps_no_lock() {
    for at in ["enabled", "new_span", "enter", "exit", "event", "try_close"] {
        for polls in 0..4 {
            let armed = Arc::<AtomicBool>::default();
            let is_armed = Arc::clone(&armed);
            let upset = Acts(move |method| {
                assert!(!(is_armed.load(Ordering::SeqCst) && method == at), "on purpose");
            });
            tracing::subscriber::with_default(upset, || {
                let world = World::new(3);
                slow(&world, 10 * MS);
                let mut request = Box::pin(world.manager().lock("r").into_future());
                let cancelled = world.sim.block_on_for(&mut request, polls);
                armed.store(true, Ordering::SeqCst);
                drop((request, cancelled));
                world.sim.settle();
                assert_eq!(world.keys_left(), 0, "cancelled after {polls} polls, at {at}");

                let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
                world.sim.block_on(guard.release()).unwrap();
                world.sim.settle();
                assert_eq!(world.keys_left(), 0, "{at}");
            });
        }
    }
}

/// As a log that only the leader writes. In a thread of its own: it would block for ever.
#[test]
fn a_subscriber_may_look_at_the_lease() {
    let (ends, ended) = channel();
    std::thread::spawn(move || {
        let lease = Arc::<Mutex<Option<Lease>>>::default();
        let looked_at = Arc::clone(&lease);
        let looks = Acts(move |_| {
            if let Some(lease) = looked_at.lock().unwrap().clone() {
                assert!(lease.is_valid() || lease.remaining().is_zero());
            }
        });
        tracing::subscriber::with_default(looks, || {
            let (world, guard) = World::new(3).held();
            *lease.lock().unwrap() = Some(guard.lease());
            world.nodes[2].inject(Fault::Failing(error_of_reply("LOADING")));
            world.sim.block_on(guard.extend()).unwrap();
            world.sim.block_on(guard.release()).unwrap();
        });
        ends.send(()).unwrap();
    });
    receive(&ended).unwrap();
}
