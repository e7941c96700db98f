//! W4: what a wait costs, in commands to all nodes together.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::LockGuard;
use quorate_memory::{Fault, Operation, Sim, Value};
use quorate_protocol::error_of_reply;

use super::contest::Contest;
use super::processes::{Process, Queue, Quirk, Scene};
use crate::world::{MS, SECOND};

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

#[test]
fn w4_a_wait_costs_at_most_two_commands_a_second() {
    for waiters in [1, 8] {
        let hold = LongHold::new(waiters, Quirk::default());
        hold.assert_at_most(2.0, &format!("{waiters} waiters"));
        assert_eq!(hold.scene.count(Operation::Acquire), 0, "nobody attempts");
        let gate = hold.scene.gate("r");
        assert!(hold.scene.sent().iter().all(|sent| sent.node == gate), "one node is asked");
    }
}

#[test]
fn w4_a_waiter_does_not_spin_when_others_write_the_key() {
    for waiters in [1, 8] {
        let hold = LongHold::new(waiters, Quirk::default());
        let (client, guard) = (hold.holder.client.clone(), Arc::clone(&hold.guard));
        hold.holder.spawn(async move {
            loop {
                client.sleep(Duration::from_micros(2_500)).await;
                guard.extend().await.unwrap();
            }
        });
        hold.scene.advance(SECOND);
        hold.assert_at_most(10.0, &format!("{waiters} waiters"));
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
