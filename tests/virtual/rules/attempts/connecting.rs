//! The first call to a node connects. Until the node has answered once, its connect limit counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorate_core::operators::LockState;
use quorate_core::{LockBackend, LockManager};
use quorate_memory::{Fault, MemoryNode, Observed, Operation};

use crate::world::{HOUR, MS, SECOND, World, failing, failure_of};

/// The connect limit of all nodes.
const LIMIT: Duration = Duration::from_secs(1);

/// A new process whose connects to the nodes take these times.
fn process(world: &World, takes: [Duration; 3]) -> LockManager {
    let client = world.sim.client(0);
    let nodes = world.nodes.iter().zip(takes);
    world.over(nodes.map(|(node, takes)| node.seen_by(&client).connecting(takes, LIMIT)))
}

/// Nodes a round trip of 150 ms away, on which it takes four of them to connect.
fn far() -> (World, [Duration; 3]) {
    let world = World::complete(3);
    world.inject(.., Fault::Slow(150 * MS));
    (world, [600 * MS; 3])
}

/// What does not wait for a holder makes one round or asks once.
/// Rules Q5, O1, C8.
#[test]
fn a_new_process_far_away_is_answered_at_its_first_call() {
    let (world, takes) = far();
    let new = || process(&world, takes);
    drop(world.try_lock(&new()).unwrap());
    world.advance(SECOND);
    assert!(world.run(new().try_lock("r")).unwrap().is_some());
    assert!(world.run(new().lock("f").fenced().no_wait()).is_ok());
    assert!(world.run(new().read("s").no_wait()).is_ok());
    let once = new().once_per("job", HOUR, async |_| Ok::<_, ()>(1));
    assert_eq!(world.run(once).unwrap(), Some(Ok(1)));
    let other = new();
    let again = other.once_per("job", HOUR, async |_| Ok::<_, ()>(2));
    assert_eq!(world.run(again).unwrap(), None);
    assert_eq!(world.run(new().inspect("free")).unwrap().state(), LockState::Free);
    assert!(world.run(new().check()).can_lock());
    assert!(world.run(new().revoke("free")).unwrap().found().nodes().len() == 3);
    world.advance(HOUR);

    let record = world.try_lock(&new()).unwrap().detach().unwrap();
    let adopted = world.run(new().adopt(&record)).unwrap();
    let record = adopted.detach().unwrap();
    world.run(new().release(&record)).unwrap();
    world.advance(SECOND);
    assert_eq!(world.holders("r"), 0);
}

/// Rules Q2, Q5.
#[test]
fn a_node_that_never_connects_costs_a_first_call_its_connect_limit_at_most() {
    let world = World::complete(3);
    let new = || process(&world, [MS, MS, HOUR]);
    let took = |begun: Duration| world.sim.elapsed() - begun;
    let begun = world.sim.elapsed();
    let manager = new();
    let guard = world.try_lock(&manager).unwrap();
    assert_eq!(took(begun), MS, "two of three decide");
    drop(guard);
    let report = world.run(manager.close(HOUR));
    assert!(report.is_clean(), "nothing was sent there: {report}");
    assert!(took(begun) <= LIMIT + MS, "{:?}", took(begun));
    assert_eq!(world.keys_left(), 0);

    let begun = world.sim.elapsed();
    assert_eq!(world.run(new().inspect("r")).unwrap().state(), LockState::Free);
    assert_eq!(took(begun), LIMIT);
    world.run(world.try_lock(&world.manager()).unwrap().release()).unwrap();
    world.inject(1.., Fault::Dead);
    let begun = world.sim.elapsed();
    failure_of(world.try_lock(&new()));
    assert!(took(begun) <= LIMIT + 2 * MS, "{:?}", took(begun));
}

/// A round without a quorum ends after a node timeout, if each node was connected before.
/// Rule Q5.
#[test]
fn a_node_that_was_connected_has_a_node_timeout() {
    let world = World::complete(3);
    let manager = process(&world, [600 * MS; 3]);
    world.run(world.try_lock(&manager).unwrap().release()).unwrap();
    world.inject(1.., Fault::Hung);
    for asks in [true, false] {
        let begun = world.sim.elapsed();
        match asks {
            true => drop(world.run(manager.inspect("r"))),
            false => drop(failure_of(world.try_lock(&manager))),
        }
        // And the undo.
        let took = world.sim.elapsed() - begun;
        assert!((500 * MS..=SECOND).contains(&took), "{asks}: {took:?}");
        if asks {
            assert_eq!(took, 500 * MS);
        }
    }
}

/// The votes of the connected nodes are split, or the caller waits no longer.
/// Rules Q2, O8.
#[test]
fn a_round_that_is_contested_or_cut_short_waits_for_no_connect() {
    let world = World::complete(3);
    world.occupy(..1);
    let acquires = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&acquires);
    world.nodes[1].observe(move |observed| {
        let is_acquire = matches!(observed, Observed::Sent { operation: Operation::Acquire, .. });
        count.fetch_add(is_acquire.into(), Ordering::Relaxed);
    });
    let manager = process(&world, [MS, MS, 900 * MS]);
    let _ = world.try_lock(&manager);
    assert!(acquires.load(Ordering::Relaxed) > 1, "a round follows the other");

    let world = World::complete(3);
    let manager = process(&world, [900 * MS; 3]);
    let failure = failure_of(world.run(manager.lock("r").timeout(700 * MS)));
    assert_eq!(failure.waited(), 700 * MS);
    assert!(world.try_lock(&manager).is_ok(), "the connect has gone on");
}

/// What a round says of the nodes is right as well: they answer.
#[test]
fn a_node_that_connects_is_not_silent_before_its_limit() {
    let (world, takes) = far();
    let manager = process(&world, [MS, MS, takes[2]]);
    let guard = world.try_lock(&manager).unwrap();
    drop(guard);
    world.advance(400 * MS);
    assert!(manager.readiness().nodes().iter().all(|node| node.failure.is_none()));
    let report = world.run(manager.close(HOUR));
    assert_eq!((report.to_string(), world.keys_left()), ("all released".into(), 0));
    let node: &MemoryNode = &world.nodes[0];
    assert_eq!(node.connect_limit(), Duration::ZERO, "it is there");
}

/// A renewal has time for another try, whatever is known of the third node.
/// Rules T3, Q5.
#[test]
fn a_renewal_is_tried_again_while_a_node_connects() {
    for takes in [MS, HOUR] {
        let world = World::complete(3);
        let manager = process(&world, [MS, MS, takes]);
        if takes == MS {
            world.run(world.run(manager.lock("other")).unwrap().release()).unwrap();
            world.inject(2.., Fault::Hung);
        }
        let guard = world.run(manager.lock("r").ttl(SECOND)).unwrap();
        guard.auto_renew();
        world.advance(200 * MS);
        world.inject(1..2, failing("LOADING"));
        world.advance(150 * MS);
        world.nodes[1].heal();
        world.advance(2 * SECOND);
        assert!(guard.is_valid(), "{takes:?}");
    }
}
