//! Tokens among contenders, under faults.

use super::*;
use crate::world::Wall;

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
            let builder = LockManager::builder(nodes.clone()).runtime(Wall::new(&sim, || 0));
            let manager = builder.build().unwrap();
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
