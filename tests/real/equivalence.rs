//! The fake is the real thing: many random calls on both, and the same answers; in quarantine, too.
//!
//! Expiry is real, so an answer can depend on the moment. Two fakes frame what the node can have
//! seen, widened by what Redis' millisecond clock can be off. Where both agree, the node has to
//! agree with them.

#![expect(clippy::print_stdout, reason = "figures")]

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use quorate::backend::{CallReply, Entry, KeyState, Operation, Reader};
use quorate::memory::{MemoryNode, Sim, Value};
use quorate::resource::Token;
use quorate::runtime::{BoxFuture, EntropyError};
use quorate::{LockBackend, RestartGuard, Runtime};
use quorate_tests::keys::{EPOCH, QUARANTINE, waiters};
use quorate_tests::wait::{now, times};
use quorate_tests::{Connection, RedisServer};

use crate::calls::{asked, key};

mod draw;
mod node;
mod queue;

use self::draw::{draw, names_of, pick};
use self::node::{Answer, ask, enter_epoch, queue_keys, with_ttl};
use self::queue::Refreshes;

const SESSIONS: u64 = 50;

const GUARD: RestartGuard = RestartGuard::strict(Duration::from_secs(3_600));

/// Redis truncates to milliseconds and takes a key for expired one millisecond after its time.
const GRAIN: Duration = Duration::from_millis(2);

/// A clock that is set by hand.
#[derive(Clone, Debug)]
struct SetClock {
    origin: Instant,
    nanos: Arc<AtomicU64>,
}

impl SetClock {
    fn set(&self, now: Instant) {
        let nanos = now.saturating_duration_since(self.origin).as_nanos();
        self.nanos.store(u64::try_from(nanos).unwrap(), Ordering::Relaxed);
    }
}

impl Runtime for SetClock {
    fn now(&self) -> Instant {
        self.origin + Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Instant) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn spawn(&self, _: BoxFuture<'static, ()>) {}

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        bytes.fill(7);
        Ok(())
    }
}

fn time_left(answer: &Answer) -> Option<Duration> {
    match answer {
        Ok(CallReply::Sighted(KeyState::Held { time_left, .. })) => *time_left,
        Ok(CallReply::Sighted(KeyState::Read { readers })) => {
            readers.iter().map(|one| one.time_left).max()
        }
        _ => None,
    }
}

/// The answer without the time left, which depends on the moment always; only that there is one.
fn timeless(answer: &Answer) -> String {
    let mut answer = answer.clone();
    match &mut answer {
        Ok(CallReply::Sighted(KeyState::Held { time_left, .. })) => {
            *time_left = time_left.map(|_| Duration::ZERO);
        }
        Ok(CallReply::Sighted(KeyState::Read { readers })) => {
            // They are sorted by their ends.
            readers.iter_mut().for_each(|one| one.time_left = Duration::ZERO);
            readers.sort_by_key(|one| {
                BuildHasherDefault::<DefaultHasher>::default().hash_one(&one.holder)
            });
        }
        _ => {}
    }
    format!("{answer:?}")
}

/// The keys that a fake has, and the readers of each.
async fn alive(node: &Arc<MemoryNode>) -> (Vec<Vec<u8>>, BTreeSet<u64>) {
    let (keys, mut readers) = (node.keys(), BTreeSet::new());
    for name in &keys {
        if let Some(Value::OrderedSet(_)) = node.get(name)
            && let key = key(str::from_utf8(name).unwrap())
            && let Ok(CallReply::Sighted(KeyState::Read { readers: seen })) =
                asked(node, Operation::Inspect { key }).await
        {
            let hash = |one: &Reader| {
                BuildHasherDefault::<DefaultHasher>::default().hash_one((name, &one.holder))
            };
            readers.extend(seen.iter().map(hash));
        }
    }
    (keys, readers)
}

/// The fake twice: with keys that live as short, and as long, as those of the node can.
///
/// The node acted somewhere between `from` and `to`. A key of the short one is made to end as if it
/// were set at `from`, and is looked at at `to`; the long one has it the other way round.
struct Fakes {
    clock: SetClock,
    short: Arc<MemoryNode>,
    long: Arc<MemoryNode>,
    refreshes: Refreshes,
}

impl Fakes {
    /// Both have an epoch.
    async fn new(origin: Instant, quarantined: bool, tokens: &[Token]) -> Self {
        let clock = SetClock { origin, nanos: Arc::default() };
        let [short, long] =
            ["short", "long"].map(|name| Arc::new(MemoryNode::new(name, clock.clone())));
        let fakes = Self { short, long, clock, refreshes: Refreshes::default() };
        for fake in [&fakes.short, &fakes.long] {
            enter_epoch(&**fake, tokens).await;
            fake.expire(QUARANTINE);
        }
        if quarantined {
            fakes.put(QUARANTINE, Value::String(b"for good".into()));
        }
        fakes
    }

    fn put(&self, key: &str, value: Value) {
        self.short.put(key, value.clone());
        self.long.put(key, value);
    }

    /// What the answer must be, if it does not depend on the moment: with the shortest and the longest
    /// time left that a look can see.
    async fn ask(&mut self, call: &Operation, from: Instant, to: Instant) -> Option<[Answer; 2]> {
        let doubt = to - from;
        if !self.refreshes.are_certain(call, from, to) {
            return None;
        }
        self.clock.set(to);
        let alive_for_sure = alive(&self.short).await;
        self.clock.set(from);
        if alive_for_sure != alive(&self.long).await {
            // The same answer could leave different keys behind.
            return None;
        }
        self.clock.set(to);
        let short = ask(&with_ttl(call, |ttl| ttl.checked_sub(doubt))?, &self.short).await;
        self.clock.set(from);
        let long = ask(&with_ttl(call, |ttl| ttl.checked_add(doubt))?, &self.long).await;
        if let (Operation::Refresh { key, entry, .. }, Ok(_)) = (call, &short) {
            self.refreshes.note(key, entry, from, to);
        }
        (timeless(&short) == timeless(&long)).then_some([short, long])
    }

    fn clear(&mut self, names: &[String]) {
        self.refreshes.clear();
        for name in names {
            self.short.expire(name);
            self.long.expire(name);
        }
    }
}

/// One of many that work on one connection, each with keys of its own. Goes on until it has
/// compared its share of answers that do not depend on the moment. Counts all calls.
async fn session(
    number: u64,
    calls: u64,
    quarantined: bool,
    node: &Arc<impl LockBackend>,
    port: u16,
) -> u64 {
    let sim = Sim::new(number);
    let (names, counters) = names_of(number);
    let entries = ["a", "b", "c"].map(|name| Entry::new(name.as_bytes()));
    let queues = queue_keys(&names, &entries);
    let all: Vec<String> = names.iter().chain(&counters).chain(&queues).cloned().collect();
    let tokens: Vec<Token> =
        (0..3).map(|_| Token::draw(|bytes| sim.fill_random(bytes)).unwrap()).collect();
    let mut fakes = Fakes::new(now() - SECOND, quarantined, &tokens).await;
    let mut behind = Connection::to_port(port).unwrap();
    let (mut compared, mut called) = (0, 0);
    while compared < calls / SESSIONS {
        if sim.random_below(333) == 0 {
            // Another program puts a list where a lock may be, or the wait queue of one; or a string for good.
            let name = pick(&sim, &names);
            let (key, value) = match sim.random_below(3) {
                0 => (waiters(name), Value::List),
                1 => (name.clone(), Value::String(b"theirs".into())),
                _ => (name.clone(), Value::List),
            };
            let command = if value == Value::List { "LPUSH" } else { "SET" };
            behind.command(&["DEL", &key]).unwrap();
            behind.command(&[command, &key, "theirs"]).unwrap();
            fakes.put(&key, value);
        }
        if sim.random_below(300) == 0 {
            // Another program writes where a number is.
            let texts = "|x|007|-1|9007199254740992|9007199254740990|0|1e1|1.5| 7|0x10|\0";
            let (counter, texts) = (pick(&sim, &counters), texts.split('|').collect::<Vec<_>>());
            let text = *pick(&sim, &texts);
            behind.command(&["SET", counter, text]).unwrap();
            fakes.put(counter, Value::String(text.into()));
        }
        let call = draw(&sim, &names, &tokens, &entries);
        called += 1;
        let from = now();
        let real = ask(&call, node).await;
        let to = now();
        let expected = fakes.ask(&call, from - GRAIN, to + GRAIN).await;
        // Else it depends on the moment.
        if let Some([short, long]) = &expected {
            let place = format!("session {number}, after {compared} calls: {call:?}");
            assert_eq!(timeless(&real), timeless(short), "{place}");
            let (bounds, left) = (time_left(short)..=time_left(long), time_left(&real));
            assert!(bounds.contains(&left), "{place}: {left:?}, not in {bounds:?}");
            compared += 1;
        }
        // Both start again from nothing. A list would block its name for good.
        if expected.is_none() || sim.random_below(200) == 0 {
            let clear: Vec<_> = ["DEL"].into_iter().chain(all.iter().map(|key| &**key)).collect();
            behind.command(&clear).unwrap();
            fakes.clear(&all);
        }
    }
    called
}

const SECOND: Duration = Duration::from_secs(1);

fn compare(calls: u64, quarantined: bool) {
    let server = RedisServer::start();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let called: u64 = tokio.block_on(async {
        let node = &Arc::new(quorate::redis::connect([server.address()]).unwrap().remove(0));
        let token = Token::draw(|bytes| {
            bytes.fill(7);
            Ok(())
        });
        enter_epoch(&**node, &[token.unwrap()]).await;
        assert_eq!(server.cli(&["DEL", QUARANTINE]).integer(), 1);
        if quarantined {
            server.set(QUARANTINE, "for good");
        }
        let session = |number| session(number, calls, quarantined, node, server.port());
        join_all((0..SESSIONS).map(session)).await.into_iter().sum()
    });
    assert!(server.get(EPOCH).is_some());
    println!("{calls} of {called} answers did not depend on the moment, and agreed");
}

#[test]
fn calls_on_the_fake_and_on_a_real_node_agree() {
    compare(times(50_000, 1_000_000), false);
}

#[test]
fn calls_on_nodes_in_quarantine_agree() {
    compare(times(20_000, 100_000), true);
}
