//! Readers and writers, and their order. `asking` is the answer of the gate, `gates` which gates are
//! asked, `sets` what is at the nodes, and what a reader has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::{LockError, LockGuard, LockRequest, Runtime};
use quorate_memory::{Fault, Operation, Value};

use crate::waiting::processes::{Process, Scene, from};
use crate::world::{MS, SECOND, World, slow};

mod asking;
mod gates;
mod sets;

/// A request of a reader that waits for as long as a test takes.
fn read(process: &Process) -> LockRequest {
    process.locks.read("r").timeout(600 * SECOND)
}

/// Reads in the background for `hold`, and counts the readers that hold it now, at the most.
fn read_once(process: &Process, hold: Duration, together: &Arc<[AtomicUsize; 2]>) {
    let (client, request) = (process.client.clone(), read(process));
    let together = Arc::clone(together);
    process.spawn(async move {
        let guard = request.await.unwrap();
        let now = together[0].fetch_add(1, Ordering::Relaxed) + 1;
        together[1].fetch_max(now, Ordering::Relaxed);
        client.sleep_until(client.now() + hold).await;
        together[0].fetch_sub(1, Ordering::Relaxed);
        guard.release().await.unwrap();
    });
}

/// The entries in the wait queue of "r".
fn entries(scene: &Scene) -> usize {
    match scene.nodes[scene.gate("r")].get("r:quorate:waiters") {
        Some(Value::OrderedSet(entries)) => entries.len(),
        other => panic!("{other:?}"),
    }
}

fn is_held(error: Result<LockGuard, LockError>) -> bool {
    matches!(error, Err(error) if error.is_held())
}

#[test]
fn rw1_a_reader_gives_way_to_a_writer_that_waits() {
    let (scene, [first, writer, second]) = Scene::new(3).and_processes();
    let reading = scene.run(read(&first)).unwrap();
    let written = writer.hold_once("r", 50 * MS);
    scene.advance(5 * MS);
    // Others read, and it would be granted. It waits for no holder, so it is held. In its first round, a process learns
    // which node is the gate.
    for _ in 0..2 {
        assert!(is_held(scene.run(second.locks.read("r").no_wait())));
    }
    let together = Arc::default();
    // Its process knows of the writer by now, so it makes no attempt.
    scene.forget_sent();
    read_once(&second, 50 * MS, &together);
    scene.advance(5 * MS);
    let asked = (Operation::Acquire, Some(second.client.id()));
    assert!(scene.sent().iter().all(|sent| (sent.operation, sent.process) != asked));
    // A task of the process that reads already gives way as well.
    read_once(&first, 50 * MS, &together);
    scene.advance(3 * SECOND);
    assert_eq!(together[1].load(Ordering::Relaxed), 0, "they wait behind the writer");
    assert!(reading.is_valid());
    scene.run(reading.release()).unwrap();
    scene.advance(20 * MS);
    assert!(written.lock().unwrap().is_none() && together[0].load(Ordering::Relaxed) == 0);
    scene.advance(80 * MS);
    assert!(written.lock().unwrap().is_some());
    assert_eq!(together[1].load(Ordering::Relaxed), 2, "and then both read");
    scene.advance(20 * SECOND);
    assert_eq!(scene.keys(), <[&str; 0]>::default());
}

/// For two ttls. What is there goes on and can be taken away, and nothing new is stored.
#[test]
fn rw4_readers_are_extended_while_the_nodes_are_full() {
    let (world, manager) = World::complete(3).and_manager();
    let reading = world.run(manager.read("r").auto_renew()).unwrap();
    let writing = world.run(manager.lock("w").auto_renew()).unwrap();
    world.inject(.., Fault::Full);
    world.advance(20 * SECOND);
    assert!(reading.is_valid() && writing.is_valid());
    let failed = world.run(manager.read("r").no_wait()).unwrap_err();
    assert!(failed.to_string().contains("OOM"), "{failed}");
    assert!(world.run(manager.revoke("r")).unwrap().is_effective());
    assert!(world.run(manager.delete("w")).unwrap().is_effective());
    world.advance(10 * SECOND);
    assert!(!reading.is_valid() && !writing.is_valid());
}

/// Ten tasks read without a pause, half a second each: in ten processes, in two, or in one.
#[test]
fn rw1_a_writer_among_ten_readers_waits_for_little_more_than_one_of_them() {
    for (gates, processes) in [(3, 10), (1, 10), (3, 2), (3, 1)] {
        let scene = Scene::new(gates);
        let processes: Vec<Process> = (0..processes).map(|_| scene.process()).collect();
        for number in 0..10_u32 {
            let process = &processes[number as usize % processes.len()];
            let request = read(process);
            let client = process.client.clone();
            process.spawn(async move {
                client.sleep_until(client.now() + number * 50 * MS).await;
                loop {
                    let guard = request.clone().await.unwrap();
                    client.sleep_until(client.now() + 500 * MS).await;
                    guard.release().await.unwrap();
                }
            });
        }
        let writer = scene.process();
        scene.advance(2 * SECOND);
        for _ in 0..5 {
            let asked = scene.sim.elapsed();
            let guard = scene.run(writer.lock("r").timeout(5 * SECOND)).unwrap();
            let waited = scene.sim.elapsed() - asked;
            assert!(waited < 1300 * MS, "{waited:?}, {gates} nodes, {}", processes.len());
            scene.run(guard.release()).unwrap();
            scene.advance(700 * MS);
        }
    }
}

/// The gate answers last: its answer that a writer waits is still heard.
#[test]
fn rw1_the_answer_of_a_slow_gate_is_waited_for() {
    let (scene, [first, writer, second]) = Scene::new(3).and_processes();
    let reading = scene.run(read(&first)).unwrap();
    let _written = writer.hold_once("r", 50 * MS);
    scene.advance(5 * MS);
    scene.nodes[scene.gate("r")].add_rule(slow(MS / 10).client(&second.client));
    for _ in 0..2 {
        assert!(is_held(scene.run(second.locks.read("r").no_wait())));
    }
    drop(reading);
    // The hint counts for a second.
    scene.advance(2 * SECOND);
    scene.forget_sent();
    assert!(scene.run(read(&second)).unwrap().is_valid());
    assert_eq!(scene.count(Operation::Queue), 0);
}

/// In the first round of a process as well.
#[test]
fn rw1_a_reader_asks_for_writers_with_its_acquire() {
    for nodes in [1, 3, 5] {
        let (scene, [reader]) = Scene::new(nodes).and_processes();
        for number in 0..10 {
            scene.forget_sent();
            let names = [format!("r{number}"), format!("s{number}")];
            let names = if number % 2 == 0 { &names[..1] } else { &names };
            let guard = scene.run(reader.locks.read(names.to_vec()).no_wait()).unwrap();
            scene.run(guard.extend()).unwrap();
            scene.run(guard.release()).unwrap();
            scene.advance(SECOND);
            let others = scene.sent().len() - scene.count(Operation::ServerId);
            assert_eq!(others, 3 * nodes, "{nodes} nodes, read {number}");
        }
    }
}

#[test]
fn rw2_readers_next_to_each_other_enter_together() {
    for (processes, tasks) in [(5, 1), (1, 5), (3, 2)] {
        let (scene, guard, [_]) = Scene::new(3).held();
        let together = Arc::default();
        let readers: Vec<Process> = (0..processes).map(|_| scene.process()).collect();
        for reader in &readers {
            for _ in 0..tasks {
                read_once(reader, 20 * MS, &together);
                scene.advance(5 * MS);
            }
        }
        scene.advance(3 * SECOND);
        assert_eq!(entries(&scene), processes, "readers of one process share an entry");
        let rounds = scene.count(Operation::Acquire) / 3;
        assert_eq!(rounds, 1 + processes, "the first one of a process has been refused");
        scene.run(guard.release()).unwrap();
        scene.advance(3 * MS);
        assert_eq!(together[1].load(Ordering::Relaxed), processes * tasks);
        scene.advance(20 * SECOND);
        assert_eq!(scene.keys(), <[&str; 0]>::default());
    }
}

/// A reader has given way to a writer, and the writer gives up. The gate's word that the lock is held is not meant for it.
#[test]
fn rw2_a_reader_behind_a_writer_that_gives_up_reads_beside_others() {
    let (scene, [first, writer, second]) = Scene::new(3).and_processes();
    let reading = scene.run(read(&first).auto_renew()).unwrap();
    let written = writer.hold_within("r", MS, SECOND);
    scene.advance(5 * MS);
    let together = Arc::default();
    read_once(&second, 20 * MS, &together);
    scene.advance(990 * MS);
    assert_eq!(together[1].load(Ordering::Relaxed), 0, "it waits behind the writer");
    scene.advance(15 * MS);
    assert_eq!(together[1].load(Ordering::Relaxed), 1, "the first one reads still");
    assert!(reading.is_valid() && written.lock().unwrap().is_none());
}

/// A reader that waits gives up, another one is not polled any more, and a process is killed.
#[test]
fn rw2_a_reader_that_is_gone_delays_no_other() {
    let (scene, guard, [holder, killed, reader]) = Scene::new(3).held();
    let together = Arc::default();
    read_once(&killed, 20 * MS, &together);
    let [dropped, unpolled] = [(); 2].map(|()| scene.begun(read(&reader)));
    read_once(&reader, 20 * MS, &together);
    scene.advance(SECOND);
    drop(dropped);
    scene.advance(10 * MS);
    assert_eq!(entries(&scene), 2, "the others wait on");
    killed.client.kill();
    scene.advance(SECOND);
    scene.run(guard.release()).unwrap();
    scene.advance(15 * MS);
    assert_eq!(together[1].load(Ordering::Relaxed), 1);
    // A future that is not polled holds up a writer until its entry expires.
    let written = holder.hold_once("r", MS);
    scene.advance(3 * SECOND);
    assert!(written.lock().unwrap().is_some());
    assert!(scene.run(unpolled).unwrap().is_valid());
}

/// A writer in front of it was killed. Its entry is gone with the reader that overtakes it.
#[test]
fn rw2_a_reader_takes_the_entry_of_a_killed_writer_along() {
    let (scene, guard, [_, killed, reader]) = Scene::new(3).held();
    let _killed = killed.hold_once("r", MS);
    scene.advance(5 * MS);
    let together = Arc::default();
    read_once(&reader, 60 * SECOND, &together);
    scene.advance(100 * MS);
    killed.client.kill();
    scene.run(guard.release()).unwrap();
    scene.advance(SECOND);
    assert_eq!(together[1].load(Ordering::Relaxed), 1);
    assert_eq!(scene.queued(), 0, "{:?}", scene.keys());
}

/// Those that had their turn are not polled, and go before or after others of their process have come.
#[test]
fn rw2_readers_that_leave_an_earlier_turn_do_not_part_those_that_came_later() {
    for goes_after in 0..=2 {
        let (scene, guard, [holder, reader]) = Scene::new(3).held();
        let mut unpolled = read(&reader).into_future().boxed();
        scene.keeps_waiting(&mut unpolled, SECOND);
        scene.run(guard.release()).unwrap();
        scene.advance(MS);
        let guard = scene.run(holder.locks.lock("r").ttl(60 * SECOND).no_wait()).unwrap();
        let (mut unpolled, together) = (Some(unpolled), Arc::default());
        for came in 0..=2 {
            unpolled.take_if(|_| goes_after == came);
            scene.advance(5 * MS);
            read_once(&reader, 20 * MS, &together);
            scene.advance(5 * MS);
        }
        scene.advance(3 * SECOND);
        assert_eq!(entries(&scene), 1, "they share an entry; gone after {goes_after}");
        scene.run(guard.release()).unwrap();
        scene.advance(3 * MS);
        assert_eq!(together[1].load(Ordering::Relaxed), 3);
        scene.advance(20 * SECOND);
        assert_eq!(scene.keys(), <[&str; 0]>::default());
    }
}

/// The gate has lost the key that the other nodes have.
#[test]
fn rw2_readers_that_are_refused_when_their_turn_comes_wait_on() {
    for readers in [1, 3] {
        let (scene, guard, [_, reader]) = Scene::new(3).held();
        let together = Arc::default();
        (0..readers).for_each(|_| read_once(&reader, 20 * MS, &together));
        scene.advance(SECOND);
        scene.forget_sent();
        scene.nodes[scene.gate("r")].expire("r");
        scene.advance(10 * SECOND);
        let rounds = scene.count(Operation::Acquire) / 3 / readers;
        assert!((1..=26).contains(&rounds), "{rounds} rounds of {readers} readers");
        scene.run(guard.release()).unwrap();
        scene.advance(SECOND);
        assert_eq!(together[1].load(Ordering::Relaxed), readers);
    }
}

/// The entry stays for the others, so its error waits for no leave.
#[test]
fn rw2_a_reader_that_gives_up_before_others_ends_at_its_timeout() {
    let (scene, _guard, [_, reader]) = Scene::new(3).held();
    read_once(&reader, MS, &Arc::default());
    scene.advance(5 * MS);
    let from = scene.sim.elapsed();
    assert!(is_held(scene.run(reader.locks.read("r").timeout(SECOND))));
    assert_eq!(scene.sim.elapsed() - from, SECOND);
    assert_eq!(entries(&scene), 1);
}

/// They come without a pause, also while the first readers of their process have their turn.
#[test]
fn rw1_readers_that_come_after_the_turn_of_their_process_wait_behind_a_writer() {
    let (scene, guard, [holder, reader, writer]) = Scene::new(3).held();
    let together = Arc::default();
    read_once(&reader, MS, &together);
    scene.advance(5 * MS);
    let written = writer.hold_once("r", MS);
    scene.advance(5 * MS);
    holder.spawn(guard.release().map(|released| released.unwrap()));
    for _ in 0..200 {
        read_once(&reader, MS, &together);
        scene.advance(MS / 10);
    }
    assert!(together[1].load(Ordering::Relaxed) > 0 && written.lock().unwrap().is_some());
}

#[test]
fn rw3_a_writer_waits_for_the_last_reader() {
    let (scene, [writer]) = Scene::new(3).and_processes();
    let readers = [(); 3].map(|()| scene.process());
    let mut guards: Vec<_> = readers.iter().map(|one| scene.run(read(one)).unwrap()).collect();
    scene.forget_sent();
    let written = writer.hold_once("r", 10 * MS);
    scene.advance(3 * SECOND);
    assert_eq!(scene.count(Operation::Acquire), 3, "for the gate, the lock is held");
    while let Some(guard) = guards.pop() {
        assert!(written.lock().unwrap().is_none());
        scene.run(guard.release()).unwrap();
        scene.advance(200 * MS);
    }
    assert!(written.lock().unwrap().is_some());
}

#[test]
fn rw4_an_extension_is_never_refused_for_a_waiter() {
    for nodes in [1, 3] {
        let (scene, [reader, writer]) = Scene::new(nodes).and_processes();
        let guard = scene.run(read(&reader)).unwrap();
        let renewed = scene.run(read(&reader).auto_renew()).unwrap();
        let written = writer.hold_once("r", 10 * MS);
        for _ in 0..8 {
            scene.advance(5 * SECOND);
            scene.run(guard.extend()).unwrap();
            assert!(renewed.is_valid() && written.lock().unwrap().is_none());
        }
        scene.run(guard.release()).unwrap();
        scene.run(renewed.release()).unwrap();
        scene.advance(SECOND);
        assert!(written.lock().unwrap().is_some());
    }
}

/// Its attempt reaches the nodes 60 ms after the push. Readers that come find a free lock until then.
/// Rule RW1.
#[test]
fn a_writer_that_is_slow_is_not_passed() {
    let (scene, [first, writer, second]) = Scene::new(3).and_processes();
    let reading = scene.run(read(&first)).unwrap();
    let written = writer.hold_once("r", MS);
    scene.advance(100 * MS);
    scene.add_rule(.., slow(60 * MS).client(&writer.client));
    scene.run(reading.release()).unwrap();
    let reading = scene.run(read(&second)).unwrap();
    let at = second.client.now();
    scene.run(reading.release()).unwrap();
    scene.advance(SECOND);
    assert!(from(&written) < at, "the writer was first");
}
