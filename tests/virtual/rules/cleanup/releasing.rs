//! C7: what a release reports, and that it is sent again.

use super::*;
use crate::world::Plain;

fn assert_gone(released: Result<(), ReleaseError>) {
    assert!(matches!(released, Err(ReleaseError::Lost(Lost::NotHeld(_)))), "{released:?}");
}

#[test]
fn c7_releasing_an_expired_lease_is_reported() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.sim.advance(11 * SECOND);
    let released = world.sim.block_on(guard.release());
    assert!(matches!(released, Err(ReleaseError::Lost(Lost::Expired { .. }))), "{released:?}");
}

#[test]
fn c7_releasing_a_lease_that_a_quorum_forgot_is_reported() {
    let world = World::new(5);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    for node in &world.nodes[..3] {
        node.restart();
    }
    assert_gone(world.sim.block_on(guard.release()));
    world.catch_up();

    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    for node in &world.nodes[..2] {
        node.restart();
    }
    world.sim.block_on(guard.release()).unwrap();
}

#[test]
fn a_release_without_a_quorum_is_an_error_that_names_the_nodes() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.nodes[0].inject(Fault::Dead);
    world.nodes[1].inject(Fault::Dead);
    let Err(ReleaseError::Unconfirmed(failure)) = world.sim.block_on(guard.release()) else {
        panic!("two of three are dead");
    };
    let text = failure.to_string();
    assert!(text.contains("memory-1: connection refused"), "{text}");
    assert!(text.contains("memory-2: connection refused"), "{text}");
}

#[test]
fn c7_held_is_only_said_if_a_quorum_says_so() {
    let world = World::new(5);
    let first = world.sim.block_on(world.manager().lock("r")).unwrap();
    for node in &world.nodes[2..] {
        node.restart();
    }
    let second =
        world.sim.block_on(world.manager().lock("r").no_wait()).expect("three have forgotten");
    assert_gone(world.sim.block_on(first.release()));
    world.sim.block_on(second.release()).unwrap();
}

#[test]
fn c7_too_few_answers_leave_a_release_unconfirmed() {
    let world = World::new(5);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.nodes[0].restart();
    world.nodes[3].inject(Fault::Hung);
    world.nodes[4].inject(Fault::Hung);
    let released = world.sim.block_on(guard.release());
    assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))), "{released:?}");
    assert_eq!(world.sim.elapsed(), 500 * MS, "one node timeout");
}

/// For drift and safety margin the nodes still have it, but the lease has ended.
#[test]
fn c7_an_expired_lease_is_reported_though_the_nodes_still_have_it() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.sim.advance(guard.remaining());
    assert_eq!(world.holders("r"), 3);
    let released = world.sim.block_on(guard.release());
    assert!(matches!(released, Err(ReleaseError::Lost(Lost::Expired { .. }))), "{released:?}");
}

#[test]
fn c7_a_release_that_meets_a_blip_is_sent_again() {
    for awaited in [true, false] {
        let world = World::new(3);
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        for node in &world.nodes {
            node.inject(Fault::Failing(error_of_reply("LOADING")));
        }
        if awaited {
            assert!(world.sim.block_on(guard.release()).is_err());
        } else {
            drop(guard);
        }
        world.sim.advance(SECOND);
        assert_eq!(world.keys_left(), 3);
        for node in &world.nodes {
            node.heal();
        }
        world.sim.advance(3 * SECOND);
        assert_eq!(world.keys_left(), 0, "awaited: {awaited}");
    }
}

#[test]
fn c7_a_release_that_failed_is_sent_again_only_where_the_lock_may_be() {
    let world = World::new(3);
    world.nodes[0].put("r", Value::String(b"x".to_vec()));
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    world.catch_up();
    let before = world.log.calls().len();
    for node in &world.nodes[..2] {
        node.inject(Fault::Failing(error_of_reply("LOADING")));
    }
    drop(world.sim.block_on(guard.release()));
    world.sim.advance(5 * SECOND);
    let released = |node: &MemoryNode| {
        let calls = world.log.calls().split_off(before);
        calls.iter().filter(|call| call.node == node.name()).count()
    };
    let released: Vec<usize> = world.nodes.iter().map(released).collect();
    assert_eq!((released[0], released[2]), (1, 1), "{released:?}");
    assert!(released[1] > 3, "{released:?}");
}

#[test]
fn c7_a_release_that_failed_is_sent_again_at_the_cleanup_bound_at_the_latest() {
    let world = World::new(1);
    let manager = world.builder().ttl(SECOND).cleanup_bound(100 * MS).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.nodes[0].inject(Fault::Failing(error_of_reply("LOADING")));
    drop(guard);
    world.sim.advance(20 * MS);
    world.nodes[0].heal();
    world.sim.advance(80 * MS);
    assert_eq!(world.keys_left(), 0);
}

/// The process that detached it had its grant there.
#[test]
fn a_lock_that_was_adopted_is_released_again_where_that_failed() {
    let world = World::new(3);
    let manager = world.manager();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    world.catch_up();
    world.nodes[2].inject(Fault::Down);
    let record = guard.detach().unwrap();
    let guard = world.sim.block_on(manager.adopt(&record)).unwrap();
    world.sim.block_on(guard.release()).unwrap();
    world.sim.advance(SECOND);
    world.nodes[2].heal();
    world.sim.advance(2 * SECOND);
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn c7_a_release_that_failed_is_sent_again_though_another_node_hangs() {
    for awaited in [true, false] {
        let world = World::new(3);
        let manager = world.manager();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        world.catch_up();
        world.nodes[0].inject(Fault::Hung);
        world.nodes[1].inject(Fault::Failing(error_of_reply("LOADING")));
        if awaited {
            drop(world.sim.block_on(guard.release()));
        } else {
            drop(guard);
        }
        world.sim.advance(100 * MS);
        world.nodes[1].heal();
        world.sim.advance(SECOND);
        assert!(world.nodes[1].keys().is_empty(), "awaited: {awaited}");
        assert!(world.sim.block_on(manager.lock("r").no_wait()).is_ok());
    }
}

/// A1: the runtime ends, and drops what it was given.
#[test]
fn a1_a_release_ends_though_the_runtime_drops_it() {
    #[derive(Debug)]
    struct Ending(Sim, AtomicBool);

    impl Runtime for Ending {
        fn now(&self) -> Instant {
            self.0.now()
        }

        fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
            Box::pin(self.0.sleep_until(deadline))
        }

        fn spawn(&self, task: BoxFuture<'static, ()>) {
            if !self.1.load(Ordering::Relaxed) {
                self.0.spawn(task);
            }
        }

        fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
            self.0.fill_random(bytes)
        }
    }

    let world = World::complete(3);
    let runtime = Arc::new(Ending(world.sim.clone(), AtomicBool::new(false)));
    let nodes = world.nodes.iter().cloned().map(Plain);
    let manager = LockManager::builder(nodes).runtime(Arc::clone(&runtime)).build().unwrap();
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    runtime.1.store(true, Ordering::Relaxed);
    let released = world.sim.block_on(guard.release());
    assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))), "{released:?}");
}
