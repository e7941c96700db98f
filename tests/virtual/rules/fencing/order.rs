//! The order of tokens: each holder of a name has a greater one than all before, however many names each of them has.

use std::collections::HashMap;

use super::*;

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
        let mut last = HashMap::new();
        for (turn, names) in requests.into_iter().enumerate() {
            let down = turn % nodes;
            world.inject(down..=down, Fault::Down);
            let guard = world.run(manager.lock(names).fenced()).unwrap();
            for name in names {
                let before = last.insert(*name, token(&guard)).unwrap_or(0);
                assert!(token(&guard) > before, "{nodes} nodes, turn {turn}, {name} of {names:?}");
            }
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
