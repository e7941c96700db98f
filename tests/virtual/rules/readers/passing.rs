//! A writer waits, and readers come and go: how long it waits, and how many of them go first.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate_core::Runtime;
use quorate_memory::{Effect, Rule, Sim};

use super::read;
use crate::waiting::processes::{Process, Quirk, Scene, from};
use crate::world::{MS, SECOND};

/// The longest hold of a reader.
const HOLD: u32 = 40;

/// A number below `bound`.
fn below(process: &Process, bound: u32) -> u32 {
    let mut bytes = [0; 4];
    process.client.fill_random(&mut bytes).unwrap();
    u32::from_le_bytes(bytes) % bound
}

/// When each reader began to hold.
type Reads = Arc<Mutex<Vec<Instant>>>;

/// Reads again and again.
fn reads(process: &Process, reads: &Reads) {
    let (reader, reads) = (process.clone(), Arc::clone(reads));
    process.spawn(async move {
        loop {
            let guard = read(&reader).await.unwrap();
            reads.lock().unwrap().push(reader.client.now());
            reader.client.sleep(below(&reader, HOLD) * MS).await;
            guard.release().await.unwrap();
            reader.client.sleep(below(&reader, 2) * MS).await;
        }
    });
}

fn note(worst: &Mutex<(Duration, usize)>, waited: Duration, passed: usize) {
    let mut worst = worst.lock().unwrap();
    *worst = (worst.0.max(waited), worst.1.max(passed));
}

/// The longest wait of a writer, and the most readers that came while one waited and went first.
fn writes(scene: &Scene, writers: &[Process], reads: &Reads, until: Duration) -> (Duration, usize) {
    let worst = Arc::<Mutex<(Duration, usize)>>::default();
    for writer in writers {
        let (process, reads, worst) = (writer.clone(), Arc::clone(reads), Arc::clone(&worst));
        writer.spawn(async move {
            loop {
                process.client.sleep(below(&process, 300) * MS).await;
                let asked = process.client.now();
                let guard = process.lock("r").await.unwrap();
                let waited = process.client.now() - asked;
                // Its entry is in the queue a few round trips after it has asked.
                let queued = asked + 5 * MS;
                let passed = reads.lock().unwrap().iter().filter(|at| **at > queued).count();
                reads.lock().unwrap().clear();
                note(&worst, waited, passed);
                process.client.sleep(MS).await;
                guard.release().await.unwrap();
            }
        });
    }
    scene.advance(until);
    *worst.lock().unwrap()
}

/// Rule RW1.
#[test]
fn readers_that_come_and_go_pass_no_writer() {
    for (seed, readers, writers, seconds) in [(1, 2, 1, 60), (2, 8, 1, 10), (3, 6, 3, 5)] {
        let scene = Scene::with(3, Sim::new(seed), Quirk::default());
        let log = Reads::default();
        let readers: Vec<_> = (0..readers).map(|_| scene.process()).collect();
        readers.iter().for_each(|reader| reads(reader, &log));
        let writers: Vec<_> = (0..writers).map(|_| scene.process()).collect();
        let (waited, passed) = writes(&scene, &writers, &log, seconds * SECOND);
        assert!(waited < writers.len() as u32 * 100 * MS, "seed {seed}: {waited:?}");
        assert!(passed <= readers.len() * writers.len(), "seed {seed}: {passed} readers");
    }
}

/// Its attempt reaches the nodes 60 ms after the push. Readers that come find a free lock until then.
/// Rule RW1.
#[test]
fn a_writer_that_is_slow_is_not_passed() {
    let scene = Scene::new(3);
    let [first, writer, second] = [(); 3].map(|()| scene.process());
    let reading = scene.run(read(&first)).unwrap();
    let written = writer.hold_once("r", MS);
    scene.advance(100 * MS);
    let way = 60 * MS;
    for node in &scene.nodes {
        node.add_rule(Rule::new(Effect::Delay { least: way, most: way }).client(&writer.client));
    }
    scene.run(reading.release()).unwrap();
    let reading = scene.run(read(&second)).unwrap();
    let at = second.client.now();
    scene.run(reading.release()).unwrap();
    scene.advance(SECOND);
    assert!(from(&written) < at, "the writer was first");
}
