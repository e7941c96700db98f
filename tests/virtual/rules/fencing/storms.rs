//! Tokens among contenders, under faults.

use super::*;

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
            let builder = LockManager::builder(nodes.clone()).runtime(sim.clone());
            // Polling, so that many attempt at once.
            let builder = builder.fencing_hint(hint);
            let manager = builder.build().unwrap();
            for _ in 0..5 {
                let (manager, sim, tokens) = (manager.clone(), sim.clone(), Arc::clone(&tokens));
                sim.clone().spawn(Box::pin(async move {
                    let guard = manager.lock("r").fenced().timeout(600 * SECOND).await.unwrap();
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
        let builder = LockManager::builder(nodes.clone()).runtime(sim.clone()).ttl(200 * MS);
        let builder = builder.node_timeout(20 * MS).fencing_hint(hint);
        let manager = builder.build().unwrap();
        let (sim, seen, below) = (sim.clone(), Arc::clone(&seen), below.clone());
        sim.clone().spawn(Box::pin(async move {
            for _ in 0..25 {
                let asked = sim.elapsed();
                if let Ok(guard) = manager.lock("r").no_wait().fenced().await {
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
fn the_same_seed_gives_the_same_tokens() {
    let run = || {
        let world = World::new(3);
        world.sim.advance(17 * MS);
        token(&lock(&world, &world.manager()))
    };
    assert_eq!(run(), run());
}
