//! Which gates a reader asks, in a process that does not know the nodes yet, and of several names.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use quorate_core::LockRequest;
use quorate_memory::Value;

use super::is_held;
use crate::waiting::processes::{Process, ROUND_TRIP, Scene};
use crate::world::{MS, SECOND, slow};

/// How long a node takes that answers after the round.
const LATE: Duration = Duration::from_micros(700);

/// The gate answers last. The others are enough for a refusal.
/// Rule W2.
#[test]
fn a_new_process_waits_in_the_queue_of_the_others() {
    for number in 0..24 {
        let (scene, name) = (Scene::new(3), format!("r{number}"));
        let [holder, one, other] = [(); 3].map(|()| scene.process());
        let _held = scene.run(holder.lock(&name).ttl(60 * SECOND)).unwrap();
        let _waits = one.hold_once(&name, MS);
        scene.advance(SECOND);
        let gate = scene.gate(&name);
        scene.nodes[gate].add_rule(slow(LATE).client(&other.client));
        let _waits = other.hold_once(&name, MS);
        scene.advance(10 * MS);
        match scene.nodes[gate].get(format!("{name}:quorate:waiters")) {
            Some(Value::OrderedSet(entries)) => assert_eq!(entries.len(), 2, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// A request of `process` that reads two names.
fn read_both(process: &Process) -> LockRequest {
    process.locks.read(["a", "b"]).timeout(600 * SECOND)
}

/// Four processes read two names without a pause, half a second each.
/// Rule RW1.
#[test]
fn a_writer_of_any_of_several_names_waits_for_the_readers_that_are_there() {
    for names in [&["a"][..], &["b"], &["a", "b"], &["b", "c"]] {
        let scene = Scene::new(3);
        for number in 0..4_u32 {
            let reader = scene.process();
            let process = reader.clone();
            reader.spawn(async move {
                process.client.sleep(number * 125 * MS).await;
                loop {
                    let guard = read_both(&process).await.unwrap();
                    process.client.sleep(500 * MS).await;
                    guard.release().await.unwrap();
                }
            });
        }
        scene.advance(2 * SECOND);
        for _ in 0..5 {
            let writer = scene.process();
            let start = scene.sim.elapsed();
            let request = writer.locks.lock(names.to_vec()).timeout(20 * SECOND);
            let guard = scene.run(request).unwrap();
            let waited = scene.sim.elapsed() - start;
            assert!(waited < 700 * MS, "{names:?}: {waited:?}");
            scene.run(guard.release()).unwrap();
            scene.advance(700 * MS);
        }
    }
}

/// Writers of both names come again and again, and readers of both as well: all of them go on.
/// Rule RW1.
#[test]
fn readers_of_several_names_and_writers_of_each_take_turns() {
    let scene = Scene::new(3);
    let counts = Arc::new([(); 4].map(|()| AtomicUsize::new(0)));
    for (at, name) in [None, None, Some("a"), Some("b")].into_iter().enumerate() {
        let (process, counts) = (scene.process(), Arc::clone(&counts));
        let own = process.clone();
        process.spawn(async move {
            loop {
                let request = name.map_or_else(|| read_both(&own), |name| own.lock(name));
                let guard = request.await.unwrap();
                counts[at].fetch_add(1, Relaxed);
                own.client.sleep(5 * MS).await;
                guard.release().await.unwrap();
            }
        });
    }
    scene.advance(20 * SECOND);
    let counts: Vec<usize> = counts.iter().map(|count| count.load(Relaxed)).collect();
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

/// Its entry expires 2 s after its last refresh, for readers that wait for no holder as well.
/// Rule RW1.
#[test]
fn a_writer_that_was_killed_keeps_readers_out_for_2_s() {
    for readers_hold in [true, false] {
        let (scene, [holder, writer, reader]) = Scene::new(3).and_processes();
        let request = if readers_hold { holder.locks.read("r") } else { holder.locks.lock("r") };
        let held = scene.run(request.ttl(60 * SECOND)).unwrap();
        let written = writer.hold_once("r", MS);
        scene.advance(1500 * MS);
        writer.client.kill();
        let kept = if readers_hold {
            Some(held)
        } else {
            scene.run(held.release()).unwrap();
            None
        };
        let killed = scene.sim.elapsed();
        let (mut is_out, mut refused) = (true, 0);
        while is_out {
            let read = scene.run(reader.locks.read("r").no_wait());
            is_out = is_held(read);
            refused += 1;
            scene.advance(50 * MS);
        }
        let waited = scene.sim.elapsed() - killed;
        assert!(refused > 10 && waited < 2500 * MS, "{readers_hold}: {waited:?}");
        assert!(written.lock().unwrap().is_none());
        drop(kept);
    }
}

/// The error of a reader that gives way: to a writer that waits for another client, or for a lease of its own manager.
#[test]
fn a_reader_that_gives_way_says_to_whom() {
    let (scene, [first, writer, second]) = Scene::new(3).and_processes();
    let _reading = scene.run(first.locks.read("r").ttl(60 * SECOND)).unwrap();
    let _written = writer.hold_once("r", MS);
    scene.advance(SECOND);
    for timeout in [Duration::ZERO, SECOND] {
        for (process, text, is_local) in [
            (&second, "r: held by another client: a writer waits", false),
            (&first, "r: held: a writer waits, and it waits for a lease of this manager", true),
        ] {
            let error = scene.run(process.locks.read("r").timeout(timeout)).unwrap_err();
            assert_eq!(error.to_string(), text);
            assert_eq!(error.failure().map(|failure| failure.is_local()), Some(is_local));
            assert_eq!(error.held_by(), None, "the queue has no labels");
        }
    }
}

/// A release has said that others wait: readers of another process. So a reader of this one competes at once.
/// Rule RW1.
#[test]
fn a_reader_does_not_queue_for_a_release_that_says_that_readers_wait() {
    let (scene, [first, second]) = Scene::new(3).and_processes();
    // Only a release of a name that was released before asks.
    for _ in 0..2 {
        let held = scene.run(first.locks.lock("r")).unwrap();
        let request = second.locks.read("r");
        second.spawn(async move { drop(request.await.unwrap()) });
        scene.advance(SECOND);
        scene.run(held.release()).unwrap();
        scene.advance(MS);
    }
    let start = scene.sim.elapsed();
    drop(scene.run(first.locks.read("r")).unwrap());
    assert_eq!(scene.sim.elapsed() - start, ROUND_TRIP);
}
