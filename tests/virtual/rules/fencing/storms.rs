//! Tokens among contenders, under faults.

use std::collections::HashSet;

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

/// Ten processes of five tasks each, with clocks that agree or are up to two hours apart.
#[test]
fn fifty_that_contend_need_few_second_rounds() {
    for (nodes, apart, most) in [(3, 0, 5), (5, 0, 5), (3, 2 * HOUR, 250), (5, 2 * HOUR, 250)] {
        let world = World::new(nodes);
        for node in &world.nodes {
            node.add_rule(Rule::new(Effect::Delay { least: MS / 10, most: 2 * MS }));
        }
        let had: Arc<Mutex<usize>> = Arc::default();
        for process in 0..10 {
            let clock = world.sim.clone();
            let hint = move || clock.unix_micros() - apart / 2 + process * apart / 10;
            let manager = world.builder().fencing_hint(hint).build().unwrap();
            for _ in 0..5 {
                let (manager, sim, had) = (manager.clone(), world.sim.clone(), Arc::clone(&had));
                world.sim.spawn(Box::pin(async move {
                    for _ in 0..20 {
                        let request = manager.lock("r").fenced().timeout(600 * SECOND);
                        let guard = request.await.unwrap();
                        sim.sleep(MS).await;
                        guard.release().await.unwrap();
                        *had.lock().unwrap() += 1;
                    }
                }));
            }
        }
        world.sim.settle();
        assert_eq!(*had.lock().unwrap(), 1_000);
        let raises = world.log.calls().into_iter().filter(|call| call.operation == "raise");
        let raised: HashSet<Vec<u8>> = raises.map(|call| call.token).collect();
        assert!(raised.len() <= most, "{nodes} nodes, {apart} µs apart: {}", raised.len());
    }
}
