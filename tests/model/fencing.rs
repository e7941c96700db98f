//! Fencing tokens over a quorum: the protocol has no counterexample, and each near miss has one.

#![allow(clippy::print_stdout, reason = "what was explored belongs to the result")]

use std::collections::HashSet;

use quorate_model::case::Case;
use quorate_model::check::{explore, search};
use quorate_model::world::{ALL_CONFIRMED, ALL_VOTED, World};
use stateright::{Expectation, Model as _};

/// So many the first, hash-compacted search of this protocol's forerunner had.
const STATES: usize = 1_700_000;

#[test]
fn tokens_are_unique_and_in_order_whatever_is_late_or_lost() {
    let report = explore(&Case::two());
    println!("{report}");
    assert_eq!(report.violated, []);
    assert!(report.states > STATES, "{report}");
    assert!([ALL_CONFIRMED, ALL_VOTED].iter().all(|way| report.reached.contains(way)), "{report}");
}

#[test]
fn each_near_miss_has_a_counterexample() {
    for (case, properties) in Case::near_misses() {
        for property in properties {
            let report = search(&case, property);
            let run = report.run(property);
            println!("{report}\n{property} is violated:\n{}", run.unwrap_or("NOT FOUND"));
            assert!(run.is_some_and(|run| run.lines().count() > 5), "{}: {property}", case.name);
        }
    }
}

/// The checker keeps hashes, and one state for all that differ in the names of nodes. Here states are
/// kept whole, and all of them.
#[test]
fn a_plain_search_of_whole_states_agrees_with_the_checker() {
    let case = Case::<2> {
        is_lossy: false,
        is_late: false,
        is_extended: false,
        ..Case::new("two attempts, nothing lost or too late")
    };
    let mut found: HashSet<World<2>> = case.init_states().into_iter().collect();
    let mut open: Vec<_> = found.iter().copied().collect();
    while let Some(world) = open.pop() {
        for property in case.properties() {
            let is_wrong =
                property.expectation == Expectation::Always && !(property.condition)(&case, &world);
            assert!(!is_wrong, "{}: {world:?}", property.name);
        }
        open.extend(case.next_states(&world).into_iter().filter(|next| found.insert(*next)));
    }
    let distinct: HashSet<_> = found.iter().map(World::representative).collect();
    let report = explore(&case);
    println!("{report}\n{} whole states, {} but for names", found.len(), distinct.len());
    assert!(report.is_proof());
    assert_eq!(report.states, distinct.len());
}
