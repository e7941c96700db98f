//! Waiters without a queue.

use std::time::Duration;

use super::resolves;
use super::stage::{MS, Stage, lost};
use super::time::Driven;
use crate::backend::Capabilities;
use crate::config::Waiting;
use crate::wait::{LostRound, Wait};

const WATCH: Capabilities = Capabilities::WATCH;

#[test]
fn a_notified_waiter_attempts_at_a_push() {
    let mut stage = Stage::new(Waiting::Notified, &[WATCH]);
    let node = stage.shared(stage.ids()[0]);
    node.hold(&stage.key());
    let mut wait = stage.begin(true);
    assert!(stage.is_ready(&mut wait), "without a queue nobody goes first");
    assert_eq!((wait.gate(), wait.has_entry()), (None, false));
    let mut next = Driven::new(Box::pin(wait.next(Some(lost(1)))));
    assert!(!stage.resolves(&mut next));
    node.free(&stage.key());
    assert!(stage.resolves(&mut next));
    assert_eq!(node.log(), ["watch"]);
}

#[test]
fn a_notified_waiter_sees_a_release_between_the_refusal_and_the_watch() {
    let mut stage = Stage::new(Waiting::Notified, &[WATCH]);
    let mut wait = stage.begin(true);
    assert!(resolves(&mut stage, wait.next(Some(lost(1)))));
}

/// The node lost its data. The others have the lock.
#[test]
fn w4_a_notified_waiter_that_is_misled_backs_off_and_looks_elsewhere() {
    let mut stage = Stage::new(Waiting::Notified, &[WATCH; 3]);
    let ids = stage.ids();
    let mut wait = stage.begin(true);
    let looks = |stage: &mut Stage, wait: &mut Wait, limit| {
        let passed = stage.time_until(wait.next(Some(lost(20))), limit);
        let looked = ids.iter().filter(|id| !stage.node(**id).log().is_empty());
        (passed, looked.copied().collect::<Vec<_>>())
    };
    let (passed, first) = looks(&mut stage, &mut wait, MS);
    assert_eq!(passed, Some(Duration::ZERO), "the lock seems to be free");
    let (passed, again) = looks(&mut stage, &mut wait, Duration::from_secs(1));
    assert!(passed.is_some_and(|passed| passed > MS), "{passed:?}");
    assert_eq!(first, again);
    let (_, next) = looks(&mut stage, &mut wait, Duration::from_secs(1));
    assert_ne!(next, first);
}

#[test]
fn w1_a_notified_waiter_tries_again_within_a_second_whatever_a_node_says() {
    let mut stage = Stage::new(Waiting::Notified, &[WATCH; 2]);
    let ids = stage.ids();
    for id in &ids {
        stage.node(*id).hold(&stage.key());
    }
    stage.node(ids[0]).hang();
    let mut wait = stage.begin(false);
    for round in 1..5 {
        let passed = stage.time_until(wait.next(Some(lost(round))), Duration::from_secs(1));
        assert!(passed.is_some_and(|passed| passed >= 250 * MS), "{passed:?}");
    }
    assert_eq!(stage.node(ids[1]).log().len(), 2, "the nodes are looked at in turn");
}

#[test]
fn without_a_quorum_and_without_notifications_the_delay_grows() {
    for waiting in [Waiting::Notified, Waiting::Polling] {
        let mut stage = Stage::new(waiting, &[WATCH]);
        let node = stage.shared(stage.ids()[0]);
        node.hold(&stage.key());
        let mut wait = stage.begin(false);
        assert!(stage.is_ready(&mut wait));
        let is_held = waiting == Waiting::Polling;
        let mut longest = Vec::new();
        for rounds in [1, 4, 10] {
            let lost = LostRound { is_held, ..lost(rounds) };
            let passed: Vec<Duration> = (0..20)
                .map(|_| stage.time_until(wait.next(Some(lost)), Duration::from_secs(1)).unwrap())
                .collect();
            longest.push(passed.into_iter().max().unwrap());
        }
        assert!(longest[0] <= 10 * MS && longest[1] <= 80 * MS, "{longest:?}");
        assert!(longest.is_sorted(), "{longest:?}");
        assert!(node.log().is_empty(), "nobody asks a node");
    }
}
