//! The fake is the real thing: many random calls on both, and the same answers; in quarantine, too.
//!
//! Expiry is real, so an answer can depend on the moment. Two fakes frame what the node can have
//! seen, widened by what Redis' millisecond clock can be off. Where both agree, the node has to
//! agree with them.

#![expect(clippy::print_stdout, reason = "figures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use quorate::backend::{
    AcquireOptions, CallReply, Claim, Entry, ExtendOptions, FenceHint, Operation, ReleaseOptions,
    Ttl,
};
use quorate::memory::{MemoryNode, Sim, Value};
use quorate::resource::{Key, Token};
use quorate::runtime::{BoxFuture, EntropyError};
use quorate::{FencingToken, LockBackend, RestartGuard, Runtime};
use quorate_tests::keys::{COUNTERS, EPOCH, QUARANTINE, counter, waiters};
use quorate_tests::wait::{now, times};
use quorate_tests::{Connection, RedisServer};

use crate::calls::key;

mod node;
mod queue;
mod watching;

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
        Ok(CallReply::Sighted(Some(sighting))) => sighting.time_left,
        _ => None,
    }
}

/// The answer without the time left, which depends on the moment always; only that there is one.
fn timeless(answer: &Answer) -> String {
    let mut answer = answer.clone();
    if let Ok(CallReply::Sighted(Some(sighting))) = &mut answer {
        sighting.time_left = sighting.time_left.map(|_| Duration::ZERO);
    }
    format!("{answer:?}")
}

/// The fake twice: with keys that live as short, and as long, as those of the node can.
///
/// The node acted somewhere between `from` and `to`. A key of the short one is made to end as if it
/// were set at `from`, and is looked at at `to`; the long one has it the other way round.
struct Fakes {
    clock: SetClock,
    short: MemoryNode,
    long: MemoryNode,
    refreshes: Refreshes,
}

impl Fakes {
    /// Both have an epoch.
    async fn new(origin: Instant, quarantined: bool, tokens: &[Token]) -> Self {
        let clock = SetClock { origin, nanos: Arc::default() };
        let node = |name: &str| MemoryNode::new(name, clock.clone());
        let (short, long) = (node("short"), node("long"));
        let fakes = Self { short, long, clock, refreshes: Refreshes::default() };
        for fake in [&fakes.short, &fakes.long] {
            enter_epoch(fake, tokens).await;
            fake.expire(QUARANTINE);
            if quarantined {
                fake.put(QUARANTINE, Value::String(b"for good".into()));
            }
        }
        fakes
    }

    /// What the answer must be, if it does not depend on the moment: with the shortest and the longest
    /// time left that a look can see.
    async fn ask(&mut self, call: &Operation, from: Instant, to: Instant) -> Option<[Answer; 2]> {
        let doubt = to - from;
        if !self.refreshes.are_certain(call, from, to) {
            return None;
        }
        self.clock.set(to);
        let alive_for_sure = self.short.keys();
        self.clock.set(from);
        if alive_for_sure != self.long.keys() {
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

fn draw(sim: &Sim, names: &[String], tokens: &[Token], entries: &[Entry]) -> Operation {
    let below = |bound: usize| usize::try_from(sim.random_below(bound as u64)).unwrap();
    let count = [1, 1, 1, 2, 3][below(5)];
    let first = below(names.len());
    let keys: Vec<Key> =
        (0..count).map(|place| key(&names[(first + place) % names.len()])).collect();
    let millis = [10, 20, 50, 100, 60_000][below(5)];
    let ttl = Ttl::try_from(Duration::from_millis(millis)).unwrap();
    let first = keys[0].clone();
    let mut locks = keys.clone();
    locks.sort();
    let lock = locks[0].clone();
    let claim = Claim::new(keys, tokens[below(tokens.len())].clone(), ttl);
    let entry = entries[below(entries.len())].clone();
    let other = Some(entries[below(entries.len())].clone()).filter(|other| *other != entry);
    // Around small numbers, where calls meet, and around the last ones.
    let number = below(12) as u64;
    let last = FencingToken::MAX.get();
    let number = if below(40) == 0 { last - number } else { number + 1 };
    let number = FencingToken::new(number).unwrap();
    let hint = FenceHint::new(below(12) as u64);
    let acquire = |fencing, guard| {
        let mut options = AcquireOptions::default();
        (options.fencing, options.guard) = (fencing, guard);
        Operation::Acquire(claim.clone(), options)
    };
    let release = |raise_to| {
        let mut options = ReleaseOptions::default();
        options.raise_to = raise_to;
        Operation::Release(claim.clone(), options)
    };
    let leave = |also| Operation::Leave { key: lock.clone(), entry: entry.clone(), also };
    match below(17) {
        0 => acquire(None, None),
        1 => Operation::Extend(claim, ExtendOptions::default()),
        2 => release(None),
        3 => Operation::Inspect { key: first },
        4 | 5 => acquire(hint, None),
        6 => Operation::Raise(claim, number),
        7 | 8 => acquire(None, Some(GUARD)),
        9 => acquire(hint, Some(GUARD)),
        10..=12 => Operation::Refresh { key: lock, entry, locks: locks.into() },
        13 => leave(None),
        14 => leave(other),
        15 => Operation::Hint { key: lock },
        _ => release(Some(number)),
    }
}

/// Names of a session, and the keys where their numbers are. No other session has those; two names
/// share one.
fn names_of(session: u64) -> (Vec<String>, Vec<String>) {
    let is_ours = |counter: &String| {
        let place: u64 = counter.rsplit(':').next().unwrap().parse().unwrap();
        place / (u64::from(COUNTERS) / SESSIONS) == session
    };
    let mut candidates = (0..).map(|n| format!("{session}:{n}"));
    let mut names = Vec::new();
    let mut counters: Vec<String> = Vec::new();
    while names.len() < 4 {
        let name = candidates.next().unwrap();
        let counter = counter(&name);
        let shares = counters.contains(&counter);
        // The second one, and only that, shares the number of the first.
        if is_ours(&counter) && shares == (names.len() == 1) {
            names.push(name);
            if !shares {
                counters.push(counter);
            }
        }
    }
    (names, counters)
}

/// One of many that work on one connection, each with keys of its own. Goes on until it has
/// compared its share of answers that do not depend on the moment. Counts all calls.
async fn session(
    number: u64,
    calls: u64,
    quarantined: bool,
    node: &dyn LockBackend,
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
            let name = &names[usize::try_from(sim.random_below(4)).unwrap()];
            let kind = sim.random_below(3);
            let key = if kind == 0 { waiters(name) } else { name.clone() };
            behind.command(&["DEL", &key]).unwrap();
            let (command, value) = match kind {
                1 => ("SET", Value::String(b"theirs".into())),
                _ => ("LPUSH", Value::List),
            };
            behind.command(&[command, &key, "theirs"]).unwrap();
            for fake in [&fakes.short, &fakes.long] {
                fake.put(&key, value.clone());
            }
        }
        if sim.random_below(300) == 0 {
            // Another program writes where a number is.
            let place = usize::try_from(sim.random_below(3)).unwrap();
            let texts = [
                "",
                "x",
                "007",
                "-1",
                "9007199254740992",
                "9007199254740990",
                "0",
                "1e1",
                "1.5",
                " 7",
                "0x10",
                "\0",
            ];
            let text = texts[usize::try_from(sim.random_below(12)).unwrap()];
            behind.command(&["SET", &counters[place], text]).unwrap();
            for fake in [&fakes.short, &fakes.long] {
                fake.put(&counters[place], Value::String(text.into()));
            }
        }
        let call = draw(&sim, &names, &tokens, &entries);
        called += 1;
        let from = now();
        let real = ask(&call, node).await;
        let to = now();
        let mut is_over = false;
        match fakes.ask(&call, from - GRAIN, to + GRAIN).await {
            Some([short, long]) => {
                let place = format!("session {number}, after {compared} calls: {call:?}");
                assert_eq!(timeless(&real), timeless(&short), "{place}");
                let bounds = time_left(&short)..=time_left(&long);
                let left = time_left(&real);
                assert!(bounds.contains(&left), "{place}: {left:?}, not in {bounds:?}");
                compared += 1;
            }
            // It depends on the moment.
            None => is_over = true,
        }
        // Both start again from nothing. A list would block its name for good.
        if is_over || sim.random_below(200) == 0 {
            let mut clear = vec!["DEL".to_owned()];
            clear.extend(all.iter().cloned());
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
        let node = quorate::redis::connect([server.address()]).unwrap().remove(0);
        let token = Token::draw(|bytes| {
            bytes.fill(7);
            Ok(())
        });
        enter_epoch(&node, &[token.unwrap()]).await;
        assert_eq!(server.cli(&["DEL", QUARANTINE]).integer(), 1);
        if quarantined {
            server.set(QUARANTINE, "for good");
        }
        let session = |number| session(number, calls, quarantined, &node, server.port());
        join_all((0..SESSIONS).map(session)).await.into_iter().sum()
    });
    assert!(server.get(EPOCH).is_some());
    println!("{calls} of {called} answers did not depend on the moment, and agreed");
}

#[test]
fn calls_on_the_fake_and_on_a_real_node_agree() {
    compare(times(100_000, 1_000_000), false);
}

#[test]
fn calls_on_nodes_in_quarantine_agree() {
    compare(times(20_000, 100_000), true);
}
