//! The attempt breaks no promise in any order of events, and each wrong idea breaks one.

#![allow(clippy::print_stdout, reason = "what was explored belongs to the result")]

use quorate_model::{Case, Size, limits, near_misses, promises, tokens};

fn check(cases: Vec<Case>) {
    for case in cases {
        let report = case.run();
        println!("{report}");
        let way = report.violation.as_ref().map_or("", |(_, way)| way);
        assert!(case.is_as_expected(&report), "{report}\n{way}");
    }
}

#[test]
fn no_order_of_events_breaks_an_attempt_on_ordered_connections() {
    check(promises(Size::Usual, true));
}

#[test]
fn no_order_of_events_breaks_an_attempt_on_pools() {
    check(promises(Size::Usual, false));
}

#[test]
fn tokens_are_unique_and_in_order_whatever_is_late_or_lost() {
    check(tokens(Size::Usual));
}

#[test]
fn each_near_miss_has_a_counterexample() {
    check(near_misses());
}

#[test]
fn a_key_that_no_client_can_prevent_is_possible() {
    check(limits());
}

/// Built with `--cfg quorate_planted` only.
#[cfg(quorate_planted)]
mod planted {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// The names of all planted points in the sources of the attempt.
    fn points() -> BTreeSet<String> {
        let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/quorate-core/src");
        let folder = fs::read_dir(core.join("algorithm/attempt")).unwrap();
        let files = folder.map(|entry| entry.unwrap().path());
        let text: String = files
            .chain([core.join("algorithm/attempt.rs")])
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        let names = text.split("planted!(\"").skip(1);
        names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    }

    #[test]
    fn each_wrong_idea_breaks_a_promise() {
        let mut points = points();
        for (name, report) in quorate_model::wrong_ideas() {
            println!("{name:<30} {report}");
            assert!(report.violation.is_some(), "{name} is not found: {report}");
            points.remove(name);
        }
        // Wrong ideas about speed, about the reason of an error, and one that is planted in the lease
        // as well: a table or a rule sees each.
        for name in [
            "clients_bound_their_calls",
            "errors_mean_held",
            "expired_lease_is_extended",
            "slowest_node_is_waited_for",
        ] {
            assert!(points.remove(name), "{name} is not planted");
        }
        assert_eq!(points, BTreeSet::new(), "points that nobody looks for");
    }
}
