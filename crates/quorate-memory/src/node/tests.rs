//! What a node does that the conformance suite does not see: faults, rules, pushes and clocks.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{join_all, poll_immediate};
use quorate_core::backend::{
    AcquireOptions, CallReply, Claim, ExtendOptions, FenceHint, LockBackend, Operation as Called,
    ReleaseOptions, Vote,
};
use quorate_core::{BackendErrorKind, RestartGuard};

use super::*;
use crate::tests::{MS, TTL, begin, claim, claim_of, key, watching, world};
use crate::{Effect, Operation, Sim};

/// Acquires a key at once, or says why not.
fn acquire(sim: &Sim, node: &MemoryNode, claim: &Claim) -> Result<Vote, BackendErrorKind> {
    let seen = sim.block_on(node.acquire(claim, AcquireOptions::default()));
    seen.map(|acquired| acquired.vote).map_err(|error| error.kind())
}

fn release(sim: &Sim, node: &MemoryNode, claim: &Claim) -> Vote {
    sim.block_on(node.release(claim, ReleaseOptions::default())).unwrap().vote
}

/// Watches a key. Returns whether the push has come.
fn watch(sim: &Sim, node: &MemoryNode) -> impl FnMut() -> bool + use<> {
    let mut asked = begin(node, watching());
    sim.block_on(&mut asked).unwrap();
    let (sim, mut changed) = (sim.clone(), Box::pin(asked.pushed()));
    move || {
        sim.advance(Duration::ZERO);
        changed.as_mut().now_or_never().is_some()
    }
}

/// Begins calls at one moment over a network that delays them. Returns the order of the replies.
fn together(calls: &[(&str, u8, &'static str)]) -> String {
    let (sim, node) = world();
    node.add_rule(Rule::new(Effect::Delay { least: MS, most: 5 * MS }));
    let replies = Arc::new(Mutex::new(Vec::new()));
    let calls = calls.iter().enumerate().map(|(number, (what, holder, name))| {
        let (node, replies) = (node.clone(), Arc::clone(&replies));
        let claim = claim_of(*holder, [name], TTL);
        async move {
            let seen = match *what {
                "acquire" => node.acquire(&claim, AcquireOptions::default()).await,
                "extend" => node.extend(&claim, ExtendOptions::default()).await,
                _ => node.release(&claim, ReleaseOptions::default()).await,
            };
            replies.lock().unwrap().push(number.to_string());
            seen.unwrap()
        }
    });
    sim.block_on(join_all(calls));
    replies.lock().unwrap().join(" ")
}

/// Rules C3, H6.
#[test]
fn what_is_sent_at_one_moment_shares_scripts_and_keeps_the_order_of_each_key() {
    let (acquire, release, extend) = ("acquire", "release", "extend");
    let passes = [(release, 1, "a"), (acquire, 2, "a"), (release, 1, "b"), (acquire, 2, "b")];
    assert_eq!(together(&passes), "0 2 1 3");
    let stays = [(release, 1, "a"), (acquire, 1, "b"), (release, 1, "b"), (release, 1, "c")];
    assert_eq!(together(&stays), "0 1 2 3");
    let kinds = [(extend, 1, "a"), (release, 1, "b"), (extend, 1, "c"), (release, 1, "c")];
    assert_eq!(together(&kinds), "0 2 1 3");
}

#[test]
fn clones_share_one_connection_and_a_client_has_its_own() {
    let (sim, node) = world();
    let client = sim.client(0);
    let ours = claim(["k"], TTL);
    node.add_rule(Rule::new(Effect::Delay { least: 5 * MS, most: 5 * MS }).on(Operation::Acquire));
    for (node, vote) in [(node.clone(), Vote::Granted), (node.seen_by(&client), Vote::Refused)] {
        assert!(sim.block_on_for(node.acquire(&ours, AcquireOptions::default()), 1).is_none());
        // Behind the acquire on its connection, and before it on another one.
        let releasing = if vote == Vote::Granted { node } else { node.seen_by(&client) };
        assert_eq!(release(&sim, &releasing, &ours), vote);
        sim.settle();
    }
}

#[test]
fn a_request_leaves_with_the_first_poll_and_not_before() {
    let (sim, node) = world();
    let ours = claim(["k"], TTL);
    drop(node.acquire(&ours, AcquireOptions::default()));
    assert_eq!(node.get("k"), None);
    node.add_rule(Rule::new(Effect::Delay { least: MS, most: MS }));
    let call = node.acquire(&ours, AcquireOptions::default());
    assert!(sim.block_on_for(call, 1).is_none());
    sim.advance(MS);
    assert!(node.get("k").is_some(), "the request was on its way when its future was dropped");
}

#[test]
fn a_node_that_lacks_an_ability_sends_nothing() {
    let (sim, node) = world();
    let lacking =
        node.without(Capabilities::FENCING).without(Capabilities::WATCH | Capabilities::QUEUE);
    let sent = Arc::new(Mutex::new(0));
    let count = Arc::clone(&sent);
    node.observe(move |_| *count.lock().unwrap() += 1);
    let mut fenced = AcquireOptions::default();
    fenced.fencing = Some(FenceHint::default());
    let error = sim.block_on(lacking.acquire(&claim(["k"], TTL), fenced)).unwrap_err();
    assert_eq!(error.to_string(), "this node keeps no fencing numbers");
    assert!(error.is_not_sent());
    let error = sim.block_on(begin(&lacking, watching())).unwrap_err();
    assert!(error.is_not_sent() && *sent.lock().unwrap() == 0);
    assert!(lacking.capabilities().contains(Capabilities::ORDERED | Capabilities::GUARD));
    assert!(!lacking.capabilities().contains(Capabilities::QUEUE));
}

#[test]
fn a_hung_process_that_dies_has_not_read_what_it_was_sent() {
    let (sim, node) = world();
    let ours = claim(["k"], TTL);
    assert_eq!(acquire(&sim, &node, &ours), Ok(Vote::Granted));
    node.inject(Fault::Hung);
    let mut lost = pin!(node.release(&ours, ReleaseOptions::default()));
    assert!(poll_immediate(lost.as_mut()).now_or_never().flatten().is_none());
    node.inject(Fault::Down);
    node.heal();
    let error = sim.block_on(lost).unwrap_err();
    assert!(error.kind() == BackendErrorKind::Connection && !error.is_not_sent());
    assert!(node.get("k").is_some());
}

#[test]
fn a_rule_loses_cuts_or_repeats_a_message() {
    let (sim, node) = world();
    let node = node.unordered();
    let ours = claim(["k"], 2 * MS);
    let never = |node: &MemoryNode| {
        sim.block_on_for(node.acquire(&ours, AcquireOptions::default()), 1).is_none()
    };
    node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Acquire));
    assert!(never(&node) && node.get("k").is_none());
    node.clear_rules();
    node.add_rule(Rule::new(Effect::DropReply));
    assert!(never(&node) && node.get("k").is_some());
    node.clear_rules();
    node.add_rule(Rule::new(Effect::Cut).on(Operation::Release));
    let error = sim.block_on(node.release(&ours, ReleaseOptions::default())).unwrap_err();
    assert!(error.kind() == BackendErrorKind::Connection && node.get("k").is_none());
    node.clear_rules();
    node.add_rule(Rule::new(Effect::Duplicate(5 * MS)).on(Operation::Acquire));
    assert_eq!(acquire(&sim, &node, &ours), Ok(Vote::Granted));
    sim.advance(4 * MS);
    assert!(node.get("k").is_none(), "the ttl has passed");
    sim.advance(MS);
    assert!(node.get("k").is_some(), "the second arrival set the key again");
}

#[test]
fn a_push_comes_exactly_when_the_key_was_written_or_has_expired() {
    let (sim, node) = world();
    let (ours, theirs) = (claim_of(1, ["k"], TTL), claim_of(2, ["k"], TTL));
    let mut was_pushed = watch(&sim, &node);
    assert_eq!(acquire(&sim, &node, &claim(["other"], TTL)), Ok(Vote::Granted));
    assert!(!was_pushed(), "another key was written");
    assert_eq!(acquire(&sim, &node, &ours), Ok(Vote::Granted));
    assert!(was_pushed());
    let mut was_pushed = watch(&sim, &node);
    assert_eq!(acquire(&sim, &node, &theirs), Ok(Vote::Refused));
    assert_eq!(release(&sim, &node, &theirs), Vote::Refused);
    sim.block_on(node.extend(&theirs, ExtendOptions::default())).unwrap();
    sim.block_on(begin(&node, Called::Inspect { key: key("k") })).unwrap();
    let shorter = claim_of(1, ["k"], TTL / 2);
    sim.block_on(node.extend(&shorter, ExtendOptions::default())).unwrap();
    assert!(!was_pushed(), "nothing was written");
    sim.advance(MS);
    sim.block_on(node.extend(&ours, ExtendOptions::default())).unwrap();
    assert!(was_pushed(), "an extension writes");
    let mut watched = begin(&node, watching());
    sim.block_on(&mut watched).unwrap();
    sim.block_on(watched.pushed());
    assert_eq!(sim.elapsed(), TTL + MS, "its expiry, by the node's clock");
    for change in
        [MemoryNode::flush, MemoryNode::restart, |node: &MemoryNode| node.put("k", Value::List)]
    {
        node.expire("k");
        let mut was_pushed = watch(&sim, &node);
        change(&node);
        assert!(was_pushed());
    }
}

#[test]
fn a_push_is_a_message_that_can_be_late_or_lost() {
    let (sim, node) = world();
    let ours = claim(["k"], TTL);
    let mut was_pushed = watch(&sim, &node);
    node.add_rule(Rule::new(Effect::DropReply).on(Operation::Watch));
    acquire(&sim, &node, &ours).unwrap();
    sim.advance(TTL);
    assert!(!was_pushed(), "the push was lost");
    node.clear_rules();
    let mut was_pushed = watch(&sim, &node);
    node.add_rule(Rule::new(Effect::Delay { least: MS, most: MS }).on(Operation::Watch));
    acquire(&sim, &node, &ours).unwrap();
    assert!(!was_pushed());
    sim.advance(MS);
    assert!(was_pushed());
    node.clear_rules();
    let mut was_pushed = watch(&sim, &node);
    node.inject(Fault::Hung);
    node.expire("k");
    assert!(!was_pushed(), "a hung process pushes nothing");
    node.heal();
    assert!(was_pushed());
}

#[test]
fn a_server_id_is_drawn_from_the_seed_and_may_be_hidden_or_flap() {
    let id = |sim: &Sim, node: &MemoryNode| match sim.block_on(begin(node, Called::ServerId)) {
        Ok(CallReply::ServerId(Some(id))) => id,
        other => panic!("{other:?}"),
    };
    let (sim, node) = world();
    let (again, other) = world();
    assert_eq!(id(&sim, &node), id(&again, &other), "the same seed");
    node.inject(Fault::NoInfo);
    let error = sim.block_on(begin(&node, Called::ServerId)).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Permission);
    node.inject(Fault::Flapping);
    let ids: Vec<Arc<str>> = (0..8).map(|_| id(&sim, &node)).collect();
    assert!(ids.iter().any(|id| *id != ids[0]), "{ids:?}");
}

#[test]
fn a_guard_refuses_a_node_that_may_evict_hides_its_uptime_or_has_another_epoch() {
    let (sim, node) = world();
    sim.advance(Duration::from_secs(3600));
    let under = || {
        let mut options = AcquireOptions::default();
        options.guard = Some(RestartGuard::soft(TTL));
        let acquired = sim.block_on(node.acquire(&claim(["k"], MS), options));
        acquired.map(drop).map_err(|error| error.kind())
    };
    node.inject(Fault::Evicting);
    assert_eq!(under(), Err(BackendErrorKind::Evicting));
    node.inject(Fault::NoInfo);
    assert_eq!(under(), Err(BackendErrorKind::Permission));
    node.heal();
    assert_eq!(under(), Ok(()), "it has been up for longer than that");
    node.put("quorate:guard:epoch2", Value::String(b"garbage".to_vec()));
    assert_eq!(under(), Err(BackendErrorKind::MaxTtl));
}

#[test]
fn an_observer_sees_requests_grants_and_losses() {
    let (sim, node) = world();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    node.observe(move |observed| {
        log.lock().unwrap().push(match observed {
            Observed::Sent { operation, client } => format!("{operation:?} {client:?}"),
            Observed::Set(claim) => format!("set {}", claim.keys()[0]),
            Observed::LostData => "lost".to_owned(),
        });
    });
    let client = sim.client(0);
    let ours = claim(["k"], TTL);
    acquire(&sim, &node.seen_by(&client), &ours).unwrap();
    acquire(&sim, &node, &claim_of(2, ["k"], TTL)).unwrap();
    release(&sim, &node, &ours);
    node.flush();
    node.stop_observing();
    node.flush();
    let expected = ["Acquire Some(1)", "set k", "Acquire None", "Release None", "lost"];
    assert_eq!(*seen.lock().unwrap(), expected);
}
