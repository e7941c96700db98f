//! What a node does that the conformance suite does not see: faults, rules, pushes and clocks.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{join_all, poll_immediate};
use quorate_core::backend::{
    AcquireOptions, Asked, CallReply, Claim, ExtendOptions, FenceHint, LockBackend,
    Operation as Called, ReleaseOptions, Vote, ask,
};
use quorate_core::{BackendError, BackendErrorKind, RestartGuard};

use super::*;
use crate::tests::{claim, claim_of, key};
use crate::{Effect, Operation, Sim};

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(60);

fn world() -> (Sim, MemoryNode) {
    let sim = Sim::new(1);
    (sim.clone(), MemoryNode::new("node", sim))
}

/// Acquires a key at once, or says why not.
fn acquire(sim: &Sim, node: &MemoryNode, claim: &Claim) -> Result<Vote, BackendErrorKind> {
    let seen = sim.block_on(node.acquire(claim, AcquireOptions::default()));
    seen.map(|acquired| acquired.vote).map_err(|error| error.kind())
}

fn release(sim: &Sim, node: &MemoryNode, claim: &Claim) -> Vote {
    sim.block_on(node.release(claim, ReleaseOptions::default())).unwrap().vote
}

/// Begins a call.
fn asked(node: &MemoryNode, operation: Called) -> Asked {
    let runtime = node.runtime();
    ask(operation, runtime.now(), |call| Arc::new(node.clone()).begin(call, &runtime))
}

fn watching() -> Called {
    Called::Watch { key: key("k"), entry: None }
}

/// Watches a key. Returns whether the push has come.
fn watch(sim: &Sim, node: &MemoryNode) -> impl FnMut() -> bool + use<> {
    let mut asked = asked(node, watching());
    sim.block_on(&mut asked).unwrap();
    let (sim, mut changed) = (sim.clone(), Box::pin(asked.pushed()));
    move || {
        sim.advance(Duration::ZERO);
        changed.as_mut().now_or_never().is_some()
    }
}

/// The order in which five releases and acquires take effect: the vote of each, and in which order
/// the replies come.
fn race(seed: u64, is_ordered: bool) -> (Vec<Option<Vote>>, Vec<usize>) {
    let sim = Sim::new(seed);
    let node = MemoryNode::new("node", sim.clone());
    let node = if is_ordered { node } else { node.unordered() };
    node.add_rule(Rule::new(Effect::Delay { least: Duration::ZERO, most: 5 * MS }));
    let replies = Arc::new(Mutex::new(Vec::new()));
    let calls = (0..5).map(|number| {
        let (node, replies, ours) =
            (node.clone(), Arc::clone(&replies), claim_of(number, ["k"], TTL));
        async move {
            let vote = match number % 2 {
                0 => {
                    node.acquire(&ours, AcquireOptions::default()).await.ok().map(|seen| seen.vote)
                }
                _ => {
                    let before = claim_of(number - 1, ["k"], TTL);
                    let seen = node.release(&before, ReleaseOptions::default()).await;
                    seen.ok().map(|seen| seen.vote)
                }
            };
            replies.lock().unwrap().push(usize::from(number));
            vote
        }
    });
    let votes = sim.block_on(join_all(calls));
    let replies = replies.lock().unwrap().clone();
    (votes, replies)
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
fn calls_of_an_ordered_node_take_effect_and_settle_in_the_order_of_their_first_polls() {
    for seed in 0..50 {
        let (votes, replies) = race(seed, true);
        assert_eq!(votes, [Some(Vote::Granted); 5], "seed {seed}");
        assert_eq!(replies, [0, 1, 2, 3, 4], "seed {seed}");
    }
    let unordered: Vec<_> = (0..50).map(|seed| race(seed, false)).collect();
    assert!(unordered.iter().any(|(votes, _)| votes.contains(&Some(Vote::Refused))));
    assert!(unordered.iter().any(|(_, replies)| *replies != [0, 1, 2, 3, 4]));
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
    let error = sim.block_on(asked(&lacking, watching())).unwrap_err();
    assert!(error.is_not_sent() && *sent.lock().unwrap() == 0);
    assert!(lacking.capabilities().contains(Capabilities::ORDERED | Capabilities::GUARD));
    assert!(!lacking.capabilities().contains(Capabilities::QUEUE));
}

#[test]
fn a_fault_decides_what_a_call_meets() {
    let (sim, node) = world();
    let (ours, theirs) = (claim_of(1, ["k"], TTL), claim_of(2, ["k"], TTL));
    assert_eq!(acquire(&sim, &node, &ours), Ok(Vote::Granted));
    node.inject(Fault::Down);
    assert_eq!(acquire(&sim, &node, &theirs), Err(BackendErrorKind::Connection));
    node.heal();
    assert_eq!(acquire(&sim, &node, &theirs), Ok(Vote::Refused), "its data was on the disk");
    node.restart();
    assert_eq!(acquire(&sim, &node, &theirs), Ok(Vote::Granted), "its data is gone");
    node.inject(Fault::Failing(BackendError::new(
        BackendErrorKind::ReadOnly,
        "READONLY a replica",
    )));
    assert_eq!(acquire(&sim, &node, &ours), Err(BackendErrorKind::ReadOnly));
    node.inject(Fault::Slow(2 * MS));
    release(&sim, &node, &theirs);
    assert_eq!(sim.elapsed(), 2 * MS);
    node.inject(Fault::Late(3 * MS));
    let call = node.acquire(&ours, AcquireOptions::default());
    assert!(sim.block_on_for(call, 1).is_none());
    assert!(node.get("k").is_some(), "it was executed at once");
}

#[test]
fn a_hung_node_executes_in_order_what_it_finds_when_it_wakes() {
    let (sim, node) = world();
    let (ours, theirs) = (claim_of(1, ["k"], TTL), claim_of(2, ["k"], TTL));
    node.inject(Fault::Hung);
    let mut first = pin!(node.acquire(&ours, AcquireOptions::default()));
    assert!(poll_immediate(first.as_mut()).now_or_never().flatten().is_none());
    // Dropped, and executed after all.
    assert!(sim.block_on_for(node.release(&ours, ReleaseOptions::default()), 1).is_none());
    let mut last = pin!(node.acquire(&theirs, AcquireOptions::default()));
    assert!(poll_immediate(last.as_mut()).now_or_never().flatten().is_none());
    node.heal();
    assert_eq!(sim.block_on(first).unwrap().vote, Vote::Granted);
    assert_eq!(sim.block_on(last).unwrap().vote, Vote::Granted);
    // A process that dies has not read what it was sent.
    node.inject(Fault::Hung);
    let mut lost = pin!(node.release(&theirs, ReleaseOptions::default()));
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
    sim.block_on(asked(&node, Called::Inspect { key: key("k") })).unwrap();
    let shorter = claim_of(1, ["k"], TTL / 2);
    sim.block_on(node.extend(&shorter, ExtendOptions::default())).unwrap();
    assert!(!was_pushed(), "nothing was written");
    sim.advance(MS);
    sim.block_on(node.extend(&ours, ExtendOptions::default())).unwrap();
    assert!(was_pushed(), "an extension writes");
    let mut watched = asked(&node, watching());
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
fn a_server_id_is_that_of_one_run_of_one_node() {
    let id = |sim: &Sim, node: &MemoryNode| match sim.block_on(asked(node, Called::ServerId)) {
        Ok(CallReply::ServerId(Some(id))) => id,
        other => panic!("{other:?}"),
    };
    let sim = Sim::new(7);
    let nodes = MemoryNode::cluster(2, sim.clone());
    let first = id(&sim, &nodes[0]);
    assert_eq!(first, id(&sim, &nodes[0]));
    assert_ne!(first, id(&sim, &nodes[1]));
    nodes[0].inject(Fault::Down);
    assert!(sim.block_on(asked(&nodes[0], Called::ServerId)).is_err());
    nodes[0].heal();
    assert_ne!(first, id(&sim, &nodes[0]));
    let again = Sim::new(7);
    assert_eq!(first, id(&again, &MemoryNode::new("node", again.clone())), "the same seed");
    nodes[1].inject(Fault::NoInfo);
    let error = sim.block_on(asked(&nodes[1], Called::ServerId)).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Permission);
    nodes[1].inject(Fault::Flapping);
    let ids: Vec<Arc<str>> = (0..8).map(|_| id(&sim, &nodes[1])).collect();
    assert!(ids.iter().any(|id| *id != ids[0]), "{ids:?}");
}

#[test]
fn a_quarantine_depends_on_the_guard_and_on_what_the_server_says() {
    let (sim, node) = world();
    let ours = claim(["k"], MS);
    let under = |guard| {
        let mut options = AcquireOptions::default();
        options.guard = Some(guard);
        sim.block_on(node.acquire(&ours, options)).map_err(|error| error.kind())
    };
    let hour = Duration::from_secs(3600);
    sim.advance(hour);
    node.inject(Fault::Evicting);
    assert_eq!(under(RestartGuard::soft(TTL)).unwrap_err(), BackendErrorKind::Evicting);
    node.inject(Fault::NoInfo);
    assert_eq!(under(RestartGuard::soft(TTL)).unwrap_err(), BackendErrorKind::Permission);
    node.heal();
    assert!(under(RestartGuard::soft(TTL)).is_ok(), "it has been up for longer than that");
    sim.advance(MS);
    node.save();
    node.restart_from_save();
    assert_eq!(under(RestartGuard::soft(TTL)).unwrap_err(), BackendErrorKind::Quarantined);
    sim.advance(TTL - MS);
    assert_eq!(under(RestartGuard::soft(TTL)).unwrap_err(), BackendErrorKind::Quarantined);
    sim.advance(MS);
    assert!(under(RestartGuard::soft(TTL)).is_ok());
    node.flush();
    assert_eq!(under(RestartGuard::strict(hour)).unwrap_err(), BackendErrorKind::Quarantined);
    // An operator may end it.
    node.expire("quorate:guard:quarantine");
    assert!(under(RestartGuard::strict(hour)).is_ok());
    node.expire("k");
    node.save();
    node.fail_over_and_back();
    assert_eq!(under(RestartGuard::strict(hour)).unwrap_err(), BackendErrorKind::Quarantined);
    node.expire("quorate:guard:quarantine");
    node.put("quorate:guard:epoch2", Value::String(b"garbage".to_vec()));
    assert_eq!(under(RestartGuard::strict(hour)).unwrap_err(), BackendErrorKind::MaxTtl);
}

#[test]
fn keys_expire_by_the_clock_of_the_node() {
    let (sim, node) = world();
    let second = Duration::from_secs(1);
    node.drift(500_000);
    acquire(&sim, &node, &claim(["k"], 3 * second)).unwrap();
    sim.advance(2 * second - MS);
    assert!(node.get("k").is_some());
    sim.advance(MS);
    assert!(node.get("k").is_none(), "it gains half a second in each");
    acquire(&sim, &node, &claim(["k"], 3 * second)).unwrap();
    node.jump(3 * second);
    assert!(node.get("k").is_none());
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
