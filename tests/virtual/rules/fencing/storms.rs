//! Tokens among contenders, under faults.

use std::collections::HashSet;

use super::*;

/// Ten processes of five tasks each, with clocks that agree or are up to two hours apart, on nodes that are not near.
/// Each holder has a greater token than all before, and few need a second round. Rule FT1.
#[test]
fn of_fifty_contenders_each_has_a_greater_token_than_all_before() {
    for (nodes, apart, most) in [(3, 0, 5), (5, 0, 5), (3, 2 * HOUR, 250), (5, 2 * HOUR, 250)] {
        let world = World::new(nodes);
        for node in &world.nodes {
            node.add_rule(Rule::new(Effect::Delay { least: MS / 10, most: 2 * MS }));
        }
        let tokens: Arc<Mutex<Vec<FencingToken>>> = Arc::default();
        for process in 0..10 {
            let clock = world.sim.clone();
            let hint = move || clock.unix_micros() - apart / 2 + process * apart / 10;
            let manager = world.builder().fencing_hint(hint).build().unwrap();
            for _ in 0..5 {
                let (manager, sim) = (manager.clone(), world.sim.clone());
                let tokens = Arc::clone(&tokens);
                world.sim.spawn(Box::pin(async move {
                    for _ in 0..20 {
                        let request = manager.lock("r").fenced().timeout(600 * SECOND);
                        let guard = request.await.unwrap();
                        tokens.lock().unwrap().push(guard.fencing_token().unwrap());
                        sim.sleep(MS).await;
                        assert!(guard.is_valid());
                        guard.release().await.unwrap();
                    }
                }));
            }
        }
        world.sim.settle();
        let tokens = tokens.lock().unwrap();
        assert_eq!(tokens.len(), 1_000);
        assert!(tokens.windows(2).all(|two| two[0] < two[1]), "{nodes} nodes: {tokens:?}");
        let raises = world.log.calls().into_iter().filter(|call| call.operation == "raise");
        let raised: HashSet<Vec<u8>> = raises.map(|call| call.token).collect();
        assert!(raised.len() <= most, "{nodes} nodes, {apart} µs apart: {}", raised.len());
    }
}

/// Twenty locks that share one number, on nodes that hear of them in different orders: no answer
/// need be that of another node, and a raise may find that another attempt went further.
#[test]
fn locks_that_share_a_number_do_not_keep_each_other_out() {
    let share = |name: &String| counter(name) == counter("a0");
    let names: Vec<String> = (0..).map(|n| format!("a{n}")).filter(share).take(20).collect();
    for seed in 0..8 {
        let sim = Sim::new(seed);
        let nodes = MemoryNode::cluster(5, sim.clone());
        for node in &nodes {
            node.add_rule(Rule::new(Effect::Delay { least: MS / 10, most: 2 * MS }));
        }
        let done = Arc::new(Mutex::new(0));
        for name in &names {
            let builder = LockManager::builder(nodes.clone()).runtime(sim.clone());
            let manager = builder.fencing_hint(|| 0).build().unwrap();
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
