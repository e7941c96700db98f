//! Tokens among contenders, under faults.

use std::collections::HashSet;

use super::*;

/// Ten processes of five tasks each, with clocks that agree or are up to two hours apart, on nodes that are not near.
/// Each holder has a greater token than all before, and few need a second round.
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
