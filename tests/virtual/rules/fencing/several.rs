//! Tokens for several resources at once.

use super::*;

/// Names whose counters are, or are not, the same.
fn names_that_share(share: bool) -> [String; 2] {
    let first = "a0".to_owned();
    let same = |other: &String| counter(other) == counter(&first);
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
            let guard = world.run(manager.lock(names).fenced()).unwrap();
            for name in names {
                let last = &mut last[usize::from(*name == b)];
                assert!(token(&guard) > *last, "{names:?}: {} after {last}", token(&guard));
                *last = token(&guard);
            }
            release(&world, guard);
        }
        assert_eq!(lock_keys_left(&world), 0);
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
