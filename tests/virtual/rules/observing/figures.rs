//! The figures that a recorder is given.

use std::collections::BTreeMap;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use quorate_memory::Fault;

use crate::world::{MS, World, failing};

/// The count of one figure since the last look.
pub(super) fn count(snapshotter: &Snapshotter, name: &str) -> i64 {
    figures(snapshotter).get(name).map_or(0, |values| values[0])
}

pub(super) fn recorder() -> (Snapshotter, DebuggingRecorder) {
    let recorder = DebuggingRecorder::new();
    (recorder.snapshotter(), recorder)
}

/// All figures since the last look: name and labels, and the count, the change of a gauge, or the measured values in
/// milliseconds.
pub(super) fn figures(snapshotter: &Snapshotter) -> BTreeMap<String, Vec<i64>> {
    let figures = snapshotter.snapshot().into_vec().into_iter();
    let named = figures.map(|(key, unit, description, value)| {
        assert!(unit.is_some() && description.is_some(), "{key:?} is described");
        let mut name = key.key().name().strip_prefix("quorate_").unwrap().to_owned();
        for label in key.key().labels() {
            name = format!("{name} {}", label.value());
        }
        let values = match value {
            DebugValue::Counter(count) => vec![count as i64],
            DebugValue::Gauge(value) => vec![value.0 as i64],
            DebugValue::Histogram(values) => {
                values.into_iter().map(|value| (value.0 * 1e3).round() as i64).collect()
            }
        };
        (name, values)
    });
    named.filter(|(_, values)| *values != [0_i64; 1] || values.is_empty()).collect()
}

#[test]
fn the_metrics_of_a_story_are_right() {
    let (snapshotter, recorder) = recorder();
    metrics::with_local_recorder(&recorder, || {
        let world = World::new(3);
        let (manager, sim) = (world.manager(), &world.sim);
        world.inject(.., Fault::Slow(10 * MS));
        let guard = sim.block_on(manager.lock("r")).unwrap();
        sim.block_on(world.manager().lock("r").no_wait()).unwrap_err();
        sim.advance(1_970 * MS);
        sim.block_on(guard.extend()).unwrap();
        world.nodes[0].inject(failing("LOADING"));
        sim.advance(1_010 * MS);
        sim.block_on(guard.release()).unwrap();
        sim.settle();
        world.nodes[0].heal();
        world.nodes[2].inject(Fault::Hung);
        let guard = sim.block_on(manager.lock("r")).unwrap();
        sim.block_on(guard.lost());
        drop(guard);
        sim.settle();
    });
    let figures = figures(&snapshotter);
    let figure = |name: &str| figures.get(name).map_or(&[][..], Vec::as_slice);
    for (name, values) in [
        ("acquired_total", &[2_i64][..]),
        ("not_acquired_total held", &[1]),
        ("rounds_lost_total held", &[1]),
        ("lost_total expired", &[1]),
        ("extensions_total extended", &[1]),
        ("releases_total released", &[1]),
        ("releases_total dropped", &[1]),
        // The second needs the node that is still slow, too.
        ("wait_seconds", &[10, 10]),
        ("hold_seconds", &[3_000, 9_388]),
        ("node_votes_total memory-1 acquire granted", &[2]),
        ("node_votes_total memory-1 acquire refused", &[1]),
        ("node_votes_total memory-1 extend granted", &[1]),
        ("node_votes_total memory-3 acquire silent", &[1]),
        // The other two were answered: behind a hung acquire, a pool sends no release.
        ("node_votes_total memory-3 release granted", &[1]),
        ("node_votes_total memory-3 release refused", &[1]),
        ("node_latency_seconds memory-2 acquire", &[10, 10, 10]),
        // One was given up.
        ("node_latency_seconds memory-3 acquire", &[10, 10]),
        ("node_latency_seconds memory-2 extend", &[10]),
    ] {
        assert_eq!(figure(name), values, "{name}: {figures:#?}");
    }
    assert_eq!(figure("validity_left_seconds"), [8_378]);
    assert!(figure("node_votes_total memory-1 release failed")[0] > 1, "it is sent again");
}
