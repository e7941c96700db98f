//! A process that was stopped, or whose runtime was blocked, reports it when it runs again.

use std::time::Duration;

use quorate_core::LockManager;

use super::figures::{count, recorder};
use crate::telling::{of, told};
use crate::world::{Client, MS, SECOND, World};

/// The node timeout of the ttl of 10 s.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// The `late` of each report, where the process does this with a lease that is renewed. All of them are counted.
fn reported(play: impl FnOnce(&World, &Client, &LockManager)) -> Vec<String> {
    let world = World::complete(3);
    let runtime = Client::new(&world.sim);
    let (snapshotter, recorder) = recorder();
    let told = told(|| {
        metrics::with_local_recorder(&recorder, || {
            let manager = world.builder().runtime(runtime.clone()).build().unwrap();
            play(&world, &runtime, &manager);
        });
    });
    let told = of("process stopped", &told);
    assert!(told.iter().all(|told| told.level == tracing::Level::WARN));
    assert_eq!(count(&snapshotter, "stops_total"), told.len() as i64);
    told.iter().map(|told| told.field("late").to_owned()).collect()
}

#[test]
fn a_stop_of_more_than_a_node_timeout_is_reported_once() {
    for (stop, expected) in [
        (Duration::ZERO, &[][..]),
        (NODE_TIMEOUT, &[]),
        (NODE_TIMEOUT + MS, &["501.0ms"]),
        (4 * SECOND, &["4.0s"]),
        // Beyond the end of the lease.
        (100 * SECOND, &["100.0s"]),
    ] {
        // With so many leases that they are served in several batches.
        for leases in [1, 300] {
            let late = reported(|world, runtime, manager| {
                let held: Vec<_> = (0..leases)
                    .map(|lease| world.run(manager.lock(format!("r{lease}")).auto_renew()).unwrap())
                    .collect();
                world.advance(SECOND);
                runtime.pause(stop);
                world.advance(20 * SECOND);
                drop(held);
            });
            assert_eq!(late, expected, "{stop:?} with {leases} leases");
        }
    }
}
