//! Watches on nodes in memory: told like a reply, lost like one, and the same in every run.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::poll_immediate;
use quorate_core::{
    BackendError, BackendErrorKind, Claim, Key, LockBackend, Resource, Runtime, Token, Ttl, Vote,
    Watch,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim, Value};

use crate::world::{MS, SECOND};

const TTL: Duration = Duration::from_secs(10);

type Outcome = Result<(), BackendError>;

struct Scene {
    sim: Sim,
    node: MemoryNode,
    key: Key,
}

/// What a watch was told, and when.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Option<(Outcome, Duration)>>>);

impl Told {
    fn at(&self) -> Option<Duration> {
        match &*self.0.lock().unwrap() {
            Some((Ok(()), at)) => Some(*at),
            Some((Err(error), _)) => panic!("{error}"),
            None => None,
        }
    }

    fn kind(&self) -> Option<BackendErrorKind> {
        self.0.lock().unwrap().as_ref()?.0.as_ref().err().map(BackendError::kind)
    }

    fn is_nothing(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }
}

impl Scene {
    /// A node at which somebody keeps the key for [`TTL`].
    fn new() -> Self {
        let sim = Sim::new(1);
        let node = MemoryNode::new("node", sim.clone());
        let scene = Self { sim, node, key: Key::new(b"", &Resource::new("r").unwrap()) };
        assert_eq!(scene.sim.block_on(scene.node.acquire(&scene.claim(1))).unwrap(), Vote::Granted);
        scene
    }

    fn claim(&self, holder: u8) -> Claim {
        let token = Token::draw(|bytes| {
            bytes.fill(holder);
            Ok(())
        });
        Claim::new([self.key.clone()], token.unwrap(), Ttl::try_from(TTL).unwrap())
    }

    fn release(&self) {
        assert_eq!(self.sim.block_on(self.node.release(&self.claim(1))).unwrap(), Vote::Granted);
    }

    /// Begins a watch, and lets the request arrive.
    fn watch(&self) -> Told {
        let told = self.watch_through(&self.node);
        self.sim.advance(Duration::ZERO);
        told
    }

    fn watch_through(&self, node: &MemoryNode) -> Told {
        let told = Told::default();
        let (sim, node, key, slot) =
            (self.sim.clone(), node.clone(), self.key.clone(), Arc::clone(&told.0));
        self.sim.spawn(Box::pin(async move {
            let outcome = node.watch(&key).await;
            *slot.lock().unwrap() = Some((outcome, sim.elapsed()));
        }));
        told
    }
}

#[test]
fn every_change_wakes_and_nothing_else_does() {
    type Change = fn(&Scene);
    let changes: [Change; 5] = [
        Scene::release,
        |scene| scene.node.expire("r"),
        |scene| scene.node.put("r", Value::List),
        |scene| scene.node.put("r", Value::String(b"another's".to_vec())),
        // A real node tells of that, too.
        |scene| {
            let longer = scene.claim(1).with_ttl(Ttl::try_from(TTL * 2).unwrap());
            assert_eq!(scene.sim.block_on(scene.node.extend(&longer)).unwrap(), Vote::Granted);
        },
    ];
    for change in changes {
        let scene = Scene::new();
        let told = scene.watch();
        for holder in [1, 2] {
            drop(scene.sim.block_on(scene.node.acquire(&scene.claim(holder))));
        }
        scene.node.put("another", Value::List);
        scene.node.expire("yet another");
        scene.sim.advance(SECOND);
        assert!(told.is_nothing());
        change(&scene);
        scene.sim.advance(Duration::ZERO);
        assert_eq!(told.at(), Some(SECOND));
    }
}

#[test]
fn expiry_wakes_at_its_moment_by_the_nodes_own_clock() {
    let scene = Scene::new();
    let told = scene.watch();
    scene.sim.advance(TTL * 2);
    assert_eq!(told.at(), Some(TTL));

    let fast = Scene::new();
    fast.node.drift(1_000_000);
    let told = fast.watch();
    fast.sim.advance(TTL);
    assert_eq!(told.at(), Some(TTL / 2));
}

#[test]
fn a_watch_that_was_dropped_leaves_no_timer_and_disturbs_no_other() {
    let scene = Scene::new();
    let told = scene.watch();
    for _ in 0..100 {
        assert!(scene.sim.block_on(poll_immediate(pin!(scene.node.watch(&scene.key)))).is_none());
    }
    scene.release();
    scene.sim.settle();
    assert_eq!((told.at(), scene.sim.elapsed()), (Some(Duration::ZERO), Duration::ZERO));
}

#[test]
fn a_wake_up_takes_as_long_as_a_reply_does() {
    let scene = Scene::new();
    scene.node.add_rule(Rule::new(Effect::Delay { least: 7 * MS, most: 7 * MS }));
    let told = scene.watch();
    scene.sim.advance(SECOND);
    scene.node.expire("r");
    scene.sim.advance(SECOND);
    assert_eq!(told.at(), Some(SECOND + 7 * MS));

    let scene = Scene::new();
    let told = scene.watch();
    scene.node.inject(Fault::Late(30 * MS));
    scene.node.expire("r");
    scene.sim.advance(SECOND);
    assert_eq!(told.at(), Some(30 * MS));
}

/// The rules are those of the moment at which the node tells it.
#[test]
fn a_wake_up_is_lost_where_replies_are() {
    let scene = Scene::new();
    let (near, far) = (scene.sim.client(0), scene.sim.client(0));
    let heard = scene.watch_through(&scene.node.seen_by(&near));
    let lost = scene.watch_through(&scene.node.seen_by(&far));
    scene.sim.advance(Duration::ZERO);
    scene.node.add_rule(Rule::new(Effect::DropReply).client(&far));
    scene.release();
    scene.sim.advance(TTL * 10);
    assert_eq!(heard.at(), Some(Duration::ZERO));
    assert!(lost.is_nothing());
}

#[test]
fn a_request_that_is_lost_is_a_watch_that_is_told_nothing() {
    let scene = Scene::new();
    scene.node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Watch));
    let told = scene.watch();
    scene.release();
    scene.sim.advance(TTL * 10);
    assert!(told.is_nothing());
    scene.node.restart();
    scene.sim.advance(Duration::ZERO);
    assert_eq!(told.kind(), Some(BackendErrorKind::Connection));
}

#[test]
fn a_node_that_is_gone_ends_its_watches_and_takes_new_ones_when_it_is_back() {
    for (fault, is_left) in [(Fault::Dead, false), (Fault::Down, true)] {
        let scene = Scene::new();
        let under_way = scene.watch();
        scene.node.inject(fault);
        scene.sim.advance(Duration::ZERO);
        let late = scene.watch();
        for told in [under_way, late] {
            assert_eq!(told.kind(), Some(BackendErrorKind::Connection));
        }
        scene.node.heal();
        let again = scene.watch();
        assert_eq!(again.is_nothing(), is_left);
        scene.sim.advance(TTL);
        assert!(again.at().is_some());
    }
}

#[test]
fn a_node_that_hung_tells_when_it_goes_on() {
    let scene = Scene::new();
    let before = scene.watch();
    scene.node.inject(Fault::Hung);
    let meanwhile = scene.watch();
    scene.sim.advance(TTL);
    assert!(before.is_nothing() && meanwhile.is_nothing());
    scene.node.heal();
    scene.sim.advance(Duration::ZERO);
    assert_eq!((before.at(), meanwhile.at()), (Some(TTL), Some(TTL)));
}

#[test]
fn an_error_of_the_node_and_a_connection_that_breaks_end_a_watch() {
    let scene = Scene::new();
    scene.node.inject(Fault::Failing(BackendError::from_reply("NOPERM")));
    assert_eq!(scene.watch().kind(), Some(BackendErrorKind::Permission));
    scene.node.heal();
    scene.node.add_rule(Rule::new(Effect::Cut));
    assert_eq!(scene.watch().kind(), Some(BackendErrorKind::Connection));
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
        scene.node.expire("r");
        scene.sim.advance(SECOND);
        all.iter().map(Told::at).collect::<Vec<_>>()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
    assert!(run(3).iter().any(Option::is_none), "some are lost");
}

#[test]
fn a_key_that_has_expired_is_free_until_somebody_takes_it() {
    let scene = Scene::new();
    scene.sim.advance(TTL + SECOND);
    for _ in 0..3 {
        let seen = scene.sim.block_on(scene.node.look(&scene.key)).unwrap();
        assert_eq!(seen.holder(), None);
        let mut changed = pin!(seen.changed());
        for _ in 0..2 {
            assert!(scene.sim.block_on(poll_immediate(changed.as_mut())).is_none());
            scene.sim.advance(SECOND);
        }
    }
    let seen = scene.sim.block_on(scene.node.look(&scene.key)).unwrap();
    let (told, vote) = (seen.changed(), scene.claim(2));
    assert_eq!(scene.sim.block_on(scene.node.acquire(&vote)).unwrap(), Vote::Granted);
    scene.sim.block_on(told).unwrap();
}

#[test]
fn a_look_whose_answer_is_lost_ends_with_the_connection() {
    let scene = Scene::new();
    scene.node.add_rule(Rule::new(Effect::DropReply).on(Operation::Watch));
    let mut looks = pin!(scene.node.look(&scene.key));
    assert!(scene.sim.block_on(poll_immediate(looks.as_mut())).is_none());
    scene.sim.advance(SECOND);
    scene.node.clear_rules();
    assert_eq!(scene.sim.block_on(scene.node.release(&scene.claim(1))).unwrap(), Vote::Granted);
    scene.sim.advance(SECOND);
    assert!(scene.sim.block_on(poll_immediate(looks.as_mut())).is_none());
    scene.node.inject(Fault::Dead);
    let error = scene.sim.block_on(looks).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection);
}
