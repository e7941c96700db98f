//! Calls that a backend carries by itself are under the same rules.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::{
    Ask, BackendError, BackendErrorKind, Call, Carry, Claim, LockBackend, LockError, LockManager,
    Released, Vote,
};
use quorate_memory::{Fault, MemoryNode};

use crate::world::{MS, SECOND, World};

/// What becomes of the calls to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// They are kept here.
    Kept,
    /// The same, and they would be sent in this order.
    KeptInOrder,
    Dropped,
    Panic,
    /// They are not carried but asked for.
    Asked,
}

/// A node at which what is carried can be told from what is asked for.
#[derive(Clone, Debug)]
struct Odd {
    node: MemoryNode,
    fate: Fate,
    calls: Arc<Mutex<Vec<Call>>>,
    asked: Arc<Mutex<Vec<Ask>>>,
}

impl Odd {
    fn new(node: &MemoryNode, fate: Fate) -> Self {
        Self { node: node.clone(), fate, calls: Arc::default(), asked: Arc::default() }
    }

    fn carried(&self) -> Vec<Ask> {
        self.calls.lock().unwrap().iter().map(Call::ask).collect()
    }

    fn asked(&self) -> Vec<Ask> {
        self.asked.lock().unwrap().clone()
    }

    fn wanted(&self) -> Vec<bool> {
        self.calls.lock().unwrap().iter().map(Call::is_wanted).collect()
    }
}

#[async_trait]
impl LockBackend for Odd {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.asked.lock().unwrap().push(Ask::Acquire);
        LockBackend::acquire(&self.node, claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node.extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.asked.lock().unwrap().push(Ask::Release);
        LockBackend::release(&self.node, claim).await
    }

    fn keeps_order(&self) -> bool {
        self.fate == Fate::KeptInOrder
    }

    fn carrier(&self) -> Option<&dyn Carry> {
        Some(self)
    }
}

impl Carry for Odd {
    fn carries(&self, _: &Claim) -> bool {
        self.fate != Fate::Asked
    }

    fn carry(&self, call: Call) {
        match self.fate {
            Fate::Kept | Fate::KeptInOrder => self.calls.lock().unwrap().push(call),
            Fate::Dropped => drop(call),
            Fate::Panic => panic!("on purpose"),
            Fate::Asked => unreachable!(),
        }
    }
}

/// The first node is odd, the others carry.
fn with_an_odd_node(nodes: usize, fate: Fate) -> (World, Odd, LockManager) {
    let world = World::new(nodes);
    let odd = Odd::new(&world.nodes[0], fate);
    let mut all: Vec<Box<dyn LockBackend>> = vec![Box::new(odd.clone())];
    all.extend(world.nodes[1..].iter().map(|node| Box::new(node.carrying()) as _));
    // A node is carried to once it has told who it is, or that it never will.
    let manager = LockManager::builder(world.sim.clone(), all).build().unwrap();
    drop(world.sim.block_on(manager.lock("first")).unwrap());
    world.sim.advance(SECOND);
    let released = std::mem::take(&mut *odd.calls.lock().unwrap());
    released.into_iter().for_each(|call| call.answer(Ok(Vote::Granted)));
    odd.asked.lock().unwrap().clear();
    (world, odd, manager)
}

#[test]
fn a_lock_over_carriers_is_taken_and_given_back() {
    let world = World::carrying(5);
    let manager = world.manager();
    for _ in 0..2 {
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        assert!(guard.is_valid());
        world.catch_up();
        assert_eq!(world.holders("r"), 5);
        assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
        world.catch_up();
        assert_eq!(world.keys_left(), 0);
    }
    assert_eq!(world.log.operations().len(), 20);
}

#[test]
fn c5_a_cancelled_call_leaves_no_key_behind_a_carrier() {
    let world = World::carrying(5);
    let manager = world.manager();
    drop(world.sim.block_on(manager.lock("first")).unwrap());
    world.sim.settle();
    world.nodes.iter().for_each(|node| node.inject(Fault::Slow(10 * MS)));
    for polls in 1..4 {
        let lock = manager.lock("r");
        assert!(world.sim.block_on_for(lock, polls).is_none());
        world.sim.settle();
        assert_eq!(world.keys_left(), 0);
    }
}

#[test]
fn a_call_that_was_dropped_is_a_failure_that_is_told() {
    for fate in [Fate::Dropped, Fate::Panic] {
        let (world, _, manager) = with_an_odd_node(3, fate);
        world.nodes[1].inject(Fault::Dead);
        let error = world.sim.block_on(manager.try_lock("r")).unwrap_err();
        assert!(matches!(error, LockError::NoQuorum { .. }), "{error}");
        assert!(error.to_string().contains("let go of the call"), "{error}");
    }
}

#[test]
fn what_is_not_carried_is_asked_for() {
    let (world, odd, manager) = with_an_odd_node(1, Fate::Asked);
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    assert_eq!(world.holders("r"), 1);
    assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
    assert_eq!(world.keys_left(), 0);
    assert_eq!((odd.carried(), odd.asked()), (vec![], vec![Ask::Acquire, Ask::Release]));
}

#[test]
fn c3_the_release_goes_behind_a_carried_acquire_and_after_it_was_given_up() {
    for answered in [true, false] {
        let (world, odd, manager) = with_an_odd_node(3, Fate::Kept);
        let guard = world.sim.block_on(manager.lock("r").ttl(10 * SECOND)).unwrap();
        assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
        world.sim.advance(SECOND);
        assert_eq!((odd.carried(), odd.wanted()), (vec![Ask::Acquire], vec![false]));
        assert_eq!(odd.asked(), [], "the release waits");
        if answered {
            let call = odd.calls.lock().unwrap().remove(0);
            call.answer(Ok(Vote::Granted));
            world.sim.advance(Duration::ZERO);
        } else {
            world.sim.advance(10 * SECOND);
            // The cleanup bound has passed.
        }
        assert_eq!(odd.asked(), [Ask::Release]);
    }
}

#[test]
fn c3_a_release_that_is_carried_in_order_does_not_wait_for_the_acquire_in_front_of_it() {
    let (world, odd, manager) = with_an_odd_node(3, Fate::KeptInOrder);
    let guard = world.sim.block_on(manager.lock("r").ttl(10 * SECOND)).unwrap();
    assert_eq!((odd.carried(), odd.wanted()), (vec![Ask::Acquire], vec![true]));
    assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
    assert_eq!(odd.carried(), [Ask::Acquire, Ask::Release]);
    assert_eq!(odd.wanted(), [false, true], "an acquire that has not left must not leave");
    let calls = std::mem::take(&mut *odd.calls.lock().unwrap());
    calls.into_iter().for_each(|call| call.answer(Ok(Vote::Granted)));
    assert_eq!(world.sim.block_on(manager.settle(SECOND)), 0);
    assert_eq!(odd.asked(), []);
}

#[test]
fn c3_a_release_does_not_come_in_front_of_a_repair() {
    let (world, odd, manager) = with_an_odd_node(3, Fate::KeptInOrder);
    let guard = world.sim.block_on(manager.lock("r").ttl(10 * SECOND)).unwrap();
    let acquire = odd.calls.lock().unwrap().pop().unwrap();
    acquire.answer(Ok(Vote::Granted));
    odd.node.expire("r");
    odd.node.inject(Fault::Slow(100 * MS));
    world.sim.block_on(guard.extend()).unwrap();
    // The extension is refused, and the repair is under way.
    world.sim.advance(150 * MS);
    assert_eq!(odd.asked(), [Ask::Acquire]);
    assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
    assert_eq!((odd.carried(), odd.asked()), (vec![], vec![Ask::Acquire]), "the release waits");
    world.sim.advance(SECOND);
    assert_eq!(odd.asked(), [Ask::Acquire, Ask::Release]);
}

#[test]
fn an_answer_to_a_call_that_was_given_up_changes_nothing() {
    let (world, odd, manager) = with_an_odd_node(3, Fate::Kept);
    let guard = world.sim.block_on(manager.lock("r").ttl(SECOND)).unwrap();
    drop(guard);
    world.sim.advance(10 * SECOND);
    assert_eq!((odd.wanted(), odd.asked()), (vec![false], vec![Ask::Release]));
    let calls = std::mem::take(&mut *odd.calls.lock().unwrap());
    calls.into_iter().for_each(|call| call.answer(Ok(Vote::Granted)));
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
}

/// The acquire in front of it may have come through, though nobody has heard so.
#[test]
fn c3_a_release_that_failed_behind_a_carried_acquire_is_sent_again() {
    let breaks = || Err(BackendError::new(BackendErrorKind::Connection, "it broke"));
    for (acquire_fails, times) in [(true, 1), (false, 3)] {
        let (world, odd, manager) = with_an_odd_node(3, Fate::KeptInOrder);
        let guard = world.sim.block_on(manager.lock("r").ttl(10 * SECOND)).unwrap();
        assert_eq!(world.sim.block_on(guard.release()).unwrap(), Released::Held);
        let mut acquire = Some(odd.calls.lock().unwrap().remove(0));
        if acquire_fails {
            acquire.take().into_iter().for_each(|call| call.answer(breaks()));
            world.catch_up();
        }
        for _ in 0..times {
            assert_eq!(odd.carried(), [Ask::Release], "the acquire fails: {acquire_fails}");
            odd.calls.lock().unwrap().remove(0).answer(breaks());
            world.sim.advance(SECOND);
        }
        assert_eq!(odd.carried(), [Ask::Release], "the acquire fails: {acquire_fails}");
    }
}

#[test]
fn c3_a_release_that_failed_behind_a_carried_acquire_is_sent_again_though_all_have_answered() {
    let breaks = || Err(BackendError::new(BackendErrorKind::Connection, "it broke"));
    let (world, odd, manager) = with_an_odd_node(3, Fate::KeptInOrder);
    let guard = world.sim.block_on(manager.lock("r").ttl(10 * SECOND)).unwrap();
    world.catch_up();
    for node in &world.nodes[1..] {
        node.inject(Fault::Late(10 * MS));
    }
    let mut release = Box::pin(guard.release());
    assert!(world.sim.block_on_for(release.as_mut(), 1).is_none());
    let calls = std::mem::take(&mut *odd.calls.lock().unwrap());
    assert_eq!(calls.len(), 2);
    calls.into_iter().for_each(|call| call.answer(breaks()));
    assert_eq!(world.sim.block_on(release).unwrap(), Released::Held);
    world.sim.advance(SECOND);
    assert_eq!(odd.carried(), [Ask::Release]);
}
