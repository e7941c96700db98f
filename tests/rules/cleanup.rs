//! C1–C7.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate_core::{
    BackendError, Carry, Claim, LockBackend, LockError, LockManager, ReleaseError, Released,
    Runtime, Vote,
};
use quorate_memory::{Fault, MemoryNode, Value};

use crate::every_future::{self, Doing, Trial};
use crate::world::{MS, SECOND, World};

mod releasing;

fn fixed(delay: Duration) -> impl quorate_core::RetryStrategy {
    #[derive(Debug)]
    struct Fixed(Duration);

    impl quorate_core::RetryStrategy for Fixed {
        fn delay(&self, _: &quorate_core::RetryContext) -> Option<Duration> {
            Some(self.0)
        }
    }

    Fixed(delay)
}

#[test]
fn c1_every_attempt_has_a_token_of_its_own() {
    let world = World::new(3);
    for node in &world.nodes {
        node.put("r", Value::String(b"x".to_vec()));
    }
    let request = world.manager().lock("r").timeout(SECOND).retry(fixed(100 * MS));
    assert!(world.sim.block_on(request).is_err());
    let tokens = world.log.tokens();
    assert_eq!(tokens.len(), 10, "ten rounds in a second");
    let mut distinct = tokens.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), tokens.len(), "no token comes back after another");
    assert!(tokens.iter().all(|token| token.len() == 40));
}

#[test]
fn c2_a_lost_round_releases_on_all_nodes_before_the_delay() {
    let world = World::new(3);
    // One grants, one refuses, one fails.
    world.nodes[1].put("r", Value::String(b"x".to_vec()));
    world.nodes[2].inject(Fault::Dead);
    let request = world.manager().lock("r").timeout(SECOND).retry(fixed(600 * MS));
    let lost = world.sim.block_on(request);
    assert!(matches!(lost, Err(LockError::Held(_))), "{lost:?}");
    // The dead node cannot say who it is, so it is not asked for its vote.
    let round = ["acquire", "acquire", "release", "release", "release"];
    assert_eq!(world.log.operations()[..5], round);
    world.catch_up();
    assert_eq!(world.log.operations(), round.repeat(2), "the last round, too");
    assert_eq!(world.holders("r"), 1);
}

#[test]
fn c2_others_find_the_nodes_free_during_the_delay() {
    let world = World::new(3);
    let manager = world.manager();
    world.nodes[0].put("r", Value::String(b"x".to_vec()));
    world.nodes[1].inject(Fault::Dead);
    let waiting = manager.lock("r").retry(fixed(20 * SECOND));
    assert!(world.sim.block_on_for(waiting, 1).is_none());
    assert_eq!(world.holders("r"), 1, "only the other's key");
}

#[test]
fn c3_a_release_never_overtakes_its_acquire() {
    let worlds: [fn(usize) -> World; 2] = [World::new, World::carrying];
    for (won, world) in [true, false].into_iter().flat_map(|won| worlds.map(|world| (won, world))) {
        let world = world(3);
        let manager = world.manager();
        // Only a node that has told who it is is carried to.
        drop(world.sim.block_on(manager.lock("first")).unwrap());
        world.sim.settle();
        world.nodes[0].inject(Fault::Slow(100 * MS));
        if !won {
            world.nodes[1].put("r", Value::String(b"x".to_vec()));
            world.nodes[2].put("r", Value::String(b"x".to_vec()));
        }
        let lock = world.sim.block_on(manager.lock("r").no_wait());
        assert_eq!(lock.is_ok(), won);
        // From now on the way is short: a release that was sent at once would come first.
        world.nodes[0].heal();
        drop(lock);
        world.sim.settle();
        assert_eq!(world.nodes[0].keys().len(), 0, "won: {won}");
    }
}

#[test]
fn c3_a_hung_node_that_wakes_keeps_no_ghost_key() {
    let world = World::new(5);
    let manager = world.manager();
    world.nodes[0].inject(Fault::Hung);
    world.nodes[1].inject(Fault::Hung);
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.sim.block_on(guard.release()).unwrap();
    world.sim.advance(5 * SECOND);
    world.nodes[0].heal();
    world.nodes[1].heal();
    assert_eq!(world.holders("r"), 2, "the late grants are there");
    world.catch_up();
    assert_eq!(world.keys_left(), 0, "and given back in the same moment");
}

#[test]
fn c4_a_late_grant_is_recorded_as_ours() {
    let world = World::new(5);
    let manager = world.manager();
    for node in &world.nodes[..2] {
        node.inject(Fault::Slow(2 * SECOND));
    }
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.sim.advance(3 * SECOND);
    for node in &world.nodes[..2] {
        node.heal();
    }
    assert_eq!(world.holders("r"), 5, "the late acquires were carried out");
    world.sim.block_on(guard.extend()).unwrap();
    assert!(world.nodes.iter().all(|node| node.time_left("r") == Some(10 * SECOND)));
    world.sim.block_on(guard.release()).unwrap();
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn c4_late_answers_are_awaited_after_every_decision() {
    let world = World::new(5);
    let manager = world.manager();
    for node in &world.nodes[..2] {
        node.inject(Fault::Late(SECOND));
    }
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.block_on(guard.release()).unwrap();
    world.sim.settle();
    // The two late nodes are not asked to extend what is being released by then.
    assert_eq!(world.log.operations().len(), 13);
    assert_eq!(world.log.dropped.load(Ordering::Relaxed), 0, "no call was dropped");
}

#[test]
fn c5_cleanup_ends_at_its_own_bound() {
    let world = World::new(3);
    let manager = world.builder().cleanup_bound(4 * SECOND).build().unwrap();
    for node in &world.nodes {
        node.inject(Fault::Hung);
    }
    assert!(world.sim.block_on(manager.lock("r").no_wait()).is_err());
    world.sim.settle();
    // A node timeout for the round, the bound, and a node timeout for the releases behind it.
    assert_eq!(world.sim.elapsed(), 500 * MS + 4 * SECOND + 500 * MS);
    for node in &world.nodes {
        node.heal();
    }
    assert_eq!(world.keys_left(), 0, "the releases stood behind the acquires in the queue");
}

/// Every public future, dropped after every number of polls, with nodes of every kind. Two of them
/// have to be repaired on the way.
#[test]
fn c5_a_future_dropped_at_any_poll_leaves_no_key() {
    let (mut moments, mut repaired) = (0, 0);
    for doing in Doing::ALL {
        for polls in doing.first().. {
            let world = World::new(5);
            world.nodes[1].inject(Fault::Slow(20 * MS));
            world.nodes[2].inject(Fault::Late(30 * MS));
            world.nodes[3].inject(Fault::Slow(1200 * MS));
            world.nodes[4].inject(Fault::Dead);
            let (sim, manager) = (&world.sim, world.builder().ttl(20 * SECOND).build().unwrap());
            let rival = world.manager();
            let begins = doing.begin(manager.clone(), &rival, Arc::new(sim.clone()), 8 * SECOND);
            let Trial { future, record } = sim.block_on(begins);
            let (clock, slow, dead) = (sim.clone(), world.nodes[3].clone(), world.nodes[4].clone());
            sim.spawn(Box::pin(async move {
                clock.sleep_until(clock.now() + 2 * SECOND).await;
                slow.expire("r");
                dead.heal();
            }));
            let is_done = sim.block_on(every_future::is_done_after(polls, future));
            // From now on the way is short: a release that overtook something would leave it there.
            world.nodes[3].heal();
            let operations = world.log.operations();
            let extended = operations.iter().position(|operation| *operation == "extend");
            let set_again = |at| operations[at..].contains(&"acquire");
            repaired += u32::from(doing != Doing::Close && extended.is_some_and(set_again));
            sim.block_on(every_future::finish(record, &manager));
            // Less than the ttl: nothing is gone just because it expired.
            sim.advance(5 * SECOND);
            assert_eq!(world.keys_left(), 0, "{doing:?} dropped after {polls} polls");
            assert_eq!(sim.block_on(manager.settle(Duration::ZERO)), 0, "{doing:?}: {polls}");
            moments += 1;
            if is_done {
                break;
            }
        }
    }
    assert!(moments > 200, "the sweep saw only {moments} moments");
    assert!(repaired > 10, "and only {repaired} repairs");
}

#[test]
fn c6_an_acquire_is_sent_once() {
    let world = World::new(3);
    world.nodes[0].inject(Fault::Hung);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.sim.settle();
    assert_eq!(world.log.operations(), ["acquire"; 3]);
    drop(guard);
}

#[test]
fn the_background_can_be_waited_for() {
    let world = World::new(5);
    let manager = world.manager();
    assert_eq!(world.sim.block_on(manager.settle(SECOND)), 0, "nothing goes on");
    world.nodes[0].inject(Fault::Slow(300 * MS));
    drop(world.sim.block_on(manager.lock("r")).unwrap());
    assert_eq!(world.sim.block_on(manager.settle(100 * MS)), 2, "the acquire and its release");
    assert_eq!(world.sim.elapsed(), 100 * MS);
    assert_eq!(world.sim.block_on(manager.settle(10 * SECOND)), 0);
    assert_eq!(world.sim.elapsed(), 600 * MS, "no longer than it takes");
    assert_eq!(world.keys_left(), 0);
}

/// A node that is gone for good does not keep work piling up: what it never granted is not its to
/// give back.
#[test]
fn a_dead_node_leaves_nothing_in_the_background() {
    let world = World::new(3);
    world.nodes[0].inject(Fault::Dead);
    let manager = world.manager();
    for _ in 0..10 {
        drop(world.sim.block_on(manager.lock("r")).unwrap());
        world.catch_up();
    }
    assert_eq!(world.sim.block_on(manager.settle(Duration::ZERO)), 0);
}

#[test]
fn c5_cleanup_goes_on_for_as_long_as_the_longest_extension() {
    let world = World::new(1);
    let manager = world.builder().ttl(SECOND).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.sim.block_on(guard.extend_to(3600 * SECOND)).unwrap();
    world.nodes[0].inject(Fault::Failing(BackendError::from_reply("LOADING")));
    drop(guard);
    world.sim.advance(60 * SECOND);
    assert_eq!(world.keys_left(), 1);
    world.nodes[0].heal();
    world.sim.advance(2 * SECOND);
    assert_eq!(world.keys_left(), 0);
}

/// An answer to the acquire says nothing about the release.
#[test]
fn c2_late_answers_to_an_acquire_do_not_shorten_the_wait_for_its_release() {
    let world = World::new(3);
    for node in &world.nodes {
        node.inject(Fault::Late(300 * MS));
    }
    let manager = world.builder().node_timeout(200 * MS).build().unwrap();
    let request = manager.lock("r").timeout(450 * MS).retry(fixed(Duration::ZERO));
    let mut request = Box::pin(request.into_future());
    let rounds = |world: &World| world.log.tokens().len();
    assert!(world.sim.block_on_for(request.as_mut(), 1).is_none());
    // Lost at 200 ms, and the release may take as long.
    for (until, expected) in [(390 * MS, 1), (410 * MS, 2)] {
        let wakes = world.sim.sleep_until(world.sim.now() + (until - world.sim.elapsed()));
        let first = world.sim.block_on(select(request.as_mut(), wakes));
        assert!(matches!(first, Either::Right(_)));
        assert_eq!(rounds(&world), expected, "after {until:?}");
    }
}

/// It was not asked to acquire, since it hung, and has its key from a repair.
#[test]
fn c2_a_node_that_was_only_repaired_is_released_too() {
    for fenced in [false, true] {
        let world = World::new(3);
        let manager = world.manager();
        let fence = |request: quorate_core::LockRequest| match fenced {
            true => request.fenced(),
            false => request,
        };
        world.nodes[0].inject(Fault::Hung);
        // From now on it is known to hang.
        for name in ["a", "b"] {
            let guard = world.sim.block_on(fence(manager.lock(name))).unwrap();
            world.sim.advance(600 * MS);
            drop(guard);
        }
        drop(world.sim.block_on(manager.lock("probe")));
        let guard = world.sim.block_on(fence(manager.lock("r"))).unwrap();
        world.nodes[0].heal();
        world.sim.advance(SECOND);
        assert_eq!(world.holders("r"), 2, "it was not asked");
        world.sim.block_on(guard.extend()).unwrap();
        world.sim.advance(SECOND);
        assert_eq!(world.holders("r"), 3, "it was repaired");
        world.sim.block_on(guard.release()).unwrap();
        world.catch_up();
        assert_eq!(world.holders("r"), 0, "fenced: {fenced}");
    }
}

/// Whoever had it before may have it on nodes that were not asked for the adoption.
#[test]
fn c2_a_lock_that_was_adopted_is_released_where_it_was_not_asked_for() {
    let world = World::new(3);
    let record = world.sim.block_on(world.manager().lock("r")).unwrap().detach().unwrap();
    world.catch_up();
    let manager = world.manager();
    world.nodes[0].inject(Fault::Hung);
    drop(world.sim.block_on(manager.lock("a")).unwrap());
    world.sim.advance(600 * MS);
    drop(world.sim.block_on(manager.lock("probe")).unwrap());
    let before = world.log.calls().len();
    let guard = world.sim.block_on(manager.adopt(&record)).unwrap();
    let asked = world.log.operations().split_off(before);
    assert_eq!(asked.iter().filter(|operation| **operation == "extend").count(), 2, "{asked:?}");
    world.nodes[0].heal();
    drop(guard);
    world.sim.advance(SECOND);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn c5_the_undo_of_a_lost_round_reaches_a_slow_node_however_it_is_cancelled() {
    for polls in 1..12 {
        let world = World::new(3);
        for node in &world.nodes[..2] {
            node.put("r", Value::String(b"x".to_vec()));
            node.inject(Fault::Late(5 * MS));
        }
        world.nodes[2].inject(Fault::Slow(100 * MS));
        let request = world.manager().lock("r").timeout(60 * MS).retry(fixed(20 * MS));
        drop(world.sim.block_on_for(request, polls));
        world.sim.advance(2 * SECOND);
        assert!(world.nodes[2].keys().is_empty(), "after {polls} polls");
    }
}

/// A backend that panics in one of its methods.
#[derive(Debug)]
struct Panicking {
    node: MemoryNode,
    on: &'static str,
}

impl Panicking {
    fn check(&self, operation: &str) {
        assert!(operation != self.on, "on purpose");
    }
}

#[async_trait::async_trait]
impl LockBackend for Panicking {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.check("acquire");
        self.node.acquire(claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node.extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.check("release");
        self.node.release(claim).await
    }

    fn carrier(&self) -> Option<&dyn Carry> {
        self.check("carrier");
        None
    }
}

#[test]
fn a_backend_that_panics_fails_alone() {
    for on in ["acquire", "release", "carrier"] {
        let world = World::new(3);
        let nodes = world.nodes.iter().zip([on, "never", "never"]);
        let nodes = nodes.map(|(node, on)| Panicking { node: node.clone(), on });
        let manager = LockManager::builder(nodes).runtime(world.sim.clone()).build().unwrap();
        drop(world.sim.block_on(manager.lock("r")).expect("two are enough"));
        world.sim.advance(SECOND);
        let left: Vec<usize> = world.nodes.iter().map(|node| node.keys().len()).collect();
        assert_eq!(left, [usize::from(on == "release"), 0, 0], "{on}");
    }
}
