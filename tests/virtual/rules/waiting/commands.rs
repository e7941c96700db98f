//! W4: what a wait costs, in commands to all nodes together.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::LockGuard;
use quorate_core::backend::Capabilities;
use quorate_memory::{Fault, Operation, Sim, Value};
use quorate_protocol::error_of_reply;

use super::contest::Contest;
use super::processes::{Process, Queue, Quirk, Scene};
use crate::world::{HOUR, MS, SECOND, World};

/// How long is counted.
const SECONDS: u32 = 10;

/// A lock that is held for long, and processes that wait for it.
struct LongHold {
    scene: Scene,
    holder: Process,
    guard: Arc<LockGuard>,
    waiters: Vec<Process>,
}

impl LongHold {
    fn new(waiters: usize, quirk: Quirk) -> Self {
        let scene = Scene::with(5, Sim::new(7), quirk);
        let Queue { scene, holder, guard, waiters, .. } =
            Queue::new(scene, waiters, MS, |_| 600 * SECOND);
        scene.advance(2 * SECOND);
        Self { scene, holder, guard: guard.into(), waiters }
    }

    /// Processes that wait to read, with so many tasks each.
    fn of_readers(processes: usize, tasks: usize) -> Self {
        let hold = Self::new(0, Quirk::default());
        let waiters: Vec<Process> = (0..processes).map(|_| hold.scene.process()).collect();
        for waiter in waiters.iter().flat_map(|waiter| std::iter::repeat_n(waiter, tasks)) {
            let request = waiter.locks.read("r").timeout(600 * SECOND);
            waiter.spawn(async move { drop(request.await) });
            hold.scene.advance(5 * MS);
        }
        hold.scene.advance(2 * SECOND);
        Self { waiters, ..hold }
    }

    /// What each waiter sends in a second, on average.
    fn commands_per_second(&self) -> Vec<f64> {
        self.scene.forget_sent();
        self.scene.advance(SECONDS * SECOND);
        let sent = |waiter: &Process| self.scene.sent_by(waiter) as f64 / f64::from(SECONDS);
        self.waiters.iter().map(sent).collect()
    }

    fn assert_at_most(&self, most: f64, story: &str) {
        let commands = self.commands_per_second();
        // One more, of which the interval lies partly before.
        let most = most + 1.0 / f64::from(SECONDS);
        assert!(commands.iter().all(|one| *one <= most), "{story}: {commands:?}");
        assert!(commands.iter().all(|one| *one >= 1.0), "each looks on: {story}: {commands:?}");
        assert!(self.guard.is_valid());
    }
}

/// Locks in as many processes, or all readers of so many processes together, however many they are.
#[test]
fn w4_a_wait_costs_at_most_two_commands_a_second_and_ten_while_others_write_the_key() {
    let locks = [1, 8].map(|waiters| (waiters, 0, 10.0));
    // A refresh that is due may come in between.
    let readers = [(1, 1), (1, 20), (4, 1), (4, 5)].map(|(waiters, tasks)| (waiters, tasks, 10.4));
    for (waiters, readers, most) in locks.into_iter().chain(readers) {
        let hold = match readers {
            0 => LongHold::new(waiters, Quirk::default()),
            _ => LongHold::of_readers(waiters, readers),
        };
        let story = format!("{waiters} processes, with {readers} readers each");
        hold.assert_at_most(2.0, &story);
        assert_eq!(hold.scene.count(Operation::Acquire), 0, "nobody attempts: {story}");
        let gate = hold.scene.gate("r");
        assert!(hold.scene.sent().iter().all(|sent| sent.node == gate), "one node is asked");
        let (client, guard) = (hold.holder.client.clone(), Arc::clone(&hold.guard));
        hold.holder.spawn(async move {
            loop {
                client.sleep(Duration::from_micros(2_500)).await;
                guard.extend().await.unwrap();
            }
        });
        hold.scene.advance(SECOND);
        hold.assert_at_most(most, &story);
    }
}

/// Readers that hold it renew all the time, each of which is a push. One writer waits for them, and readers wait behind it.
#[test]
fn w4_a_wait_for_readers_costs_a_look_for_each_change_and_one_behind_a_writer_no_more_than_another()
{
    for readers in [1, 8] {
        let (scene, [reading]) = Scene::new(5).and_processes();
        let guards: Vec<LockGuard> = (0..readers)
            .map(|_| scene.run(reading.locks.read("r").ttl(60 * SECOND)).unwrap())
            .collect();
        for guard in guards {
            let client = reading.client.clone();
            reading.spawn(async move {
                loop {
                    client.sleep(Duration::from_millis(20)).await;
                    guard.extend().await.unwrap();
                }
            });
        }
        let writer = scene.process();
        let _written = writer.hold_once("r", MS);
        scene.advance(SECOND);
        let behind = scene.process();
        for _ in 0..5 {
            let request = behind.locks.read("r").timeout(600 * SECOND);
            behind.spawn(async move { drop(request.await) });
        }
        scene.advance(2 * SECOND);
        scene.forget_sent();
        scene.advance(SECONDS * SECOND);
        let each = |process: &Process| scene.sent_by(process) as f64 / f64::from(SECONDS);
        let (first, second) = (each(&writer), each(&behind));
        // Looks are 10 ms apart, and a refresh that is due may come in between.
        assert!((1.0..=101.5).contains(&first), "{readers}: {first} commands a second");
        assert!((1.0..=2.1).contains(&second), "{readers}: {second} commands a second");
    }
}

/// Its watch is evicted, the gate does not know the lock, or a key without a ttl is in the way.
#[test]
fn w4_a_waiter_does_not_spin_when_its_wait_is_in_vain() {
    type Make = fn(&LongHold);
    let restarts: Make = |hold| hold.scene.nodes[hold.scene.gate("r")].restart();
    let put: Make = |hold| {
        let value = Value::String(b"another program's".to_vec());
        hold.scene.nodes.iter().for_each(|node| node.put("r", value.clone()));
    };
    for (evicts_watches, make, most) in
        [(true, (|_| ()) as Make, 10.0), (false, restarts, 25.0), (false, put, 25.0)]
    {
        for waiters in [1, 4, 8] {
            let hold = LongHold::new(waiters, Quirk { evicts_watches, ..Quirk::default() });
            make(&hold);
            hold.scene.advance(SECOND);
            hold.assert_at_most(most, &format!("{waiters} waiters, {evicts_watches}"));
        }
    }
}

#[test]
fn w4_a_waiter_does_not_spin_when_nodes_fail() {
    let loading = error_of_reply("LOADING Redis is loading the dataset in memory");
    for fault in [Fault::Dead, Fault::Hung, Fault::Failing(loading)] {
        for failing in [1, 3, 5] {
            let hold = LongHold::new(2, Quirk::default());
            let gate = hold.scene.gate("r");
            for number in 0..failing {
                hold.scene.nodes[(gate + number) % 5].inject(fault.clone());
            }
            hold.scene.advance(2 * SECOND);
            hold.commands_per_second();
            // The undo is sent again to nodes that fail, until the cleanup bound.
            let waits =
                hold.scene.sent().into_iter().filter(|sent| sent.operation != Operation::Release);
            let each = waits.count() as f64 / SECONDS as f64 / 2.0;
            assert!(each <= 20.0, "{failing} nodes: {fault:?}: {each} commands a second");
        }
    }
}

#[test]
fn w4_a_change_of_holder_costs_at_most_eight_commands_of_those_who_wait() {
    for processes in [2, 8, 12] {
        let mut contest = Contest::new(5, MS);
        (0..processes).for_each(|_| contest.join(1));
        let figures = contest.figures(SECOND);
        // Five nodes are asked to acquire, and to release.
        assert!(figures.sent <= 10.0 + 8.0, "{processes} processes: {figures:?}");
        assert!(figures.acquires < 5.5, "most attempts are won: {processes}: {figures:?}");
    }
}

/// Of processes without pushes, the first one asks each 40 ms, and the others each refresh.
#[test]
fn w4_a_process_without_pushes_costs_more_while_it_is_first_alone() {
    for reads in [false, true] {
        let hold = LongHold::new(0, Quirk::default());
        let polls = || hold.scene.process_on(|node| node.without(Capabilities::WATCH));
        // Readers next to each other would all be first.
        let waiters: Vec<Process> = (0..if reads { 1 } else { 4 }).map(|_| polls()).collect();
        for waiter in &waiters {
            let locks = &waiter.locks;
            let request = if reads { locks.read("r") } else { locks.lock("r") };
            let request = request.timeout(600 * SECOND).into_future();
            waiter.spawn(async move { drop(request.await) });
            hold.scene.advance(5 * MS);
        }
        hold.scene.advance(5 * SECOND);
        let commands = LongHold { waiters, ..hold }.commands_per_second();
        assert!((1.0..=25.1).contains(&commands[0]), "reads: {reads}: {commands:?}");
        assert!(commands[1..].iter().all(|one| *one <= 2.1), "reads: {reads}: {commands:?}");
    }
}

/// By chance after up to a second, of a lock and of a reader.
#[test]
fn w4_a_wait_without_a_wait_queue_is_about_two_rounds_a_second() {
    for reads in [false, true] {
        for world in [World::new(3), World::in_order(3)] {
            let _held = world.run(world.manager().lock("r").ttl(HOUR)).unwrap();
            let manager = world.manager();
            let before = world.log.count("acquire");
            let request = if reads { manager.read("r") } else { manager.lock("r") };
            let waited = world.run(request.timeout(30 * SECOND));
            assert!(waited.is_err_and(|error| error.is_held()));
            let rounds = (world.log.count("acquire") - before) / 3;
            assert!((40..=100).contains(&rounds), "reads: {reads}: {rounds} rounds in 30 s");
        }
    }
}
