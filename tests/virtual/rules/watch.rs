//! Watches on nodes in memory: a push is a message like a reply, and a run follows from its seed.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::poll_immediate;
use quorate_core::backend::{AcquireOptions, ExtendOptions, ReleaseOptions};
use quorate_core::{
    BackendErrorKind, Claim, Key, LockBackend, Resource, Runtime, Token, Ttl, Vote,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim, Value};
use quorate_protocol::error_of_reply;

use crate::world::{MS, SECOND};

const TTL: Duration = Duration::from_secs(10);

struct Scene {
    sim: Sim,
    node: MemoryNode,
    key: Key,
}

/// What became of a watch.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The reply: whether the key was there.
    is_held: Option<bool>,
    failed: Option<BackendErrorKind>,
    /// When the push came.
    pushed: Option<Duration>,
}

#[derive(Clone, Default)]
struct Watching(Arc<Mutex<Seen>>);

impl Watching {
    fn seen(&self) -> Seen {
        *self.0.lock().unwrap()
    }

    fn pushed(&self) -> Option<Duration> {
        assert_eq!(self.seen().failed, None);
        self.seen().pushed
    }
}

impl Scene {
    /// A node at which a holder keeps the key for [`TTL`].
    fn new() -> Self {
        let sim = Sim::new(1);
        let node = MemoryNode::new("node", sim.clone());
        let scene = Self { sim, node, key: Key::new(b"", &Resource::new("r").unwrap()) };
        assert_eq!(scene.acquire(&scene.claim(1)), Vote::Granted);
        scene
    }

    fn claim(&self, holder: u8) -> Claim {
        let token = Token::draw(|bytes| {
            bytes.fill(holder);
            Ok(())
        });
        Claim::new([self.key.clone()], token.unwrap(), Ttl::try_from(TTL).unwrap())
    }

    fn acquire(&self, claim: &Claim) -> Vote {
        let acquired = self.sim.block_on(self.node.acquire(claim, AcquireOptions::default()));
        acquired.unwrap().vote
    }

    fn release(&self) {
        let claim = self.claim(1);
        let released = self.sim.block_on(self.node.release(&claim, ReleaseOptions::default()));
        assert_eq!(released.unwrap().vote, Vote::Granted);
    }

    /// Begins a watch, and lets the request arrive.
    fn watch(&self) -> Watching {
        let watching = self.watch_through(&self.node);
        self.sim.advance(Duration::ZERO);
        watching
    }

    fn watch_through(&self, node: &MemoryNode) -> Watching {
        let watching = Watching::default();
        let (sim, node, key) = (self.sim.clone(), node.clone(), self.key.clone());
        let seen = Arc::clone(&watching.0);
        self.sim.spawn(Box::pin(async move {
            match node.watch(&key, None).await {
                Ok(watched) => {
                    seen.lock().unwrap().is_held = Some(watched.is_held());
                    watched.changed().await;
                    seen.lock().unwrap().pushed = Some(sim.elapsed());
                }
                Err(error) => seen.lock().unwrap().failed = Some(error.kind()),
            }
        }));
        watching
    }
}

#[test]
fn every_write_to_the_key_is_pushed_and_nothing_else_is() {
    type Change = fn(&Scene);
    let changes: [Change; 6] = [
        Scene::release,
        |scene| scene.node.expire("r"),
        |scene| scene.node.put("r", Value::List),
        |scene| scene.node.put("r", Value::String(b"another's".to_vec())),
        |scene| {
            let longer = scene.claim(1).with_ttl(Ttl::try_from(TTL * 2).unwrap());
            let extended = scene.sim.block_on(scene.node.extend(&longer, ExtendOptions::default()));
            assert_eq!(extended.unwrap().vote, Vote::Granted);
        },
        |scene| scene.node.flush(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let scene = Scene::new();
        let watching = scene.watch();
        assert_eq!(watching.seen().is_held, Some(true));
        for holder in [1, 2] {
            scene.acquire(&scene.claim(holder));
        }
        scene.node.put("another", Value::List);
        scene.node.expire("yet another");
        scene.sim.advance(SECOND);
        assert_eq!(watching.pushed(), None, "{number}");
        change(&scene);
        scene.sim.advance(Duration::ZERO);
        assert_eq!(watching.pushed(), Some(SECOND), "{number}");
    }
}

#[test]
fn an_expiry_is_pushed_at_its_moment_by_the_nodes_own_clock() {
    let scene = Scene::new();
    let watching = scene.watch();
    scene.sim.advance(TTL * 2);
    assert_eq!(watching.pushed(), Some(TTL));

    let fast = Scene::new();
    fast.node.drift(1_000_000);
    let watching = fast.watch();
    fast.sim.advance(TTL);
    assert_eq!(watching.pushed(), Some(TTL / 2));
}

#[test]
fn a_watch_that_was_dropped_leaves_no_timer_and_disturbs_no_other() {
    let scene = Scene::new();
    let watching = scene.watch();
    for _ in 0..100 {
        let watched = scene.sim.block_on(scene.node.watch(&scene.key, None)).unwrap();
        assert!(scene.sim.block_on(poll_immediate(pin!(watched.changed()))).is_none());
    }
    scene.release();
    scene.sim.settle();
    assert_eq!((watching.pushed(), scene.sim.elapsed()), (Some(Duration::ZERO), Duration::ZERO));
}

#[test]
fn a_push_takes_as_long_as_a_reply_does() {
    let scene = Scene::new();
    scene.node.add_rule(Rule::new(Effect::Delay { least: 7 * MS, most: 7 * MS }));
    let watching = scene.watch();
    scene.sim.advance(SECOND);
    scene.node.expire("r");
    scene.sim.advance(SECOND);
    assert_eq!(watching.pushed(), Some(SECOND + 7 * MS));

    let scene = Scene::new();
    let watching = scene.watch();
    scene.node.inject(Fault::Late(30 * MS));
    scene.node.expire("r");
    scene.sim.advance(SECOND);
    assert_eq!(watching.pushed(), Some(30 * MS));
}

/// The rules are those of the moment at which the node pushes.
#[test]
fn a_push_is_lost_where_replies_are() {
    let scene = Scene::new();
    let (near, far) = (scene.sim.client(0), scene.sim.client(0));
    let pushed = scene.watch_through(&scene.node.seen_by(&near));
    let lost = scene.watch_through(&scene.node.seen_by(&far));
    scene.sim.advance(Duration::ZERO);
    scene.node.add_rule(Rule::new(Effect::DropReply).client(&far));
    scene.release();
    scene.sim.advance(TTL * 10);
    assert_eq!(pushed.pushed(), Some(Duration::ZERO));
    assert_eq!((lost.seen().is_held, lost.pushed()), (Some(true), None));
}

#[test]
fn a_request_or_a_reply_that_is_lost_is_a_watch_without_a_reply() {
    for effect in [Effect::DropRequest, Effect::DropReply] {
        let scene = Scene::new();
        scene.node.add_rule(Rule::new(effect).on(Operation::Watch));
        let watching = scene.watch();
        scene.release();
        scene.sim.advance(TTL * 10);
        let Seen { is_held, failed, pushed } = watching.seen();
        assert_eq!((is_held, failed, pushed), (None, None, None), "{effect:?}");
    }
}

#[test]
fn a_node_that_is_gone_ends_its_watches_and_takes_new_ones_when_it_is_back() {
    for (fault, is_left) in [(Fault::Dead, false), (Fault::Down, true)] {
        let scene = Scene::new();
        let before = scene.watch();
        scene.node.inject(fault);
        scene.sim.advance(Duration::ZERO);
        assert_eq!(before.pushed(), Some(Duration::ZERO), "its connection has ended");
        let meanwhile = scene.watch();
        assert_eq!(meanwhile.seen().failed, Some(BackendErrorKind::Connection));
        scene.node.heal();
        let again = scene.watch();
        assert_eq!((again.seen().is_held, again.pushed()), (Some(is_left), None));
        scene.sim.advance(TTL);
        assert_eq!(again.pushed().is_some(), is_left);
    }
}

#[test]
fn a_node_that_hung_pushes_when_it_goes_on() {
    let scene = Scene::new();
    let before = scene.watch();
    scene.node.inject(Fault::Hung);
    let meanwhile = scene.watch();
    scene.sim.advance(TTL);
    assert_eq!((before.pushed(), meanwhile.seen().is_held), (None, None));
    scene.node.heal();
    scene.sim.advance(Duration::ZERO);
    assert_eq!((before.pushed(), meanwhile.seen().is_held), (Some(TTL), Some(false)));
}

#[test]
fn an_error_of_the_node_or_of_its_connection_is_the_reply_to_a_watch() {
    let scene = Scene::new();
    scene.node.inject(Fault::Failing(error_of_reply("NOPERM")));
    assert_eq!(scene.watch().seen().failed, Some(BackendErrorKind::Permission));
    scene.node.heal();
    scene.node.add_rule(Rule::new(Effect::Cut));
    assert_eq!(scene.watch().seen().failed, Some(BackendErrorKind::Connection));
    let scene = Scene::new();
    scene.node.put("r", Value::List);
    assert_eq!(scene.watch().seen().failed, Some(BackendErrorKind::WrongType));
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let sim = Sim::new(seed);
        let node = MemoryNode::new("node", sim.clone());
        node.add_rule(Rule::new(Effect::Delay { least: MS, most: 50 * MS }));
        node.add_rule(Rule::new(Effect::DropReply).chance(100_000));
        let scene = Scene { sim, node, key: Key::new(b"", &Resource::new("r").unwrap()) };
        scene.node.put("r", Value::String(b"another's".to_vec()));
        let all: Vec<_> = (0..50)
            .map(|_| {
                scene.sim.advance(MS);
                scene.watch()
            })
            .collect();
        scene.sim.advance(SECOND);
        scene.node.expire("r");
        scene.sim.advance(SECOND);
        all.iter().map(Watching::pushed).collect::<Vec<_>>()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
    assert!(run(3).iter().any(Option::is_none), "some are lost");
}

#[test]
fn a_key_that_has_expired_is_free_until_somebody_acquires_it() {
    let scene = Scene::new();
    scene.sim.advance(TTL + SECOND);
    let watching: Vec<_> = (0..3).map(|_| scene.watch()).collect();
    scene.sim.advance(SECOND);
    for one in &watching {
        assert_eq!((one.seen().is_held, one.pushed()), (Some(false), None));
    }
    assert_eq!(scene.acquire(&scene.claim(2)), Vote::Granted);
    scene.sim.advance(Duration::ZERO);
    assert!(watching.iter().all(|one| one.pushed() == Some(TTL + 2 * SECOND)));
}
