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
