//! The leases that a manager holds: the list, and the gauge.

use std::cell::Cell;

use quorate_core::LockManager;
use quorate_memory::Fault;

use super::figures::{count, recorder};
use crate::world::{MS, SECOND, World};

/// The names of the leases, sorted.
fn names(manager: &LockManager) -> Vec<String> {
    let leases = manager.leases();
    let mut names: Vec<String> = leases.iter().map(|lease| lease.keys()[0].to_string()).collect();
    names.sort();
    names
}

/// Each way in which a lease begins and ends.
#[test]
fn leases_are_those_that_are_held_now_and_the_gauge_counts_them() {
    let (snapshotter, recorder) = recorder();
    metrics::with_local_recorder(&recorder, || {
        let world = World::new(3);
        let (sim, manager, other) = (&world.sim, world.manager(), world.manager());
        let lock = |name: &str| sim.block_on(manager.lock(name)).unwrap();
        let gauge = Cell::new(0);
        let assert_held = |expected: &[&str], more: usize| {
            assert_eq!(names(&manager), expected);
            gauge.set(gauge.get() + count(&snapshotter, "leases"));
            assert_eq!(gauge.get(), (expected.len() + more) as i64, "{expected:?}");
        };
        assert_held(&[], 0);
        // A request that fails is none, and another manager's lease is not in the list.
        let theirs = sim.block_on(other.lock("theirs")).unwrap();
        sim.block_on(manager.lock("theirs").no_wait()).unwrap_err();
        assert_held(&[], 1);
        let (released, dropped, detached) = (lock("released"), lock("dropped"), lock("detached"));
        let forgotten = lock("forgotten");
        forgotten.auto_renew();
        std::mem::forget(forgotten);
        let denied = lock("denied");
        let limited = sim.block_on(manager.lock("limited").hold_limit(2 * SECOND)).unwrap();
        limited.auto_renew();
        let all = ["denied", "detached", "dropped", "forgotten", "limited", "released"];
        assert_held(&all, 1);
        sim.block_on(released.extend()).unwrap();
        assert_held(&all, 1);
        // While its keys are still being released, a lease has ended.
        world.nodes[0].inject(Fault::Hung);
        drop(dropped);
        sim.block_on(released.release()).unwrap();
        assert_held(&["denied", "detached", "forgotten", "limited"], 1);
        world.nodes[0].heal();
        let record = detached.detach().unwrap();
        assert_held(&["denied", "forgotten", "limited"], 1);
        // An adoption that is won, and dropped before it hears of that.
        world.inject(.., Fault::Late(MS));
        let mut adopts = Box::pin(manager.adopt(&record));
        assert!(sim.block_on_for(adopts.as_mut(), 1).is_none());
        sim.advance(MS);
        assert_held(&["denied", "detached", "forgotten", "limited"], 1);
        drop(adopts);
        assert_held(&["denied", "forgotten", "limited"], 1);
        world.heal();
        let adopted = sim.block_on(manager.adopt(&record)).unwrap();
        assert_held(&["denied", "detached", "forgotten", "limited"], 1);
        sim.block_on(other.delete("denied")).unwrap();
        assert_held(&["denied", "detached", "forgotten", "limited"], 1);
        sim.block_on(denied.extend()).unwrap_err();
        assert_held(&["detached", "forgotten", "limited"], 1);
        // By its hold limit, and then by time, though nothing looks at the lease.
        sim.advance(2 * SECOND);
        assert_held(&["detached", "forgotten"], 1);
        sim.advance(10 * SECOND);
        assert_held(&["forgotten"], 0);
        drop((limited, adopted, denied, theirs));
        assert_held(&["forgotten"], 0);
        assert!(sim.block_on(manager.close(SECOND)).is_clean());
        assert_held(&[], 0);
    });
}
