//! Watching: a push exactly when a watched key was written or ended, on the fake and on a real node.

use std::pin::pin;

use futures_util::future::poll_immediate;
use quorate::memory::{MemoryNode, Sim, Value};
use quorate::protocol::quarantine::KEY;
use quorate::{Claim, Key, LockBackend, Resource, Runtime, Token, Ttl, Watched};
use quorate_tests::wait::within_limit;
use quorate_tests::{Connection, RedisServer};

use super::node::{Call, enter_epoch, look};
use super::{SECOND, names_of};

const STEPS: u64 = 3_000;

/// Both nodes, and another program that writes to them.
struct Pair<'a> {
    real: &'a dyn LockBackend,
    fake: MemoryNode,
    behind: Connection,
}

impl Pair<'_> {
    /// Changes both nodes: by an operation of the protocol, or as another program does.
    async fn change(&mut self, sim: &Sim, names: &[String], tokens: &[Token], step: u64) -> String {
        let name = &names[usize::try_from(sim.random_below(names.len() as u64)).unwrap()];
        match sim.random_below(12) {
            0 => {
                self.behind.command(&["SET", name, "x"]).unwrap();
                self.fake.put(name, Value::String(b"x".into()));
                format!("SET {name}")
            }
            1 | 2 => {
                self.behind.command(&["DEL", name]).unwrap();
                self.fake.expire(name);
                format!("DEL {name}")
            }
            3 => {
                self.behind.command(&["PEXPIRE", name, "0"]).unwrap();
                self.fake.expire(name);
                format!("the end of {name}")
            }
            _ => {
                // No key ends by itself. Each ttl is longer than the last, or too short to change one.
                let long = SECOND * 60 + SECOND * u32::try_from(step).unwrap();
                let short = sim.random_below(3) == 0;
                let call = Call::draw(sim, names, tokens);
                let ttl = if short && matches!(call, Call::Extend(_)) { SECOND } else { long };
                let call = call.with_ttl(|_| Some(ttl)).unwrap();
                let (real, fake) = (call.on(self.real).await, call.on(&self.fake).await);
                let untimed = super::timeless;
                assert_eq!(untimed(&real), untimed(&fake), "step {step}: {}", call.name());
                call.name().to_owned()
            }
        }
    }
}

/// What is told of a watch on the real node, once all that came before has been told.
async fn is_told(pair: &Pair<'_>, watched: Watched, expected: bool, place: &str) {
    let mut told = pin!(watched.changed());
    if expected {
        let told = within_limit(&format!("{place}: a push of the real node"), told).await;
        assert!(told.is_ok(), "{place}: {told:?}");
        return;
    }
    // A push of a later write on the same connection comes after one of an earlier write.
    let key = Key::new(b"", &Resource::new("sentinel").unwrap());
    let token = Token::draw(|bytes| {
        bytes.fill(9);
        Ok(())
    });
    let claim = Claim::new([key.clone()], token.unwrap(), Ttl::try_from(SECOND * 60).unwrap());
    let sentinel = look(pair.real, &key).await;
    let written = match sentinel.holder() {
        None => Call::Acquire(claim),
        Some(_) => Call::Release(claim),
    };
    written.on(pair.real).await.unwrap();
    let last = within_limit("the push of the sentinel", sentinel.changed()).await;
    assert!(last.is_ok(), "{place}: the sentinel: {last:?}");
    let early = poll_immediate(told.as_mut()).await;
    assert!(early.is_none(), "{place}: the real node pushed for nothing: {early:?}");
}

#[test]
fn a_push_comes_exactly_when_a_watched_key_was_written_or_ended() {
    let server = RedisServer::start();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let [pushes, none] = tokio.block_on(async {
        let real = quorate::redis::connect([server.address()]).unwrap().remove(0);
        let sim = Sim::new(7);
        let fake = MemoryNode::new("fake", sim.clone());
        let names = &names_of(0).0[..3];
        let tokens: Vec<Token> =
            (0..3).map(|_| Token::draw(|bytes| sim.fill_random(bytes)).unwrap()).collect();
        enter_epoch(&real, &tokens).await;
        enter_epoch(&fake, &tokens).await;
        assert_eq!(server.cli(&["DEL", KEY]).integer(), 1);
        fake.expire(KEY);
        let behind = Connection::to_port(server.port()).unwrap();
        let mut pair = Pair { real: &real, fake, behind };
        let mut counts = [0; 2];
        for step in 0..STEPS {
            let name = &names[usize::try_from(sim.random_below(names.len() as u64)).unwrap()];
            let key = Key::new(b"", &Resource::new(name).unwrap());
            let (on_real, on_fake) = (look(&real, &key).await, look(&pair.fake, &key).await);
            assert_eq!(on_real.holder(), on_fake.holder(), "step {step}");
            let mut on_fake = pin!(on_fake.changed());
            // The fake begins to watch with the first poll.
            assert!(poll_immediate(on_fake.as_mut()).await.is_none(), "step {step}: told early");
            let what = pair.change(&sim, names, &tokens, step).await;
            let pushes = poll_immediate(on_fake).await.is_some();
            let place = format!("step {step}: {what}, while {name} was watched");
            is_told(&pair, on_real, pushes, &place).await;
            counts[usize::from(!pushes)] += 1;
        }
        counts
    });
    println!("{pushes} changes were pushed, {none} were none of the watched key");
    assert!(pushes > STEPS / 20 && none > STEPS / 20, "{pushes} pushes, {none} without");
}
