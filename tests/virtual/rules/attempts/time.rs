//! T1, T2, T4 and T5. T3 is in `settings.rs`.

use std::fs;
use std::path::Path;

use futures_util::FutureExt;
use quorate_core::{LockError, Runtime};
use quorate_memory::Fault;

use crate::world::{Client, MS, SECOND, World, validity};

#[test]
fn t1_validity_counts_from_before_the_first_byte() {
    let world = World::new(5);
    world.inject(.., Fault::Slow(300 * MS));
    let before = world.sim.now();
    let guard = world.try_lock(&world.manager()).unwrap();
    assert_eq!(world.sim.elapsed(), 300 * MS);
    assert_eq!(guard.valid_until(), before + validity(10 * SECOND));
}

#[test]
fn t1_validity_counts_from_the_round_that_was_won() {
    let (world, manager) = World::new(5).and_manager();
    let _other = world.run(manager.lock("r").ttl(3 * SECOND)).unwrap();
    let guard = world.lock(&manager);
    assert!(world.sim.elapsed() > 2 * SECOND, "the other lease has ended before");
    assert_eq!(guard.remaining(), validity(10 * SECOND));
}

/// The caller is busy elsewhere until its validity is over, when its keys are still there, or for longer. Its next
/// round is not refused by them.
#[test]
fn t2_a_win_that_its_caller_takes_too_late_is_a_loss() {
    let rows = [(false, 930 * MS), (false, 5 * SECOND), (true, 930 * MS), (true, 5 * SECOND)];
    for (world, (waits, late)) in
        World::KINDS.into_iter().flat_map(|new| rows.map(|row| (new, row)))
    {
        let world = world(3);
        world.inject(.., Fault::Late(10 * MS));
        let request = world.manager().lock("r").ttl(SECOND);
        let request = if waits { request } else { request.no_wait() };
        let acquiring = world.begun(request);
        world.advance(late);
        match world.run(acquiring) {
            Ok(guard) => {
                assert!(waits && guard.remaining() > 800 * MS);
                assert!(world.sim.elapsed() < late + 50 * MS, "{:?}", world.sim.elapsed());
                assert_eq!(world.holders("r"), 3);
                world.run(guard.release()).unwrap();
            }
            Err(LockError::NoQuorum(_)) => assert!(!waits),
            Err(error) => panic!("{error}"),
        }
        world.advance(SECOND);
        assert_eq!(world.keys_left(), 0);
    }
}

/// All scripts that a node is ever sent.
#[test]
fn t4_the_protocol_has_no_absolute_expiry() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/quorate-protocol/scripts");
    let scripts: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(scripts.len() >= 10, "{scripts:?}");
    for script in scripts {
        let text = fs::read_to_string(&script).unwrap().to_uppercase();
        for absolute in ["PXAT", "EXAT", "EXPIREAT"] {
            assert!(!text.contains(absolute), "{absolute} in {script:?}");
        }
        // The wait queue knows the server's time, and no lock depends on that. The ends of readers are counted by the
        // clock by which the server expires keys.
        let knows_time = ["queue_refresh.lua", "has_writers.lua", "shared.lua", "seen_at.lua"];
        let name = script.file_name().unwrap().to_string_lossy();
        assert!(knows_time.contains(&&*name) || !text.contains("\'TIME\'"), "{script:?}");
    }
}

/// Rule T4.
#[test]
fn t5_a_timer_that_fires_early_decides_nothing() {
    let world = World::new(3);
    world.inject(.., Fault::Slow(490 * MS));
    let mut restless = Client::new(&world.sim);
    restless.is_restless = true;
    let manager = world.builder().runtime(restless).build().unwrap();
    assert!(world.try_lock(&manager).is_ok());
}

/// The votes have come, and the task is polled late.
#[test]
fn t5_votes_that_are_there_count_before_the_clock() {
    let world = World::new(3);
    world.inject(.., Fault::Late(10 * MS));
    let request = world.begun(world.manager().lock("r").no_wait());
    world.advance(3 * SECOND);
    assert!(matches!(request.now_or_never(), Some(Ok(_))));
}
