//! Watching: a push exactly when a watched key was written or ended, on the fake and on a real node.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::poll_immediate;
use quorate::backend::{Claim, Entry, Operation, Ttl, Watched};
use quorate::memory::{MemoryNode, Sim, Value};
use quorate::resource::Token;
use quorate::{LockBackend, Runtime};
use quorate_tests::keys::QUARANTINE;
use quorate_tests::wait::{now, within_limit};
use quorate_tests::{Connection, RedisServer};

use super::draw::{draw, names_of, pick};
use super::node::{ask, enter_epoch, look, queue_keys, with_ttl};
use super::{GRAIN, SECOND};
use crate::calls::{acquire, key, release};

const STEPS: u64 = 3_000;

/// An entry expires on the real node only, where time passes.
const ENTRY_ENDS: Duration = Duration::from_secs(2);

/// What both nodes are asked about.
struct Names {
    locks: Vec<String>,
    tokens: Vec<Token>,
    entries: [Entry; 3],
}

/// Both nodes, and another program that writes to them.
struct Pair<'a> {
    real: &'a dyn LockBackend,
    fake: MemoryNode,
    behind: Connection,
    /// When the first entry joined a queue, if one has.
    joined: Option<Instant>,
}

impl Pair<'_> {
    /// Changes both nodes: by an operation of the protocol, or as another program does.
    async fn change(&mut self, sim: &Sim, names: &Names, step: u64) -> String {
        let name = pick(sim, &names.locks);
        match sim.random_below(16) {
            0 => {
                self.behind.command(&["SET", name, "x"]).unwrap();
                self.fake.put(name, Value::String(b"x".into()));
                format!("SET {name}")
            }
            number @ 1..=3 => {
                let end = if number == 3 { &["PEXPIRE", name, "0"][..] } else { &["DEL", name] };
                self.behind.command(end).unwrap();
                self.fake.expire(name);
                end.join(" ")
            }
            _ => {
                // No key ends by itself. Each ttl is longer than the last, or too short to change one.
                let long = SECOND * 60 + SECOND * u32::try_from(step).unwrap();
                let short = sim.random_below(3) == 0;
                let call = draw(sim, &names.locks, &names.tokens, &names.entries);
                if let Operation::Refresh { .. } = call {
                    self.joined.get_or_insert_with(now);
                }
                let ttl =
                    if short && matches!(call, Operation::Extend(..)) { SECOND } else { long };
                let call = with_ttl(&call, |_| Some(ttl)).unwrap();
                let (real, fake) = (ask(&call, self.real).await, ask(&call, &self.fake).await);
                if !self.may_have_expired() {
                    let untimed = super::timeless;
                    assert_eq!(untimed(&real), untimed(&fake), "step {step}: {call:?}");
                }
                format!("{call:?}")
            }
        }
    }

    /// Whether an entry may have expired on the real node.
    fn may_have_expired(&self) -> bool {
        self.joined.is_some_and(|joined| now() + GRAIN > joined + ENTRY_ENDS)
    }

    /// Removes all queues from both.
    async fn clear_queues(&mut self, names: &Names) {
        for key in queue_keys(&names.locks, &names.entries) {
            self.behind.command(&["DEL", &key]).unwrap();
            self.fake.expire(key);
        }
        self.joined = None;
        all_pushed(self.real).await;
    }
}

/// Whether the watch on the real node ends, once all that came before has been pushed.
async fn is_told(pair: &Pair<'_>, watched: Watched, expected: bool, place: &str) {
    let told = pin!(watched.changed());
    if expected {
        return within_limit(place, told).await;
    }
    all_pushed(pair.real).await;
    assert!(poll_immediate(told).await.is_none(), "{place}: the real node pushed for nothing");
}

/// Waits until all pushes of the node have arrived: one of a later write on the same connection comes
/// after them.
async fn all_pushed(real: &dyn LockBackend) {
    let key = key("sentinel");
    let sentinel = look(real, &key, None).await;
    let token = Token::draw(|bytes| {
        bytes.fill(9);
        Ok(())
    });
    let claim = Claim::new([key.clone()], token.unwrap(), Ttl::try_from(SECOND * 60).unwrap());
    let written =
        if sentinel.is_held() { release(real, &claim).await } else { acquire(real, &claim).await };
    written.unwrap();
    within_limit("the push of the sentinel", sentinel.changed()).await;
}

#[test]
fn a_push_comes_exactly_when_a_watched_key_was_written_or_ended() {
    let server = RedisServer::start();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let counts = tokio.block_on(async {
        let real = quorate::redis::connect([server.address()]).unwrap().remove(0);
        let sim = Sim::new(7);
        let fake = MemoryNode::new("fake", sim.clone());
        let tokens = (0..3).map(|_| Token::draw(|bytes| sim.fill_random(bytes)).unwrap()).collect();
        let entries = ["a", "b", "c"].map(|name| Entry::new(name.as_bytes()));
        let names = Names { locks: names_of(0).0[..3].to_vec(), tokens, entries };
        enter_epoch(&real, &names.tokens).await;
        enter_epoch(&fake, &names.tokens).await;
        assert_eq!(server.cli(&["DEL", QUARANTINE]).integer(), 1);
        fake.expire(QUARANTINE);
        let behind = Connection::to_port(server.port()).unwrap();
        let mut pair = Pair { real: &real, fake, behind, joined: None };
        // For locks and for entries: changes that were pushed, and changes that were not.
        let mut counts = [[0; 2]; 2];
        // On a slow machine, the steps in which something may have expired do not count.
        let is_enough = |counts: &[[u64; 2]; 2]| {
            counts.iter().all(|[pushes, none]| *pushes > STEPS / 200 && *none > STEPS / 20)
        };
        for step in 0..10 * STEPS {
            if step >= STEPS && is_enough(&counts) {
                break;
            }
            if pair.joined.is_some_and(|joined| now() > joined + ENTRY_ENDS / 2) {
                pair.clear_queues(&names).await;
            }
            let name = pick(&sim, &names.locks);
            let entry = (sim.random_below(3) == 0).then(|| pick(&sim, &names.entries));
            let key = key(name);
            let (on_real, on_fake) =
                (look(&real, &key, entry).await, look(&pair.fake, &key, entry).await);
            let held = (on_real.is_held(), on_fake.is_held());
            let mut on_fake = pin!(on_fake.changed());
            assert!(poll_immediate(on_fake.as_mut()).await.is_none(), "step {step}: told early");
            let what = pair.change(&sim, &names, step).await;
            // A push of the fake is a task of its world.
            sim.advance(Duration::ZERO);
            let pushes = poll_immediate(on_fake).await.is_some();
            if pair.may_have_expired() {
                pair.clear_queues(&names).await;
                continue;
            }
            assert_eq!(held.0, held.1, "step {step}");
            let watched = if entry.is_some() { "an entry of " } else { "" };
            let place = format!("step {step}: {what}, while {watched}{name} was watched");
            is_told(&pair, on_real, pushes, &place).await;
            counts[usize::from(entry.is_some())][usize::from(!pushes)] += 1;
        }
        counts
    });
    for ([pushes, none], what) in counts.into_iter().zip(["locks", "entries"]) {
        println!("{what}: {pushes} changes were pushed, {none} were none of the watched key");
        assert!(pushes > STEPS / 200 && none > STEPS / 20, "{pushes} pushes, {none} without");
    }
}
