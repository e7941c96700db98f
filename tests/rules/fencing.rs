//! Fencing tokens: unique, rising with every later holder, whatever happens on the way.

use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::protocol::fence::counter;
use quorate_core::{
    BackendErrorKind, Claim, Fence, FenceGate, FenceHint, FenceVote, FencingToken, HandOver, Key,
    LockBackend, LockError, LockGuard, LockManager, Resource, Runtime, Said, Token, Vote, Votes,
};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim, Value};

use crate::world::{MS, Paused, SECOND, World};

const HOUR: u64 = 3_600_000_000;

fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

fn number(node: &MemoryNode, name: &str) -> Option<u64> {
    match node.get(counter(&key(name)).as_bytes())? {
        Value::String(digits) => String::from_utf8(digits).unwrap().parse().ok(),
        other => panic!("{other:?}"),
    }
}

fn put(node: &MemoryNode, name: &str, text: &str) {
    node.put(counter(&key(name)).as_bytes(), Value::String(text.into()));
}

/// Sets the numbers of "r".
fn stand_at(world: &World, numbers: &[u64]) {
    for (node, number) in world.nodes.iter().zip(numbers) {
        put(node, "r", &number.to_string());
    }
}

fn numbers(world: &World) -> Vec<Option<u64>> {
    world.nodes.iter().map(|node| number(node, "r")).collect()
}

/// A manager whose wall clock stands at 1970, so that numbers are counted one by one.
fn counting(world: &World) -> LockManager {
    world.builder().fence_hint(|| 0).build().unwrap()
}

fn lock(world: &World, manager: &LockManager) -> LockGuard {
    world.sim.block_on(manager.lock("r").fenced()).unwrap()
}

fn token(guard: &LockGuard) -> u64 {
    guard.fencing_token().unwrap().get()
}

fn lock_keys_left(world: &World) -> usize {
    let keys = world.nodes.iter().flat_map(MemoryNode::keys);
    keys.filter(|key| !key.starts_with(b"quorate:fence:")).count()
}

fn count(world: &World, operation: &str) -> usize {
    world.log.operations().iter().filter(|done| **done == operation).count()
}

fn claim(names: &[&str], holder: u8) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(holder);
        Ok(())
    });
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    Claim::new(keys, token.unwrap(), (10 * SECOND).try_into().unwrap())
}

fn granted(number: u64) -> FenceVote {
    FenceVote::Granted(FencingToken::new(number).unwrap())
}

fn at(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn votes_of<T: Debug>(failed: Result<T, LockError>) -> Votes {
    match failed {
        Err(LockError::NoQuorum { votes } | LockError::NoToken { votes }) => votes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_that_agree_give_a_token_in_one_round_trip() {
    for nodes in 1..=7 {
        let world = World::new(nodes);
        for node in &world.nodes {
            node.inject(Fault::Slow(10 * MS));
        }
        let manager = world.manager();
        let mut last = 0;
        for round in 1..=3 {
            let start = world.sim.elapsed();
            let guard = lock(&world, &manager);
            assert_eq!(world.sim.elapsed() - start, 10 * MS, "one way, and instant answers");
            assert!(token(&guard) > last);
            last = token(&guard);
            world.sim.settle_and_release(guard);
            assert_eq!(count(&world, "fenced acquire"), round * nodes);
            assert_eq!(count(&world, "release"), round * nodes, "none lags");
        }
        assert_eq!(world.log.operations().len(), 6 * nodes, "and nothing else");
        assert_eq!(lock_keys_left(&world), 0);
    }
}

#[test]
fn nodes_that_differ_are_raised_to_the_highest_in_one_more() {
    for hints in [false, true] {
        let world = World::new(5);
        let manager = if hints { world.manager() } else { counting(&world) };
        let base = if hints { 3_000_000_000_000_000 } else { 0 };
        stand_at(&world, &[base + 5, base + 9, base + 1, base + 9, base + 9]);
        for node in &world.nodes[..3] {
            node.inject(Fault::Slow(10 * MS));
        }
        for node in &world.nodes[3..] {
            node.inject(Fault::Slow(40 * MS));
        }
        let before = world.sim.now();
        let guard = lock(&world, &manager);
        assert_eq!(token(&guard), base + 10);
        assert_eq!(world.sim.elapsed(), 20 * MS);
        assert_eq!(count(&world, "raise"), 2, "who gave the highest has voted");
        assert_eq!(guard.valid_until(), before + 9898 * MS, "counted from the first round trip");
        world.sim.settle_and_release(guard);
        assert_eq!(numbers(&world), [Some(base + 10); 5]);
        // They agree from now on.
        let raised = count(&world, "raise");
        assert_eq!(token(&lock(&world, &manager)), base + 11);
        assert_eq!(count(&world, "raise"), raised);
    }
}

#[test]
fn without_asking_there_is_no_token_and_nothing_is_stored_for_one() {
    let world = World::new(3);
    let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
    assert_eq!(guard.fencing_token(), None);
    assert_eq!(guard.lease().fencing_token(), None);
    world.catch_up();
    assert_eq!(world.keys_left(), 3);
    world.sim.settle_and_release(guard);
    assert_eq!(world.log.operations(), [["acquire"; 3], ["release"; 3]].concat());
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn holders_with_and_without_a_token_exclude_each_other() {
    let world = World::new(3);
    let (one, other) = (world.manager(), world.manager());
    let plain = world.sim.block_on(one.lock("r")).unwrap();
    let refused = world.sim.block_on(other.try_lock("r").fenced());
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    world.sim.settle_and_release(plain);
    let fenced = world.sim.block_on(one.try_lock("r").fenced()).unwrap();
    let refused = world.sim.block_on(other.try_lock("r"));
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
    world.sim.settle_and_release(fenced);
    assert_eq!(lock_keys_left(&world), 0);
}

#[test]
fn a_node_that_was_away_costs_one_raise_and_then_agrees_again() {
    let world = World::new(3);
    let manager = counting(&world);
    world.sim.settle_and_release(lock(&world, &manager));
    world.nodes[0].inject(Fault::Down);
    for _ in 0..20 {
        world.sim.settle_and_release(lock(&world, &manager));
    }
    assert_eq!(numbers(&world), [Some(1), Some(21), Some(21)]);
    assert_eq!(count(&world, "raise"), 0);
    world.nodes[0].heal();
    let guard = lock(&world, &manager);
    assert_eq!(token(&guard), 22);
    world.sim.settle_and_release(guard);
    assert_eq!(numbers(&world), [Some(22); 3]);
    let raises = count(&world, "raise");
    assert!(raises <= 1, "{raises}");
    assert_eq!(token(&lock(&world, &manager)), 23);
    assert_eq!(count(&world, "raise"), raises);
}

/// Two of three, so that the one that lags and one that does not are the quorum.
#[test]
fn a_laggard_in_the_quorum_is_raised_before_the_token_is_given() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[3, 21, 21]);
    world.nodes[2].inject(Fault::Hung);
    let guard = lock(&world, &manager);
    assert_eq!(token(&guard), 22);
    assert_eq!(numbers(&world)[..2], [Some(22); 2], "both have it before anybody relies on it");
    drop(guard);
}

#[test]
fn an_answer_after_the_decision_is_brought_forward_by_release_and_extension() {
    for extends in [false, true] {
        let world = World::new(3);
        let manager = counting(&world);
        stand_at(&world, &[10, 10, 50]);
        world.nodes[2].inject(Fault::Late(100 * MS));
        let guard = lock(&world, &manager);
        assert_eq!(token(&guard), 11, "decided without the third");
        world.sim.advance(SECOND);
        if extends {
            for _ in 0..3 {
                world.sim.block_on(guard.extend()).unwrap();
                world.sim.advance(SECOND);
            }
            assert_eq!(numbers(&world), [Some(51); 3]);
            assert_eq!(count(&world, "raise"), 2, "once for each laggard");
            assert_eq!(token(&guard), 11, "the token stays");
        }
        world.sim.settle_and_release(guard);
        assert_eq!(numbers(&world), [Some(51); 3]);
        let lagged = if extends { 0 } else { 2 };
        assert_eq!(count(&world, "fenced release"), lagged, "the others are released as any");
        assert_eq!(count(&world, "release"), 3 - lagged);
        let raises = count(&world, "raise");
        assert_eq!(token(&lock(&world, &manager)), 52);
        assert_eq!(count(&world, "raise"), raises);
    }
}

/// Ten processes with clocks up to an hour apart, five tasks each, on nodes that are not near.
#[test]
fn of_fifty_contenders_each_has_a_greater_token_than_all_before() {
    for seed in 0..8 {
        let sim = Sim::new(seed);
        let nodes = MemoryNode::cluster([3, 5][seed as usize % 2], sim.clone());
        for node in &nodes {
            node.add_rule(Rule::new(Effect::Delay { least: MS / 10, most: 2 * MS }));
        }
        let tokens: Arc<Mutex<Vec<FencingToken>>> = Arc::default();
        for process in 0..10 {
            let clock = sim.clone();
            let hint = move || clock.unix_micros() - HOUR + process * (2 * HOUR / 10);
            let builder = LockManager::builder(sim.clone(), nodes.clone());
            // Polling, so that many ask at once.
            let retry = quorate_core::Backoff::default();
            let manager = builder.fence_hint(hint).retry(retry).build().unwrap();
            for _ in 0..5 {
                let (manager, sim, tokens) = (manager.clone(), sim.clone(), Arc::clone(&tokens));
                sim.clone().spawn(Box::pin(async move {
                    let guard = manager.lock("r").fenced().wait(600 * SECOND).await.unwrap();
                    tokens.lock().unwrap().push(guard.fencing_token().unwrap());
                    sim.sleep_until(sim.now() + MS).await;
                    assert!(guard.is_valid());
                    drop(guard);
                }));
            }
        }
        sim.settle();
        let tokens = tokens.lock().unwrap();
        assert_eq!(tokens.len(), 50, "seed {seed}");
        assert!(tokens.windows(2).all(|two| two[0] < two[1]), "seed {seed}: {tokens:?}");
    }
}

#[test]
fn clocks_that_are_an_hour_apart_change_no_order() {
    let world = World::new(3);
    let now = Sim::new(0).unix_micros();
    let ahead = world.builder().fence_hint(move || now + HOUR).build().unwrap();
    let behind = world.builder().fence_hint(move || now).build().unwrap();
    let mut last = 0;
    for manager in [&behind, &ahead, &behind, &ahead, &behind, &behind] {
        let guard = lock(&world, manager);
        assert!(token(&guard) > last, "{} after {last}", token(&guard));
        last = token(&guard);
        world.sim.settle_and_release(guard);
    }
    assert!(last > now + HOUR);
    assert_eq!(count(&world, "raise"), 0, "nor a round trip, while the nodes agree");
}

#[test]
fn one_clock_far_in_the_future_harms_nobody() {
    let world = World::new(3);
    let wild = world.builder().fence_hint(|| FenceHint::MAX.get()).build().unwrap();
    let guard = lock(&world, &wild);
    assert_eq!(token(&guard), 1 << 52);
    world.sim.settle_and_release(guard);
    let guard = lock(&world, &world.manager());
    assert_eq!(token(&guard), (1 << 52) + 1);
}

#[test]
fn a_hint_over_the_limit_is_a_typed_error_and_nothing_is_sent() {
    let world = World::new(3);
    let broken = world.builder().fence_hint(|| FenceHint::MAX.get() + 1).build().unwrap();
    let failed = world.sim.block_on(broken.lock("r").fenced());
    assert!(matches!(failed, Err(LockError::FenceHint { hint }) if hint == (1 << 52) + 1));
    assert_eq!(world.log.calls(), []);
    assert!(world.sim.block_on(broken.lock("r")).is_ok(), "without a token it plays no part");
}

#[test]
fn a_request_that_arrives_twice_has_one_number() {
    let world = World::new(1);
    let node = &world.nodes[0];
    let (ours, theirs) = (claim(&["r"], 1), claim(&["r"], 2));
    let hint = FenceHint::new(100).unwrap();
    let acquire = |claim| world.sim.block_on(Fence::acquire(node, claim, hint)).unwrap();
    assert_eq!(acquire(&ours), granted(100));
    assert_eq!(acquire(&ours), granted(100));
    assert_eq!(acquire(&theirs), FenceVote::Refused);
    assert_eq!(number(node, "r"), Some(100));
    node.expire("r");
    assert_eq!(acquire(&theirs), granted(101));
    assert_eq!(acquire(&theirs), granted(101));
    node.expire("r");
    assert_eq!(acquire(&ours), granted(102), "a new grant, not the old one again");
}

#[test]
fn requests_that_are_all_sent_twice_give_tokens_in_order() {
    let world = World::new(3);
    let manager = counting(&world);
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::Duplicate(5 * MS)));
    }
    for expected in 1..=20 {
        let guard = lock(&world, &manager);
        assert_eq!(token(&guard), expected);
        world.sim.advance(SECOND);
        world.sim.settle_and_release(guard);
    }
}

#[test]
fn after_a_loss_of_data_tokens_go_on_from_the_clock() {
    let world = World::new(3);
    let manager = world.manager();
    let before = lock(&world, &manager);
    let last = token(&before);
    world.sim.settle_and_release(before);
    world.sim.advance(MS);
    for node in &world.nodes {
        node.restart();
    }
    let after = token(&lock(&world, &manager));
    assert!(after > last, "{after} after {last}");
}

/// What the hints are for: this is a reason to leave them as they are, not a property to keep.
#[test]
fn without_a_clock_a_majority_that_lost_its_data_begins_again() {
    let world = World::new(3);
    let manager = counting(&world);
    for _ in 0..5 {
        world.sim.settle_and_release(lock(&world, &manager));
    }
    world.nodes[0].restart();
    world.nodes[1].restart();
    world.nodes[2].inject(Fault::Down);
    assert_eq!(token(&lock(&world, &manager)), 1);
}

#[test]
fn an_extension_gives_a_node_that_lost_its_data_key_and_number_back() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[70, 70, 70]);
    let guard = lock(&world, &manager);
    world.catch_up();
    world.nodes[0].restart();
    assert_eq!(numbers(&world)[0], None);
    world.sim.block_on(guard.extend()).unwrap();
    world.catch_up();
    assert_eq!(numbers(&world), [Some(71); 3]);
    assert_eq!(world.holders("r"), 3);
    assert_eq!(token(&guard), 71);
}

#[test]
fn a_number_that_has_come_to_its_end_is_an_error_and_takes_nothing() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[(1 << 53) - 2; 3]);
    let guard = lock(&world, &manager);
    assert_eq!(guard.fencing_token(), Some(FencingToken::MAX));
    world.sim.settle_and_release(guard);
    let start = world.sim.elapsed();
    let votes = votes_of(world.sim.block_on(manager.lock("r").fenced()));
    assert_eq!(world.sim.elapsed(), start, "waiting would not mend it");
    for vote in votes.iter().filter(|vote| !matches!(vote.said, Said::Unheard)) {
        let Said::Failed(error) = &vote.said else { panic!("{vote:?}") };
        assert_eq!(error.kind(), BackendErrorKind::Fence);
        assert!(error.to_string().contains("no number is left"), "{error}");
    }
    world.catch_up();
    assert_eq!(lock_keys_left(&world), 0);
    assert_eq!(numbers(&world), [Some((1 << 53) - 1); 3]);
    assert!(world.sim.block_on(manager.lock("r")).is_ok(), "a lock without a token is to be had");
}

#[test]
fn what_is_no_number_is_an_error_and_is_left_alone() {
    for garbage in
        ["", "x", "-1", "1.5", "1e3", "0x10", " 7", "9007199254740992", "00000000000000001"]
    {
        let world = World::new(3);
        let manager = counting(&world);
        for node in &world.nodes[..2] {
            put(node, "r", garbage);
        }
        let votes = votes_of(world.sim.block_on(manager.lock("r").fenced()));
        let failed = votes.iter().filter_map(|vote| match &vote.said {
            Said::Failed(error) => Some(error.kind()),
            _ => None,
        });
        assert_eq!(failed.collect::<Vec<_>>(), [BackendErrorKind::Fence; 2], "{garbage}");
        world.catch_up();
        assert_eq!(lock_keys_left(&world), 0);
        let kept = world.nodes[0].get(counter(&key("r")).as_bytes());
        assert_eq!(kept, Some(Value::String(garbage.into())));
    }
    let world = World::new(3);
    for node in &world.nodes[..2] {
        node.put(counter(&key("r")).as_bytes(), Value::List);
    }
    let votes = votes_of(world.sim.block_on(world.manager().lock("r").fenced()));
    assert!(votes.to_string().contains("WRONGTYPE"), "{votes}");
}

#[test]
fn one_node_whose_number_is_broken_is_done_without() {
    let world = World::new(3);
    put(&world.nodes[1], "r", "broken");
    let guard = lock(&world, &world.manager());
    world.sim.settle_and_release(guard);
    assert_eq!(lock_keys_left(&world), 0, "its lock goes all the same");
}

/// It was granted on nodes that differ, its raise is on the way for longer than its ttl, and by
/// then somebody else holds the lock.
#[test]
fn a_raise_that_comes_after_the_next_holder_outranks_nobody() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[10, 1000, 20]);
    for node in &world.nodes {
        let late = Effect::Delay { least: 20 * SECOND, most: 20 * SECOND };
        node.add_rule(Rule::new(late).on(Operation::Raise));
    }
    let zombie = world.sim.block_on(manager.try_lock("r").fenced().ttl(SECOND));
    assert!(matches!(zombie, Err(LockError::NoQuorum { .. })), "{zombie:?}");
    for node in &world.nodes {
        node.clear_rules();
    }
    world.sim.advance(2 * SECOND);
    // Without the node from which the zombie has its high number.
    world.nodes[1].inject(Fault::Down);
    let next = world.builder().fence_hint(|| 0).build().unwrap();
    let guard = world.sim.block_on(next.lock("r").fenced().ttl(60 * SECOND)).unwrap();
    assert!(token(&guard) < 1001);
    let before = numbers(&world);
    world.sim.advance(30 * SECOND);
    assert!(guard.is_valid());
    assert_eq!(numbers(&world), before, "the zombie's raise has come and changed nothing");
}

#[test]
fn only_the_holder_of_the_key_raises_a_number() {
    let world = World::new(1);
    let node = &world.nodes[0];
    let (zombie, holder) = (claim(&["r"], 1), claim(&["r"], 2));
    let none = FenceHint::default();
    let raise = |claim, to| world.sim.block_on(node.raise(claim, at(to))).unwrap();
    assert_eq!(raise(&holder, 9), Vote::Refused, "nobody's key");
    assert_eq!(world.sim.block_on(Fence::acquire(node, &zombie, none)).unwrap(), granted(1));
    node.expire("r");
    assert_eq!(world.sim.block_on(Fence::acquire(node, &holder, none)).unwrap(), granted(2));
    assert_eq!(raise(&zombie, 9), Vote::Refused);
    let released = world.sim.block_on(Fence::release(node, &zombie, at(9)));
    assert_eq!((released.unwrap(), number(node, "r")), (Vote::Refused, Some(2)));
    assert_eq!(raise(&holder, 1), Vote::Refused, "it never falls");
    assert_eq!(raise(&holder, 2), Vote::Granted, "it has voted that");
    assert_eq!(raise(&holder, 5), Vote::Granted);
    assert_eq!(number(node, "r"), Some(5));
    let released = world.sim.block_on(Fence::release(node, &holder, at(7)));
    assert_eq!((released.unwrap(), number(node, "r")), (Vote::Granted, Some(7)));
}

/// The counterexample to `F <= t` without a bump in the grant, and to the highest answer as the
/// token without votes for it.
#[test]
fn a_grant_always_raises_so_no_number_is_voted_for_two() {
    let world = World::new(3);
    let none = FenceHint::default();
    let [a, b] = [1, 2].map(|holder| claim(&["r"], holder));
    let grant = |node: usize, claim| {
        world.sim.block_on(Fence::acquire(&world.nodes[node], claim, none)).unwrap()
    };
    // A has the first node and loses it; B has the first and the third.
    assert_eq!(grant(0, &a), granted(1));
    world.nodes[0].expire("r");
    assert_eq!(grant(1, &a), granted(1));
    assert_eq!((grant(0, &b), grant(2, &b)), (granted(2), granted(1)));
    let raised = world.sim.block_on(world.nodes[2].raise(&b, at(2)));
    assert_eq!(raised.unwrap(), Vote::Granted, "B has 2");
    // B's key on the third node vanishes, and A's late request comes.
    world.nodes[2].expire("r");
    assert_eq!(grant(2, &a), granted(3), "not 2: that has been voted for B");
    let raised = world.sim.block_on(world.nodes[2].raise(&a, at(2)));
    assert_eq!(raised.unwrap(), Vote::Refused);
}

#[test]
fn a_raise_ends_within_the_node_timeout_of_its_round() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[3, 2, 1]);
    for node in &world.nodes {
        node.inject(Fault::Late(300 * MS));
    }
    // Each fan-out alone would do; both take longer than a node may.
    let failed = world.sim.block_on(manager.try_lock("r").fenced());
    assert!(matches!(failed, Err(LockError::NoQuorum { .. })), "{failed:?}");
    assert_eq!(world.sim.elapsed(), 500 * MS, "both within one node timeout");
    world.sim.advance(2 * SECOND);
    assert_eq!(lock_keys_left(&world), 0);
}

/// It says that the key is ours there, not that it stands at the number that is raised to.
#[test]
fn a_grant_that_comes_during_a_raise_is_no_vote_for_it() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[30, 10, 20]);
    world.nodes[2].inject(Fault::Slow(50 * MS));
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Raise));
    }
    let failed = world.sim.block_on(manager.try_lock("r").fenced());
    let Err(LockError::NoQuorum { votes }) = failed else { panic!("{failed:?}") };
    assert_eq!(votes.granted(), 1, "{votes}");
}

#[test]
fn a_grant_that_comes_during_a_raise_with_its_number_is_a_vote() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[30, 10, 30]);
    world.nodes[2].inject(Fault::Slow(50 * MS));
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Raise));
    }
    let guard = world.sim.block_on(manager.try_lock("r").fenced()).unwrap();
    assert_eq!((token(&guard), world.sim.elapsed()), (31, 50 * MS));
    assert_eq!(count(&world, "raise"), 1, "the third has voted by itself");
}

#[test]
fn t2_a_token_that_is_agreed_on_after_the_validity_is_a_loss() {
    let world = World::new(3);
    let client = Paused::new(&world.sim);
    let nodes = world.nodes.clone();
    let builder = LockManager::builder(client.clone(), nodes);
    let manager = builder.fence_hint(|| 0).build().unwrap();
    stand_at(&world, &[1, 2, 3]);
    for node in &world.nodes {
        node.inject(Fault::Slow(10 * MS));
    }
    // The acquire has been granted, the raise is under way, and the votes lie there when it ends:
    // after the validity that counts from the acquire, before one that would count from the raise.
    let sim = world.sim.clone();
    world.sim.spawn(Box::pin(async move {
        sim.sleep_until(sim.now() + 15 * MS).await;
        client.pause(9_885 * MS);
    }));
    let lost = world.sim.block_on(manager.try_lock("r").fenced());
    assert!(matches!(lost, Err(LockError::Expired { .. })), "{lost:?}");
    world.sim.advance(SECOND);
    assert_eq!(lock_keys_left(&world), 0);
}

#[test]
fn a_quorum_without_a_token_is_an_error_of_its_own_and_the_next_round_has_one() {
    let world = World::new(3);
    let manager = counting(&world);
    stand_at(&world, &[1, 2, 3]);
    for node in &world.nodes {
        node.inject(Fault::Slow(100 * MS));
    }
    // The keys of the two that have to be raised vanish between the fan-outs.
    let nodes = world.nodes.clone();
    let sim = world.sim.clone();
    world.sim.spawn(Box::pin(async move {
        sim.sleep_until(sim.now() + 150 * MS).await;
        nodes[0].expire("r");
        nodes[1].expire("r");
    }));
    let failed = world.sim.block_on(manager.try_lock("r").fenced());
    let Err(LockError::NoToken { votes }) = failed else { panic!("{failed:?}") };
    assert_eq!(votes.granted(), 1, "{votes}");
    world.sim.advance(SECOND);
    let guard = lock(&world, &manager);
    assert!(token(&guard) >= 4);
    world.sim.settle_and_release(guard);
    assert_eq!(lock_keys_left(&world), 0);
}

#[test]
fn the_token_stays_through_extensions_and_goes_along_in_a_hand_over() {
    let world = World::new(5);
    let (giver, taker) = (world.manager(), world.manager());
    let guard = lock(&world, &giver);
    let first = guard.fencing_token().unwrap();
    for _ in 0..3 {
        world.sim.advance(3 * SECOND);
        world.sim.block_on(guard.extend()).unwrap();
        assert_eq!(guard.fencing_token(), Some(first));
    }
    let lease = guard.lease();
    let record: HandOver = guard.hand_over().encode().parse().unwrap();
    assert_eq!(lease.fencing_token(), Some(first));
    let adopted = world.sim.block_on(taker.adopt(&record)).unwrap();
    assert_eq!(adopted.fencing_token(), Some(first));
    world.sim.block_on(adopted.extend()).unwrap();
    assert_eq!(adopted.fencing_token(), Some(first));
    world.sim.settle_and_release(adopted);
    assert!(lock(&world, &giver).fencing_token().unwrap() > first);
}

#[test]
fn work_under_a_lock_sees_the_token() {
    let world = World::new(3);
    let seen = world
        .sim
        .block_on(world.manager().lock("r").fenced().with(async |lease| lease.fencing_token()));
    assert!(seen.unwrap().is_some());
    let seen = world
        .sim
        .block_on(world.manager().try_lock("r").fenced().with(async |lease| lease.fencing_token()));
    assert!(seen.unwrap().is_some());
}

/// Three methods, as a backend of somebody else's may have.
#[derive(Clone, Debug)]
struct Plain(MemoryNode);

#[async_trait::async_trait]
impl LockBackend for Plain {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, quorate_core::BackendError> {
        LockBackend::acquire(&self.0, claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, quorate_core::BackendError> {
        self.0.extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, quorate_core::BackendError> {
        LockBackend::release(&self.0, claim).await
    }
}

#[test]
fn a_node_that_cannot_fence_is_a_typed_error_and_nothing_is_sent() {
    let world = World::new(3);
    let mut nodes: Vec<Arc<dyn LockBackend>> =
        world.spies().into_iter().map(|spy| Arc::new(spy) as _).collect();
    nodes[1] = Arc::new(Plain(world.nodes[1].clone()));
    let manager = LockManager::builder(world.sim.clone(), nodes).build().unwrap();
    for failed in [
        world.sim.block_on(manager.lock("r").fenced()),
        world.sim.block_on(manager.try_lock("r").fenced()),
    ] {
        let Err(LockError::NotFenced { node }) = failed else { panic!("{failed:?}") };
        assert_eq!(node, "node 2");
    }
    assert_eq!(world.log.calls(), []);
    assert_eq!(world.sim.elapsed(), Duration::ZERO);
    assert!(world.sim.block_on(manager.lock("r")).is_ok());
}

/// A record with a token is adopted by nodes that cannot count, too: the token is the record's.
#[test]
fn an_adopter_whose_nodes_cannot_fence_has_the_token_all_the_same() {
    let world = World::new(3);
    let guard = lock(&world, &world.manager());
    let first = guard.fencing_token();
    let record = guard.hand_over();
    let nodes = world.nodes.iter().cloned().map(Plain);
    let manager = LockManager::builder(world.sim.clone(), nodes).build().unwrap();
    let adopted = world.sim.block_on(manager.adopt(&record)).unwrap();
    assert_eq!(adopted.fencing_token(), first);
    world.sim.settle_and_release(adopted);
    assert_eq!(lock_keys_left(&world), 0);
}

/// Names whose counters are, or are not, the same.
fn names_that_share(share: bool) -> [String; 2] {
    let first = "a0".to_owned();
    let same = |other: &String| counter(&key(other)) == counter(&key(&first));
    let other = (1..).map(|n| format!("a{n}")).find(|other| same(other) == share);
    [first, other.unwrap()]
}

#[test]
fn several_resources_have_one_token_and_each_has_its_order() {
    for share in [false, true] {
        let [a, b] = names_that_share(share);
        let world = World::new(3);
        let manager = counting(&world);
        let mut last = [0, 0];
        let both = [a.clone(), b.clone()];
        for names in [&both[..1], &both[..1], &both, &both[1..], &both, &both[..1], &both[1..]] {
            let guard = world.sim.block_on(manager.lock(names).fenced()).unwrap();
            for name in names {
                let last = &mut last[usize::from(*name == b)];
                assert!(token(&guard) > *last, "{names:?}: {} after {last}", token(&guard));
                *last = token(&guard);
            }
            world.sim.settle_and_release(guard);
        }
        assert_eq!(lock_keys_left(&world), 0);
    }
}

/// Its answer is the higher of two numbers, so the lower one must not stay where it is: a later
/// holder of that resource alone would get a smaller token.
#[test]
fn a_request_for_several_that_comes_twice_levels_their_numbers() {
    let [a, b] = names_that_share(false);
    let shares_with_a = (1..).map(|n| format!("x{n}"));
    let neighbour = shares_with_a.clone().find(|x| counter(&key(x)) == counter(&key(&a))).unwrap();
    let world = World::new(1);
    let node = &world.nodes[0];
    let hint = |micros| FenceHint::new(micros).unwrap();
    let both = claim(&[&a, &b], 1);
    let acquire = |claim: &Claim, at| world.sim.block_on(Fence::acquire(node, claim, at)).unwrap();
    assert_eq!(acquire(&both, hint(10)), granted(10));
    assert_eq!(acquire(&claim(&[&neighbour], 2), hint(500)), granted(500));
    assert_eq!((number(node, &a), number(node, &b)), (Some(500), Some(10)));
    assert_eq!(acquire(&both, hint(10)), granted(500));
    assert_eq!(number(node, &b), Some(500));
    node.expire(&b);
    assert_eq!(acquire(&claim(&[&b], 3), hint(10)), granted(501));
}

/// Twenty locks that share one number, on nodes that hear of them in different orders: no answer
/// need be that of another node, and a raise may find that somebody else went further.
#[test]
fn locks_that_share_a_number_do_not_keep_each_other_out() {
    let share = |name: &String| counter(&key(name)) == counter(&key("a0"));
    let names: Vec<String> = (0..).map(|n| format!("a{n}")).filter(share).take(20).collect();
    for seed in 0..8 {
        let sim = Sim::new(seed);
        let nodes = MemoryNode::cluster(5, sim.clone());
        for node in &nodes {
            node.add_rule(Rule::new(Effect::Delay { least: MS / 10, most: 2 * MS }));
        }
        let done = Arc::new(Mutex::new(0));
        for name in &names {
            let builder = LockManager::builder(sim.clone(), nodes.clone());
            let manager = builder.fence_hint(|| 0).build().unwrap();
            let (name, done) = (name.clone(), Arc::clone(&done));
            sim.spawn(Box::pin(async move {
                let mut last = None;
                for _ in 0..20 {
                    let guard = manager.lock(&name).fenced().await.unwrap();
                    assert!(guard.fencing_token() > last);
                    last = guard.fencing_token();
                    guard.release().await.unwrap();
                }
                *done.lock().unwrap() += 1;
            }));
        }
        sim.settle();
        assert_eq!(*done.lock().unwrap(), names.len(), "seed {seed}");
        assert!(sim.elapsed() < 20 * SECOND, "seed {seed}: {:?}", sim.elapsed());
    }
}

/// A lock as it was seen from outside, on one clock.
#[derive(Clone, Copy, Debug)]
struct Seen {
    asked: Duration,
    had: Duration,
    token: FencingToken,
}

/// Keys vanish at any moment, so that several hold the lock at once; messages are late, lost and
/// come twice; nodes hang and go away, and keep their data.
fn in_a_storm(seed: u64) -> Vec<Seen> {
    let sim = Sim::new(seed);
    let nodes = MemoryNode::cluster([3, 5, 4][seed as usize % 3], sim.clone());
    for node in &nodes {
        node.add_rule(Rule::new(Effect::Delay { least: MS / 10, most: 3 * MS }));
        node.add_rule(Rule::new(Effect::DropRequest).chance(20_000));
        node.add_rule(Rule::new(Effect::DropReply).chance(20_000));
        node.add_rule(Rule::new(Effect::Duplicate(4 * MS)).chance(50_000));
        node.add_rule(Rule::new(Effect::Reorder(20 * MS)).chance(50_000));
    }
    let below = {
        let sim = sim.clone();
        move |bound: u64| sim.random_below(bound)
    };
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    for process in 0..4 {
        let clock = sim.clone();
        let counts = seed.is_multiple_of(2);
        let hint = move || if counts { 0 } else { clock.unix_micros() + process * HOUR };
        let builder = LockManager::builder(sim.clone(), nodes.clone()).ttl(200 * MS);
        let builder = builder.node_timeout(20 * MS).fence_hint(hint);
        let manager = builder.build().unwrap();
        let (sim, seen, below) = (sim.clone(), Arc::clone(&seen), below.clone());
        sim.clone().spawn(Box::pin(async move {
            for _ in 0..25 {
                let asked = sim.elapsed();
                if let Ok(guard) = manager.try_lock("r").fenced().await {
                    let token = guard.fencing_token().unwrap();
                    seen.lock().unwrap().push(Seen { asked, had: sim.elapsed(), token });
                    sim.sleep_until(sim.now() + MS * u32::try_from(below(5)).unwrap()).await;
                }
                sim.sleep_until(sim.now() + MS * u32::try_from(below(5)).unwrap()).await;
            }
        }));
    }
    let (storm, clock) = (nodes.clone(), sim.clone());
    sim.spawn(Box::pin(async move {
        for _ in 0..300 {
            clock.sleep_until(clock.now() + MS).await;
            let node = &storm[usize::try_from(below(storm.len() as u64)).unwrap()];
            match below(12) {
                0..=5 => node.expire("r"),
                6 => node.inject(Fault::Down),
                7 => node.inject(Fault::Hung),
                _ => node.heal(),
            }
        }
        storm.iter().for_each(MemoryNode::heal);
    }));
    sim.settle();
    seen.lock().unwrap().clone()
}

#[test]
fn in_any_storm_tokens_are_unique_and_in_real_time_order() {
    let mut locks = 0;
    for seed in 0..200 {
        let seen = in_a_storm(seed);
        locks += seen.len();
        for (at, one) in seen.iter().enumerate() {
            for other in &seen[at + 1..] {
                assert_ne!(one.token, other.token, "seed {seed}: {one:?} {other:?}");
                for (first, second) in [(one, other), (other, one)] {
                    let in_order = first.had >= second.asked || first.token < second.token;
                    assert!(in_order, "seed {seed}: {first:?} {second:?}");
                }
            }
        }
    }
    assert!(locks > 1_000, "only {locks} locks were had");
}

#[test]
fn a_gate_is_passed_with_a_token_too() {
    let world = World::new(5);
    let (one, other) = (world.manager(), world.manager());
    let held = lock(&world, &one);
    let first = token(&held);
    let got: Arc<Mutex<Option<LockGuard>>> = Arc::default();
    let (waits, place) = (other.lock("r").fenced(), Arc::clone(&got));
    world.sim.spawn(Box::pin(async move {
        let guard = waits.await.unwrap();
        *place.lock().unwrap() = Some(guard);
    }));
    world.sim.advance(SECOND);
    let sent_away = count(&world, "fenced acquire");
    assert!(!sent_away.is_multiple_of(5), "some rounds ended at the gate: {sent_away}");
    drop(held);
    world.sim.advance(5 * SECOND);
    let guard = got.lock().unwrap().take().unwrap();
    assert!(token(&guard) > first);
}

#[test]
fn a_future_that_is_dropped_at_any_poll_leaves_no_key() {
    for polls in 0..60 {
        let world = World::new(3);
        let manager = counting(&world);
        stand_at(&world, &[10, 20, 30]);
        for node in &world.nodes {
            node.inject(Fault::Slow(5 * MS));
        }
        let dropped = world.sim.block_on_for(manager.lock("r").fenced(), polls);
        drop(dropped);
        world.sim.advance(2 * SECOND);
        assert_eq!(lock_keys_left(&world), 0, "after {polls} polls");
        assert_eq!(world.log.dropped.load(Ordering::Relaxed), 0, "no call was dropped");
    }
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let run = || {
        let world = World::new(3);
        world.sim.advance(17 * MS);
        token(&lock(&world, &world.manager()))
    };
    assert_eq!(run(), run());
}

/// A holder is paused for longer than its ttl in the middle of its work.
#[test]
fn a_stale_holder_finds_the_door_shut() {
    let world = World::new(3);
    let (one, other) = (world.manager(), world.manager());
    let store = FenceGate::new(Vec::new());
    for round in 0..20 {
        let stale = lock(&world, &one);
        assert!(stale.is_valid(), "the last look before the pause");
        world.sim.advance(11 * SECOND);
        let holder = lock(&world, &other);
        store.pass(holder.fencing_token().unwrap(), |seen| seen.push(round)).unwrap();
        let late = store.pass(stale.fencing_token().unwrap(), |seen| seen.push(999));
        assert_eq!(late.unwrap_err().highest, holder.fencing_token().unwrap());
        world.sim.settle_and_release(holder);
    }
    assert_eq!(store.into_inner(), (0..20).collect::<Vec<_>>());
}

trait Settle {
    /// Releases, and lets everything come to its end.
    fn settle_and_release(&self, guard: LockGuard);
}

impl Settle for Sim {
    fn settle_and_release(&self, guard: LockGuard) {
        self.block_on(guard.release()).unwrap();
        self.advance(SECOND);
    }
}
