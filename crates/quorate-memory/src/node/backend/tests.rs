//! Calls that are begun: the times and the handlers of their answers.

use std::sync::Mutex;
use std::task::Context;

use futures_util::FutureExt;
use futures_util::task::ArcWake;
use quorate_core::backend::{
    Asked, CallReply, CallResult, Choice, Entry, Operation as Called, Vote,
};

use super::*;
use crate::tests::{MS, TTL, begin, claim_of, key, watching, world};
use crate::{Effect, Fault, Operation, Rule, Sim};

fn acquiring(holder: u8) -> Called {
    Called::Acquire(claim_of(holder, ["k"], TTL), AcquireOptions::default())
}

/// The answer that is there by now.
fn answer(asked: &mut Asked) -> Option<CallResult> {
    asked.now_or_never()
}

#[test]
fn without_a_delay_a_call_is_answered_before_begin_returns() {
    let (_, node) = world();
    for node in [node.clone(), node.unordered()] {
        node.flush();
        assert!(matches!(answer(&mut begin(&node, acquiring(1))), Some(Ok(CallReply::Voted(_)))));
        node.inject(Fault::Down);
        let refused = answer(&mut begin(&node, acquiring(2))).unwrap().unwrap_err();
        assert!(refused.is_not_sent(), "{refused}");
        node.heal();
    }
}

#[test]
fn a_call_that_a_rule_loses_is_kept_until_it_is_given_up() {
    let (sim, node) = world();
    let (key, entry, locks) = (key("k"), Entry::new(*b"e1"), Arc::from([key("k")]));
    node.add_rule(Rule::new(Effect::DropReply));
    let lost = begin(
        &node,
        Called::Refresh { key, entry, locks: Arc::clone(&locks), choice: Choice::All },
    );
    sim.settle();
    assert_eq!(Arc::strong_count(&locks), 2);
    drop(lost);
    sim.settle();
    assert_eq!(Arc::strong_count(&locks), 1);
}

#[test]
fn a_watch_is_pushed_unless_it_was_given_up_and_then_it_sets_no_timer() {
    let (sim, node) = world();
    answer(&mut begin(&node, acquiring(1)));
    drop(begin(&node, watching()));
    let mut lost = begin(&node, watching());
    sim.settle();
    assert!(sim.elapsed() >= TTL, "the watch that was not given up has a timer");
    let (sim, node) = world();
    answer(&mut begin(&node, acquiring(1)));
    drop(begin(&node, watching()));
    sim.settle();
    assert_eq!(sim.elapsed(), Duration::ZERO);
    let mut asked = begin(&node, watching());
    assert!(matches!(answer(&mut asked), Some(Ok(CallReply::Watched(true)))));
    node.add_rule(Rule::new(Effect::DropReply).on(Operation::Watch));
    node.expire("k");
    sim.advance(TTL);
    assert!(asked.pushed().now_or_never().is_none(), "a rule lost the push");
    assert!(answer(&mut lost).is_some());
}

#[test]
fn a_paused_client_handles_replies_later_in_their_order_and_a_killed_one_never() {
    for seed in 0..20 {
        let sim = Sim::shuffled(seed);
        let client = sim.client(0);
        let node = MemoryNode::new("node", sim.clone()).seen_by(&client);
        node.add_rule(Rule::new(Effect::Delay { least: MS, most: MS }));
        let mut asked: Vec<Asked> = (1..9).map(|holder| begin(&node, acquiring(holder))).collect();
        let order = Arc::new(Mutex::new(Vec::new()));
        for (number, asked) in asked.iter_mut().enumerate() {
            let order = Arc::clone(&order);
            assert!(!polled(asked, move || order.lock().unwrap().push(number)));
        }
        client.pause(10 * MS);
        sim.advance(9 * MS);
        assert!(node.get("k").is_some(), "the node has executed the requests");
        assert!(order.lock().unwrap().is_empty());
        sim.advance(MS);
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7], "seed {seed}");
        let mut last = begin(&node, acquiring(1));
        client.kill();
        sim.advance(TTL);
        assert!(answer(&mut last).is_none());
        sim.end();
    }
}

#[test]
fn a_paused_client_notices_a_push_later() {
    let sim = Sim::new(1);
    let client = sim.client(0);
    let node = MemoryNode::new("node", sim.clone()).seen_by(&client);
    let mut watched = begin(&node, watching());
    assert!(answer(&mut watched).is_some());
    client.pause(10 * MS);
    answer(&mut begin(&node, acquiring(1)));
    let mut pushed = Box::pin(watched.pushed());
    sim.advance(9 * MS);
    assert!(pushed.as_mut().now_or_never().is_none());
    sim.advance(MS);
    assert!(pushed.as_mut().now_or_never().is_some());
}

#[test]
fn a_call_that_begins_while_another_is_answered_is_carried_out_behind_it() {
    let (_, node) = world();
    node.inject(Fault::Hung);
    let mut asked = begin(&node, acquiring(1));
    let (there, behind) = (node.clone(), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&behind);
    let begins = move || *kept.lock().unwrap() = Some(begin(&there, acquiring(2)));
    assert!(!polled(&mut asked, begins));
    node.heal();
    let mut behind = behind.lock().unwrap().take().unwrap();
    let is_refused = match answer(&mut behind) {
        Some(Ok(CallReply::Voted(reply))) => reply.vote == Vote::Refused,
        _ => false,
    };
    assert!(is_refused);
}

/// Polls a call. `act` runs where the call is answered.
fn polled(asked: &mut Asked, act: impl Fn() + Send + Sync + 'static) -> bool {
    let waker = futures_util::task::waker(Arc::new(Acts(act)));
    asked.poll_unpin(&mut Context::from_waker(&waker)).is_ready()
}

struct Acts<F>(F);

impl<F: Fn() + Send + Sync> ArcWake for Acts<F> {
    fn wake_by_ref(this: &Arc<Self>) {
        (this.0)();
    }
}
