//! Nodes that lack, or forbid, what waiting needs: that costs order, never the lock.

use std::future::IntoFuture;
use std::time::Duration;

use quorate_core::backend::Capabilities;
use quorate_core::{BackendError, BackendErrorKind, Runtime};
use quorate_memory::{MemoryNode, Operation, Sim};
use quorate_protocol::error_of_reply;

use crate::telling::{of, told};
use crate::waiting::contest::Contest;
use crate::waiting::processes::{Quirk, ROUND_TRIP, Scene};
use crate::world::{MS, SECOND};

type Built = fn(MemoryNode) -> MemoryNode;

/// Nodes that can do everything; with pushes and no queue; with neither.
const ABLE: Built = |node| node;
const NOTIFIED: Built = |node| node.without(Capabilities::QUEUE);

/// One process holds the lock for three seconds, and another waits for it.
struct Wait {
    scene: Scene,

    /// From the release to the hold of the waiter.
    gap: Duration,
}

fn wait(quirk: Quirk, built: impl Fn(MemoryNode) -> MemoryNode) -> Wait {
    let scene = Scene::with(5, Sim::new(7), quirk);
    let (holder, waiter) = (scene.process(), scene.process_on(built));
    let guard = scene.run(holder.lock("r").ttl(60 * SECOND)).unwrap();
    let held = waiter.hold_once("r", MS);
    scene.forget_sent();
    scene.advance(3 * SECOND);
    let before = holder.client.now();
    scene.run(guard.release()).unwrap();
    scene.advance(5 * SECOND);
    let gap = held.lock().unwrap().expect("it got the lock").from - before;
    Wait { scene, gap }
}

#[test]
fn nodes_built_without_a_queue_or_without_pushes_cost_order_and_not_the_lock() {
    let (watch, queue) = (Capabilities::WATCH, Capabilities::QUEUE);
    for (lacks, watches, joins) in [(queue, true, false), (watch | queue, false, false)] {
        let wait = wait(Quirk::default(), move |node| node.without(lacks));
        assert_eq!(wait.scene.count(Operation::Watch) > 0, watches);
        assert_eq!(wait.scene.count(Operation::Queue) > 0, joins);
        // The release and the push, a pause of a round at most, and an acquire.
        let most = if watches { 3 * ROUND_TRIP } else { SECOND + 10 * MS };
        assert!(wait.gap <= most, "{:?}", wait.gap);
    }
    let woken = wait(Quirk::default(), ABLE);
    assert_eq!(woken.gap, 2 * ROUND_TRIP, "the release, the push, and an acquire");
    assert!(woken.scene.count(Operation::Queue) > 3);
    // The queue works by refreshes alone.
    let wait = wait(Quirk::default(), move |node| node.without(watch));
    assert!(wait.gap <= SECOND, "{:?}", wait.gap);
}

/// What nodes answer to calls that they were built for, and lack or forbid.
fn refusals() -> [BackendError; 4] {
    [
        BackendError::unsupported("this server cannot do that"),
        error_of_reply("NOPERM this user has no permissions to run the 'eval' command"),
        error_of_reply("ERR unknown command 'CLIENT'"),
        BackendError::new(BackendErrorKind::Cluster, "CROSSSLOT Keys don't hash to the same slot"),
    ]
}

#[test]
fn a_node_that_refuses_to_queue_or_to_watch_costs_order_and_never_the_lock() {
    for error in refusals() {
        let fails = Some(error.clone());
        let no_queue = Quirk { queueing_fails: fails.clone(), ..Quirk::default() };
        let no_watch = Quirk { watching_fails: fails, ..Quirk::default() };
        let long = SECOND + 10 * MS;
        // A new entry says that no pushes come. The first such entry is refreshed each 40 ms.
        let is_lack = error.kind() != BackendErrorKind::Cluster;
        let polling = if is_lack { 40 * MS + 3 * ROUND_TRIP } else { long };
        for (quirk, built, most) in
            [(&no_queue, ABLE, long), (&no_watch, ABLE, polling), (&no_watch, NOTIFIED, long)]
        {
            let wait = wait(quirk.clone(), built);
            assert!(wait.gap <= most, "{quirk:?}: {:?}", wait.gap);
            let sent = wait.scene.sent().len();
            assert!(sent <= 300, "{quirk:?}: {sent} calls");
            assert!(wait.scene.keys().is_empty(), "{quirk:?}: {:?}", wait.scene.keys());
        }
    }
}

/// It lacks both, and each is one event, whichever is found first.
#[test]
fn each_operation_that_a_node_lacks_is_reported_once() {
    let fails = Some(error_of_reply("NOPERM this user has no permissions"));
    let told = told(|| {
        let quirk =
            Quirk { queueing_fails: fails.clone(), watching_fails: fails, ..Quirk::default() };
        let (scene, [holder, waiter]) = Scene::with(3, Sim::new(1), quirk).and_processes();
        for _ in 0..3 {
            let guard = scene.run(holder.lock("r")).unwrap();
            let wait = waiter.locks.lock("r").timeout(5 * SECOND).into_future();
            assert!(scene.run(wait).is_err());
            scene.run(guard.release()).unwrap();
        }
    });
    let lacks = of("node lacks operation", &told);
    let shown = |name: &str| {
        let mut shown: Vec<_> = lacks
            .iter()
            .filter(|told| told.field("operation") == name)
            .map(|told| told.field("node").to_owned())
            .collect();
        shown.sort();
        shown
    };
    for operation in ["queue", "watch"] {
        assert_eq!(shown(operation), ["memory-1", "memory-2", "memory-3"], "{operation}");
    }
    assert_eq!(lacks.len(), 6);
}

/// A process over a pool, one without pushes, and one that can do nothing, beside others that can do everything.
#[test]
fn processes_with_other_abilities_are_not_starved() {
    let pool = Capabilities::ORDERED | Capabilities::WATCH;
    for (others, hold) in [(3, MS), (7, MS), (3, 100 * MS), (7, 100 * MS)] {
        for lacks in [pool, Capabilities::WATCH] {
            let scene = Scene::new(5);
            let odd = scene.process_on(move |node| node.without(lacks));
            let mut contest = Contest::on(scene, hold);
            contest.run(odd, 1);
            (0..others).for_each(|_| contest.join(1));
            let figures = contest.figures(if hold == MS { 3 * SECOND } else { 20 * SECOND });
            assert!(figures.least() >= 0.5, "{lacks:?} beside {others}, {hold:?}: {figures:?}");
        }
    }
}
