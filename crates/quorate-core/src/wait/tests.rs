//! Waiters at nodes that keep a wait queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use futures_util::FutureExt;

use self::stage::{Fake, MS, NODE_TIMEOUT, Stage, lost};
use self::time::{Driven, Slot};
use super::{LostRound, Wait};
use crate::backend::{BackendErrorKind, Capabilities};
use crate::config::Waiting;
use crate::resource::Key;

mod notified;
mod stage;
mod time;

const WATCH: Capabilities = Capabilities::WATCH;

/// The longest refresh interval.
const REFRESH: Duration = Duration::from_millis(805);

fn queue() -> Capabilities {
    Capabilities::ORDERED | Capabilities::QUEUE | WATCH
}

/// A stage whose nodes all keep queues.
fn ordered(nodes: usize) -> Stage {
    Stage::new(Waiting::Ordered, &vec![queue(); nodes])
}

/// A wait whose first attempt was refused.
fn refused(stage: &mut Stage) -> Wait {
    let mut wait = stage.begin(false);
    assert!(stage.is_ready(&mut wait), "the first attempt needs no reason");
    assert!(!resolves(stage, wait.next(Some(lost(1)))), "the lock is held");
    wait
}

/// Whether the future resolves without time. Then it is dropped.
fn resolves(stage: &mut Stage, future: impl Future<Output = ()>) -> bool {
    stage.resolves(&mut Driven::new(Box::pin(future)))
}

/// The hint that a win brings.
fn win(stage: &mut Stage, wait: Wait) -> Option<bool> {
    let hint = Arc::new(Slot::default());
    let slot = Arc::clone(&hint);
    wait.won(move |others_wait| slot.set(others_wait));
    stage.run();
    hint.take()
}

/// The gate of waits that begin now.
fn gate(stage: &Stage) -> &Fake {
    stage.node(stage.gates()[0])
}

fn hold(stage: &Stage) {
    gate(stage).hold(&stage.key());
}

fn free(stage: &Stage) {
    gate(stage).free(&stage.key());
}

#[test]
fn w2_the_lock_goes_from_entry_to_entry() {
    let mut stage = ordered(3);
    hold(&stage);
    let mut waits: Vec<Wait> = (0..4).map(|_| refused(&mut stage)).collect();
    assert_eq!(gate(&stage).entries(), 4);
    while !waits.is_empty() {
        free(&stage);
        let ready: Vec<bool> = waits.iter_mut().map(|wait| stage.is_ready(wait)).collect();
        assert!(ready[0], "the first waiter gets a push");
        assert!(ready[1..].iter().all(|is_ready| !is_ready), "a push wakes one waiter: {ready:?}");
        hold(&stage);
        let first = waits.remove(0);
        assert_eq!(win(&mut stage, first), Some(!waits.is_empty()), "the hint");
        assert!(waits.iter_mut().all(|wait| !stage.is_ready(wait)), "the lock is held again");
    }
}

#[test]
fn a_waiter_joins_before_its_first_attempt_if_others_wait() {
    let mut stage = ordered(1);
    hold(&stage);
    let mut earlier = refused(&mut stage);
    let mut wait = stage.begin(true);
    assert!(!stage.is_ready(&mut wait));
    assert!(wait.has_entry() && earlier.has_entry());
    free(&stage);
    assert!(!stage.is_ready(&mut wait), "it is not its turn");
    assert!(stage.is_ready(&mut earlier));
}

#[test]
fn a_wait_without_an_entry_sends_nothing() {
    let mut stage = ordered(1);
    let mut wait = stage.begin(false);
    assert!(stage.is_ready(&mut wait) && !wait.has_entry());
    assert_eq!(wait.gate(), Some(stage.gates()[0]));
    assert_eq!(win(&mut stage, wait), None, "there is no entry that could leave");
    let mut wait = stage.begin(false);
    assert!(stage.is_ready(&mut wait));
    drop(wait);
    stage.run();
    assert!(gate(&stage).log().is_empty());
}

#[test]
fn an_error_of_the_leave_is_no_hint() {
    let mut stage = ordered(1);
    hold(&stage);
    let mut wait = refused(&mut stage);
    gate(&stage).fail("leave", BackendErrorKind::Loading);
    free(&stage);
    assert!(stage.is_ready(&mut wait));
    assert_eq!(win(&mut stage, wait), None);
}

/// The lost wake-up: the lock is free before it is watched, so no push comes.
#[test]
fn a_release_between_the_refusal_and_the_watch_is_seen() {
    let mut stage = ordered(1);
    hold(&stage);
    let mut wait = stage.begin(false);
    assert!(stage.is_ready(&mut wait));
    let mut next = Driven::new(Box::pin(wait.next(Some(lost(1)))));
    gate(&stage).hang();
    assert!(!stage.resolves(&mut next), "the refresh is in flight");
    gate(&stage).resume();
    gate(&stage).hang();
    assert!(!stage.resolves(&mut next), "the watch is in flight");
    gate(&stage).free_silently(&stage.key());
    gate(&stage).resume();
    assert!(stage.resolves(&mut next));
    assert_eq!(gate(&stage).log(), ["refresh", "watch"]);
}

#[test]
fn a_push_that_comes_with_the_reply_to_the_watch_counts() {
    let mut stage = ordered(1);
    hold(&stage);
    let mut wait = stage.begin(false);
    assert!(stage.is_ready(&mut wait));
    let mut next = Driven::new(Box::pin(wait.next(Some(lost(1)))));
    gate(&stage).hang();
    assert!(!stage.resolves(&mut next));
    gate(&stage).resume();
    gate(&stage).hang();
    assert!(!stage.resolves(&mut next));
    gate(&stage).resume();
    free(&stage);
    assert!(stage.resolves(&mut next), "the watch was executed before the release");
}

#[test]
fn w1_a_lost_push_costs_one_refresh() {
    let mut stage = ordered(1);
    hold(&stage);
    let mut wait = refused(&mut stage);
    gate(&stage).free_silently(&stage.key());
    let passed = stage.time_until(wait.next(None), REFRESH);
    assert!(passed.is_some_and(|passed| passed >= 536 * MS), "{passed:?}");
}

#[test]
fn w3_a_dropped_wait_lets_the_next_one_in_at_once() {
    let mut stage = ordered(1);
    hold(&stage);
    let first = refused(&mut stage);
    let mut second = refused(&mut stage);
    let third = refused(&mut stage);
    drop((first, third));
    stage.run();
    assert_eq!(gate(&stage).entries(), 1);
    assert!(!stage.is_ready(&mut second), "the lock is held");
    free(&stage);
    assert!(stage.is_ready(&mut second), "it is first now, and watches the lock");
}

/// A killed process leaves its entry behind. The next one drops it with its own.
#[test]
fn w3_an_entry_that_does_not_take_a_free_lock_is_overtaken() {
    let mut stage = ordered(1);
    hold(&stage);
    let killed = refused(&mut stage);
    let mut next = refused(&mut stage);
    free(&stage);
    let passed = stage.time_until(next.next(None), REFRESH + 20 * MS);
    assert!(passed.is_some_and(|passed| passed >= 20 * MS), "{passed:?}");
    assert_eq!(win(&mut stage, next), Some(false), "both entries have left");
    assert_eq!(gate(&stage).entries(), 0);
    drop(killed);
}

#[test]
fn w3_a_leave_follows_a_refresh_in_flight() {
    let pool = Capabilities::QUEUE | WATCH;
    for can in [queue(), pool] {
        let mut stage = Stage::new(Waiting::Ordered, &[can]);
        hold(&stage);
        gate(&stage).hang();
        let mut wait = stage.begin(true);
        assert!(!stage.is_ready(&mut wait));
        drop(wait);
        stage.run();
        gate(&stage).resume();
        stage.run();
        assert_eq!(gate(&stage).log(), ["refresh", "leave"]);
        assert_eq!(gate(&stage).entries(), 0, "after a leave with {can:?}");
    }
}

#[test]
fn c8_a_leave_is_open_work_until_the_gate_replies() {
    let mut stage = ordered(3);
    let id = stage.gates()[0];
    hold(&stage);
    let wait = refused(&mut stage);
    stage.node(id).hang();
    drop(wait);
    stage.run();
    let (nodes, tasks) = (Arc::clone(&stage.cluster.nodes), Arc::clone(&stage.cluster.tasks));
    assert!(tasks.is_open(id));
    stage.advance(NODE_TIMEOUT);
    let silence = nodes.health(id).silence(NODE_TIMEOUT, stage.cluster.now());
    assert!(silence.is_some(), "close waits for no node that hangs");
    stage.node(id).resume();
    stage.run();
    assert!(!tasks.is_open(id));
    assert!(nodes.health(id).silence(NODE_TIMEOUT, stage.cluster.now()).is_none());
}

#[test]
fn c8_a_leave_without_a_reply_is_given_up_when_the_entry_has_expired() {
    let mut stage = ordered(3);
    let id = stage.gates()[0];
    hold(&stage);
    let wait = refused(&mut stage);
    stage.node(id).hang();
    drop(wait);
    stage.run();
    stage.advance(Duration::from_secs(10));
    assert!(!stage.cluster.tasks.is_open(id));
}

#[test]
fn w1_a_silent_gate_costs_one_node_timeout() {
    let mut stage = ordered(3);
    let gates = stage.gates();
    for gate in &gates {
        stage.node(*gate).hold(&stage.key());
    }
    stage.node(gates[0]).hang();
    let mut wait = stage.begin(true);
    assert!(!stage.is_ready(&mut wait));
    stage.advance(NODE_TIMEOUT);
    assert!(!stage.is_ready(&mut wait));
    assert_eq!(wait.gate(), Some(gates[1]));
    assert_eq!(stage.node(gates[1]).entries(), 1, "the next node is the gate");
    assert_eq!(stage.gates(), gates[1..], "new waits begin there, too");
    stage.node(gates[1]).free(&stage.key());
    assert!(stage.is_ready(&mut wait));
    stage.node(gates[0]).resume();
    stage.run();
    assert_eq!(stage.node(gates[0]).entries(), 0, "the entry has left behind the refresh");
    stage.advance(Duration::from_secs(1));
    assert_eq!(stage.gates(), gates, "a second later the node is a gate again");
}

#[test]
fn w1_without_a_gate_there_is_one_attempt_for_each_refresh() {
    let mut stage = ordered(3);
    for id in stage.gates() {
        stage.node(id).fail("refresh", BackendErrorKind::Permission);
    }
    let mut wait = stage.begin(true);
    assert!(stage.is_ready(&mut wait), "the order is lost, and not the lock");
    assert_eq!((wait.gate(), wait.has_entry()), (None, false));
    let passed = stage.time_until(wait.next(Some(lost(1))), REFRESH);
    assert!(passed.is_some_and(|passed| passed >= 536 * MS), "{passed:?}");
    assert!(matches!(stage.begin(true), Wait::Notified(_)), "new waits need no gate");
}

/// A server without client tracking, or a user without the permission for it.
#[test]
fn a_gate_without_pushes_still_keeps_the_order() {
    let mut stage = ordered(3);
    hold(&stage);
    let gates = stage.gates();
    for id in &gates {
        stage.node(*id).fail("watch", BackendErrorKind::Script);
    }
    let mut first = refused(&mut stage);
    let mut second = refused(&mut stage);
    assert_eq!((first.gate(), second.gate()), (Some(gates[0]), Some(gates[0])));
    free(&stage);
    assert!(stage.time_until(first.next(None), REFRESH).is_some(), "a refresh sees the free lock");
    assert!(!stage.is_ready(&mut second));
    assert_eq!(stage.node(gates[0]).entries(), 2);
}

/// Lets a waiter attempt in vain for a second, while a program writes `key` every 2.5 ms. Returns how
/// many attempts it made.
fn attempts_in_a_second(stage: &mut Stage, wait: &mut Wait, key: Option<Key>, node: &Fake) -> u32 {
    let attempts = AtomicU32::new(0);
    let mut waiter = Driven::new(Box::pin(async {
        loop {
            wait.next(Some(lost(attempts.load(Relaxed) + 1))).await;
            assert!(attempts.fetch_add(1, Relaxed) < 100, "the waiter spins");
        }
    }));
    for _ in 0..400 {
        if let Some(key) = &key {
            node.hold(key);
        }
        assert!(!stage.resolves(&mut waiter));
        stage.advance(MS * 5 / 2);
    }
    drop(waiter);
    attempts.into_inner()
}

#[test]
fn w4_a_waiter_does_not_spin_when_others_write_the_key() {
    for waiting in [Waiting::Ordered, Waiting::Notified] {
        let mut stage = Stage::new(waiting, &[queue()]);
        let (key, node) = (stage.key(), stage.shared(stage.gates()[0]));
        node.hold(&key);
        let mut wait = stage.begin(false);
        assert!(stage.is_ready(&mut wait));
        let attempts = attempts_in_a_second(&mut stage, &mut wait, Some(key.clone()), &node);
        let looks = node.log().len();
        // Ten a second, the refreshes, and what the first two pushes cause.
        assert!(looks <= 10 + 8, "{waiting:?}: {looks} commands");
        assert!(attempts <= 5, "{waiting:?}: {attempts} attempts");
        node.free(&key);
        let passed = stage.time_until(wait.next(Some(lost(1))), 100 * MS);
        assert!(passed.is_some(), "{waiting:?}: the next look sees the release");
    }
}

#[test]
fn w4_a_waiter_does_not_spin_when_its_watch_is_evicted() {
    for waiting in [Waiting::Ordered, Waiting::Notified] {
        for is_first in [true, false] {
            let mut stage = Stage::new(waiting, &[queue()]);
            let node = stage.shared(stage.gates()[0]);
            node.hold(&stage.key());
            let before = (!is_first).then(|| refused(&mut stage));
            node.evict();
            let mut wait = stage.begin(false);
            assert!(stage.is_ready(&mut wait));
            node.log();
            let attempts = attempts_in_a_second(&mut stage, &mut wait, None, &node);
            let commands = node.log().len();
            // A waiter that is not first asks, and then looks.
            assert!(commands <= 2 * 10 + 8, "{waiting:?}: {commands} commands");
            assert!(attempts <= 5, "{waiting:?}: {attempts} attempts");
            drop(before);
        }
    }
}

#[test]
fn a_lost_round_is_followed_by_one_to_two_durations_of_it() {
    for (took, least, most) in [(10 * MS, 10 * MS, 20 * MS), (300 * MS, NODE_TIMEOUT, NODE_TIMEOUT)]
    {
        let mut stage = ordered(1);
        let mut wait = stage.begin(false);
        assert!(stage.is_ready(&mut wait));
        let passed = stage.time_until(wait.next(Some(LostRound { took, ..lost(1) })), most);
        assert!(passed.is_some_and(|passed| passed >= least), "{passed:?} after {took:?}");
    }
}

#[test]
fn the_future_of_a_wait_can_be_dropped_and_made_again() {
    let mut stage = ordered(1);
    hold(&stage);
    let mut wait = stage.begin(false);
    assert!(stage.is_ready(&mut wait));
    assert!(stage.is_ready(&mut wait), "no attempt has ended since");
    let slow = LostRound { took: 10 * MS, ..lost(1) };
    for _ in 0..3 {
        assert!(!resolves(&mut stage, wait.next(Some(slow))), "dropped in the pause");
    }
    assert!(stage.time_until(wait.next(Some(slow)), 20 * MS).is_none());
    assert_eq!(gate(&stage).log(), ["refresh", "watch"]);
    free(&stage);
    assert!(resolves(&mut stage, wait.next(Some(slow))), "there was no other round");
}

#[test]
fn w4_a_waiter_that_is_misled_makes_one_attempt_for_each_refresh() {
    let mut stage = ordered(1);
    let mut wait = stage.begin(false);
    assert!(stage.is_ready(&mut wait));
    for rounds in 1..=2 {
        assert!(
            resolves(&mut stage, wait.next(Some(lost(rounds)))),
            "the gate says that the lock is free"
        );
    }
    let passed = stage.time_until(wait.next(Some(lost(3))), REFRESH);
    assert!(passed.is_some_and(|passed| passed >= 536 * MS), "{passed:?}");
}

/// What becomes of the setting.
#[test]
fn the_nodes_and_the_runtime_limit_how_a_manager_waits() {
    let kind = |waiting, nodes: &[Capabilities], has_entropy| match Stage::with_entropy(
        waiting,
        nodes,
        has_entropy,
    )
    .begin(true)
    {
        Wait::Ordered(_) => Waiting::Ordered,
        Wait::Notified(_) => Waiting::Notified,
        Wait::Polling(_) => Waiting::Polling,
    };
    let (plain, watch, queue) = (Capabilities::NONE, WATCH, queue());
    assert_eq!(kind(Waiting::Ordered, &[plain, queue], true), Waiting::Ordered);
    assert_eq!(kind(Waiting::Ordered, &[queue], false), Waiting::Notified);
    assert_eq!(kind(Waiting::Ordered, &[plain, watch], true), Waiting::Notified);
    assert_eq!(kind(Waiting::Ordered, &[plain], true), Waiting::Polling);
    assert_eq!(kind(Waiting::Notified, &[queue], true), Waiting::Notified);
    assert_eq!(kind(Waiting::Notified, &[plain], true), Waiting::Polling);
    assert_eq!(kind(Waiting::Polling, &[queue], true), Waiting::Polling);
}

#[test]
fn a_wait_can_move_between_threads() {
    fn assert_send(_: &impl Send) {}
    let stage = ordered(1);
    let mut wait = stage.begin(false);
    assert_send(&wait);
    assert_send(&wait.next(None));
    assert_send(&wait.next(Some(lost(1))));
    assert!(wait.next(None).now_or_never().is_some());
}
