//! The order of tokens: each holder of a name has a greater one than all before, however many names each of them has.

use std::collections::HashMap;

use super::*;
use crate::world::Wall;

/// How many contend.
const PROCESSES: u64 = 6;

/// The last token of each name.
type Last = HashMap<&'static str, u64>;

/// Notes the token of a holder of these names.
fn note(last: &mut Last, names: &[&'static str], token: u64, place: &str) {
    for name in names {
        let before = last.insert(name, token).unwrap_or(0);
        assert!(token > before, "{place}, {name} of {names:?}: {token} after {before}");
    }
}

/// One holder after the other, with one name or several. Each time another node is down, so the counters of the nodes
/// differ.
#[test]
fn ft1_a_later_holder_of_any_of_the_names_has_the_greater_token() {
    let requests: [&[&str]; 12] = [
        &["b"],
        &["b"],
        &["b"],
        &["a", "b"],
        &["a"],
        &["c"],
        &["a", "b", "c"],
        &["c"],
        &["b"],
        &["b", "c"],
        &["c"],
        &["b"],
    ];
    assert!(counter("a") != counter("b") && counter("b") != counter("c"), "each has its own");
    for (new, nodes) in World::KINDS.into_iter().flat_map(|new| [(new, 3), (new, 5)]) {
        let world = new(nodes);
        let manager = counting(&world);
        let mut last = Last::new();
        for (turn, names) in requests.into_iter().enumerate() {
            let down = turn % nodes;
            world.inject(down..=down, Fault::Down);
            let guard = world.run(manager.lock(names).fenced()).unwrap();
            note(&mut last, names, token(&guard), &format!("{nodes} nodes, turn {turn}"));
            release(&world, guard);
            world.heal();
        }
        assert!(world.log.count("raise") > 0, "the nodes differed");
    }
}

/// The number does not reach a second node, and its holder dies. Then the node that gave the number is down.
#[test]
fn ft1_a_number_that_no_quorum_has_confirmed_is_no_token() {
    for lost in [Effect::DropRequest, Effect::DropReply, Effect::Cut] {
        let world = World::new(3);
        let manager = counting(&world);
        stand_at(&world, &[3, 9, 3]);
        world.inject(2.., Fault::Down);
        world.nodes[0].add_rule(Rule::new(lost).on(Operation::Raise));
        let first = world.run(manager.lock("r").no_wait().fenced());
        let before = first.as_ref().map_or(0, token);
        std::mem::forget(first);
        world.advance(20 * SECOND);
        world.nodes[0].clear_rules();
        world.heal();
        world.inject(1..2, Fault::Down);
        let next = token(&lock(&world, &manager));
        assert!(next > before && before == 0, "{lost:?}: {next} after {before}");
    }
}

/// Processes without clocks, or with clocks that differ, want sets of names that overlap. One node after the other is
/// down, and messages are lost. Some holders die, and some hand the lock over.
#[test]
fn ft1_the_tokens_of_each_name_rise_among_contenders_that_die_or_hand_it_over() {
    let sets: [&[&str]; 7] =
        [&["a"], &["b"], &["c"], &["a", "b"], &["b", "c"], &["c", "a"], &["c", "b", "a"]];
    for (seed, apart) in (0..4).flat_map(|seed| [(seed, None), (seed, Some(2 * HOUR))]) {
        let sim = Sim::new(seed);
        let nodes = MemoryNode::cluster(if seed % 2 == 0 { 3 } else { 5 }, sim.clone());
        for node in &nodes {
            node.add_rule(Rule::new(Effect::Delay { least: MS / 10, most: 2 * MS }));
            for lost in [Effect::DropRequest, Effect::DropReply] {
                node.add_rule(Rule::new(lost).on(Operation::Raise).chance(300_000));
            }
        }
        let last = Arc::new(Mutex::new(Last::new()));
        let done = Arc::new(Mutex::new(0));
        let (one_is_down, clock, all) = (nodes.clone(), sim.clone(), Arc::clone(&done));
        sim.spawn(Box::pin(async move {
            for node in one_is_down.iter().cycle() {
                if *all.lock().unwrap() == PROCESSES {
                    break;
                }
                node.inject(Fault::Down);
                clock.sleep(50 * MS).await;
                node.heal();
            }
        }));
        for process in 0..PROCESSES {
            let (sim, clock) = (sim.clone(), sim.clone());
            // Without clocks, the numbers are counted one by one.
            let hint =
                move || apart.map_or(0, |apart| clock.unix_micros() + process * apart / PROCESSES);
            let builder = || LockManager::builder(nodes.clone()).runtime(sim.clone());
            let manager = builder().runtime(Wall::new(&sim, hint)).build().unwrap();
            let other = builder().build().unwrap();
            let (last, done, world) = (Arc::clone(&last), Arc::clone(&done), sim.clone());
            sim.spawn(Box::pin(async move {
                for _ in 0..12 {
                    let names = sets[usize::try_from(world.random_below(7)).unwrap()];
                    let request = manager.lock(names).fenced().ttl(2 * SECOND);
                    let guard = request.wait_forever().await.unwrap();
                    note(&mut last.lock().unwrap(), names, token(&guard), &format!("seed {seed}"));
                    world.sleep(MS).await;
                    match world.random_below(4) {
                        0 => std::mem::forget(guard),
                        1 => {
                            let record = guard.detach().unwrap();
                            if let Ok(adopted) = other.adopt(&record).await {
                                assert_eq!(adopted.fencing_token(), record.fencing_token());
                            }
                        }
                        _ => drop(guard),
                    }
                }
                *done.lock().unwrap() += 1;
            }));
        }
        sim.settle();
        assert_eq!(*done.lock().unwrap(), PROCESSES, "seed {seed}");
    }
}
