//! Readers hold a lock together, and a writer holds it alone: their keys, and the features of a reader.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use quorate_core::backend::Capabilities;
use quorate_core::{
    AdoptError, DetachedLock, InvalidRequest, LockError, LockManager, LockRequest,
    operators::{KeyState, LockState},
};
use quorate_memory::{Effect, MemoryNode, Operation, Rule, Value};

use super::{is_held, read};
use crate::waiting::processes::Scene;
use crate::world::{HOUR, MS, SECOND, World};

/// Each way to ask, on each kind of node, with each of the two first.
#[test]
fn rw5_a_lock_excludes_readers_and_readers_a_lock() {
    type Ask = fn(&LockManager) -> LockRequest;
    let asks: [Ask; 3] = [
        |locks| locks.lock("r").no_wait(),
        |locks| locks.lock(["q", "r"]).no_wait(),
        |locks| locks.lock("r").fenced().no_wait(),
    ];
    for world in World::kinds(3) {
        let [one, other] = [world.manager(), world.manager()];
        for ask in asks {
            let reading = world.run(one.read("r")).unwrap();
            let second = world.run(other.read(["r", "s"])).unwrap();
            assert!(is_held(world.run(ask(&other))));
            assert!(is_held(world.run(ask(&one))), "in the same manager as well");
            world.run(reading.release()).unwrap();
            assert!(is_held(world.run(ask(&one))));
            world.run(second.release()).unwrap();
            let guard = world.run(ask(&other)).unwrap();
            for locks in [&one, &other] {
                assert!(is_held(world.run(locks.read("r").no_wait())));
                assert!(is_held(world.run(locks.read(["r", "z"]).no_wait())));
            }
            world.run(guard.release()).unwrap();
        }
        world.advance(20 * SECOND);
        let is_lock = |key: &Vec<u8>| !key.starts_with(b"quorate:");
        assert!(!world.nodes.iter().flat_map(MemoryNode::keys).any(|key| is_lock(&key)));
    }
}

#[test]
fn rw5_readers_are_guarded_against_restarts() {
    let world = World::complete(3);
    let guarded = || world.builder().restart_guard(20 * SECOND).build().unwrap();
    let [one, other] = [guarded(), guarded()];
    let error = world.run(one.read("r").no_wait()).unwrap_err();
    assert!(error.to_string().contains("quarantined for another"), "{error}");
    world.advance(20 * SECOND);
    let reading = world.run(one.read("r")).unwrap();
    world.nodes[0].flush();
    world.nodes[1].restart();
    assert!(!is_held(world.run(other.lock("r").no_wait())), "two nodes are quarantined");
    let second = world.run(other.read("r").no_wait()).unwrap_err();
    assert!(second.failure().unwrap().failed_nodes().count() >= 2, "{second}");
    drop(reading);
}

/// A reader dies, while others go on.
#[test]
fn rw6_the_death_of_a_reader_costs_its_own_ttl() {
    let (scene, [dead, alive, writer]) = Scene::new(3).and_processes();
    std::mem::forget(scene.run(read(&dead).ttl(2 * SECOND)).unwrap());
    dead.client.kill();
    let reading = scene.run(read(&alive).ttl(60 * SECOND).auto_renew()).unwrap();
    let seen = |scene: &Scene| scene.run(writer.locks.inspect("r")).unwrap().readers().len();
    assert_eq!(seen(&scene), 2);
    scene.advance(2 * SECOND);
    assert_eq!(seen(&scene), 1);
    scene.run(reading.extend()).unwrap();
    scene.run(reading.release()).unwrap();
    let guard = scene.run(writer.locks.lock("r").no_wait()).unwrap();
    scene.run(guard.release()).unwrap();
}

#[test]
fn rw7_the_key_lives_as_long_as_its_last_reader() {
    let (world, manager) = World::new(3).and_manager();
    let left = || world.nodes[0].time_left("r");
    let long = world.run(manager.read("r").ttl(HOUR)).unwrap();
    let short = world.run(manager.read("r").ttl(10 * SECOND)).unwrap();
    assert_eq!(left(), Some(HOUR));
    world.run(long.release()).unwrap();
    assert_eq!(left(), Some(10 * SECOND), "the hour went with its reader");
    world.advance(4 * SECOND);
    let third = world.run(manager.read("r").ttl(8 * SECOND)).unwrap();
    assert_eq!(left(), Some(8 * SECOND));
    world.run(short.extend_to(20 * SECOND)).unwrap();
    assert_eq!(left(), Some(20 * SECOND));
    world.run(short.extend_to(12 * SECOND)).unwrap();
    assert_eq!(left(), Some(20 * SECOND), "H2");
    world.run(short.release()).unwrap();
    assert_eq!(left(), Some(8 * SECOND));
    world.run(third.release()).unwrap();
    assert_eq!(left(), None);
}

/// A connection may carry a release twice.
#[test]
fn rw7_a_repeated_release_touches_no_other_reader() {
    let (world, manager) = World::new(3).and_manager();
    world.add_rule(.., Rule::new(Effect::Duplicate(5 * MS)).on(Operation::Release));
    let [one, two] = [(); 2].map(|()| world.run(manager.read("r")).unwrap());
    world.run(one.release()).unwrap();
    world.advance(10 * MS);
    world.run(two.extend()).unwrap();
    world.run(two.release()).unwrap();
}

#[test]
fn rw8_an_ordered_set_of_another_program_is_never_written_to() {
    // The time is the score of a rate limiter, as it is that of readers.
    let theirs = [(b"request-1".to_vec(), 5), (b"request-2".to_vec(), u64::from(u32::MAX))];
    let theirs = Value::OrderedSet(theirs.into());
    for has_ttl in [false, true] {
        let world = World::new(3);
        world.nodes.iter().for_each(|node| match has_ttl {
            true => node.put_for("r", theirs.clone(), HOUR),
            false => node.put("r", theirs.clone()),
        });
        let manager = world.manager();
        for names in [&["r"][..], &["q", "r"]] {
            let error = world.run(manager.read(names).no_wait()).unwrap_err();
            let mut failed = error.failure().unwrap().failed_nodes();
            let is_foreign = |text: String| text.contains("is not a lock of quorate");
            assert!(failed.all(|node| is_foreign(node.to_string())), "{error}");
        }
        assert!(world.run(manager.lock("r").no_wait()).unwrap_err().is_held());
        assert!(!world.run(manager.revoke("r")).unwrap().is_effective());
        assert!(!world.run(manager.delete("r")).unwrap().is_effective());
        let state =
            |node: &quorate_core::operators::NodeView| matches!(node.state, KeyState::Failed(_));
        assert!(world.run(manager.inspect("r")).unwrap().nodes().iter().all(state));
        world.advance(20 * SECOND);
        assert!(world.nodes.iter().all(|node| node.get("r").as_ref() == Some(&theirs)));
        let left = has_ttl.then_some(HOUR - 20 * SECOND);
        assert!(world.nodes.iter().all(|node| node.time_left("r") == left));
        assert_eq!(world.keys_left(), 3);
    }
}

/// Users can read what `real/readers.rs` shows of a program of 0.1.
#[test]
fn rw9_the_changelog_and_the_guide_say_to_upgrade_first() {
    let changelog = include_str!("../../../../CHANGELOG.md");
    let page = include_str!("../../../../crates/quorate/docs/sharing.md");
    for text in [changelog, page] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("Upgrade all processes before the first `read`"));
    }
}

#[test]
fn a_reader_has_what_a_lock_has() {
    let world = World::complete(3);
    let [one, other] = [world.manager(), world.manager()];
    // `with`, and a label.
    let seen = world.run(one.read("r").label("web-3").with(async |lease| {
        assert!(lease.is_valid());
        other.inspect("r").await.unwrap()
    }));
    let seen = seen.unwrap();
    assert_eq!((seen.state(), seen.label()), (LockState::Held, Some("web-3")));
    let line = "held by 1 reader (\"web-3\") on 3 of 3 nodes, 2 needed, 10.0s left";
    assert_eq!(seen.to_string(), line);
    assert_eq!(world.holders("r"), 0);
    // `detach` and `adopt`.
    let record = world.run(one.read("r")).unwrap().detach().unwrap().encode();
    assert!(record.starts_with("quorate4:"));
    let second = world.run(one.read("r")).unwrap();
    let adopted = world.run(other.adopt(&record.parse::<DetachedLock>().unwrap())).unwrap();
    let seen = world.run(other.inspect("r")).unwrap();
    assert_eq!(seen.readers().len(), 2);
    assert_eq!(seen.to_string(), "held by 2 readers on 3 of 3 nodes, 2 needed, 10.0s left");
    world.run(second.release()).unwrap();
    // `revoke`: it cannot be extended, and is free when its ttl has passed.
    world.advance(2 * SECOND);
    let revocation = world.run(other.revoke("r")).unwrap();
    assert!(revocation.is_effective());
    assert_eq!(revocation.free_in(), 8 * SECOND);
    assert!(world.run(adopted.extend()).is_err() && !adopted.is_valid());
    assert!(is_held(world.run(one.read("r").no_wait())));
    world.advance(8 * SECOND);
    // `keep` keeps writers out.
    world.run(world.run(one.read("r")).unwrap().keep(HOUR)).unwrap();
    world.advance(HOUR - SECOND);
    assert!(is_held(world.run(other.lock("r").no_wait())));
    world.run(world.run(other.read("r")).unwrap().release()).unwrap();
    world.advance(SECOND);
    drop(world.run(other.lock("r").no_wait()).unwrap());
}

#[test]
fn a_reader_is_refused_what_it_cannot_have_before_anything_is_sent() {
    let (world, manager) = World::complete(3).and_manager();
    let shared = |error| matches!(error, LockError::Invalid(InvalidRequest::Shared { .. }));
    assert!(shared(world.run(manager.read("r").fenced()).unwrap_err()));
    assert!(shared(world.run(manager.read("r").lead(async |_| ())).unwrap_err()));
    let record = world.run(manager.read("r")).unwrap().detach().unwrap();
    world.nodes.iter().for_each(MemoryNode::flush);
    let lacking = World { lacks: Capabilities::SHARED, ..world };
    let manager = lacking.manager();
    let calls = lacking.log.calls().len();
    let error = lacking.run(manager.read("r")).unwrap_err();
    assert_eq!(error.to_string(), "memory-1 keeps no readers");
    let error = lacking.run(manager.adopt(&record)).unwrap_err();
    assert!(
        matches!(error, AdoptError::Lock(LockError::Invalid(InvalidRequest::Readers { .. }))),
        "{error}"
    );
    assert_eq!(lacking.log.calls().len(), calls);
}

/// Many readers and writers, on nodes without a wait queue as well: each gets its turn, and nothing is left.
#[test]
fn rw5_readers_and_writers_never_meet() {
    for world in World::kinds(3) {
        let state = Arc::<Mutex<(usize, usize)>>::default();
        world.add_rule(.., Rule::new(Effect::Delay { least: MS, most: 5 * MS }));
        world.add_rule(.., Rule::new(Effect::DropReply).on(Operation::Acquire).chance(50_000));
        let tasks = (0..12).map(|number| {
            let (locks, sim, state) = (world.manager(), world.sim.clone(), Arc::clone(&state));
            async move {
                for _ in 0..5 {
                    let writes = number % 4 == 0;
                    let request = if writes { locks.lock("r") } else { locks.read("r") };
                    let guard = request.timeout(HOUR).auto_renew().await.unwrap();
                    let change = |by: usize| {
                        let mut state = state.lock().unwrap();
                        let one = if writes { &mut state.1 } else { &mut state.0 };
                        *one = one.wrapping_add(by);
                        let (readers, writers) = *state;
                        assert!(writers == 0 || writers == 1 && readers == 0, "{state:?}");
                    };
                    change(1);
                    sim.sleep(30 * MS).await;
                    change(usize::MAX);
                    drop(guard);
                }
            }
        });
        world.run(join_all(tasks));
        world.advance(20 * SECOND);
        assert_eq!(world.keys_left(), 0);
    }
}
