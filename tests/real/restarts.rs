//! Nodes lose their data while locks are held, in short. `cargo xtask restarts` does it at length.

#![expect(clippy::print_stdout, reason = "figures")]

use std::time::Duration;

use quorate_restarts::{Guard, Plan, run};
use quorate_tests::wait::times;

/// A run that does what its plan promises.
fn run_as_planned(nodes: usize, cycles: u32, guard: Guard) {
    let plan = Plan {
        nodes,
        cycles,
        ttl: Duration::from_millis(500),
        guard,
        seed: 1,
        program: env!("CARGO_BIN_EXE_restarts").into(),
    };
    let figures = run(&plan);
    println!("{nodes} nodes, guard {}\n{figures}", guard.word());
    assert_eq!(figures.judge(&plan), Ok(()));
}

#[test]
fn with_the_guard_nobody_overlaps_and_no_token_falls_on_three_nodes() {
    run_as_planned(3, times(5, 10), Guard::On);
}

#[test]
fn with_the_guard_nobody_overlaps_and_no_token_falls_on_five_nodes() {
    run_as_planned(5, times(8, 15), Guard::On);
}

/// And so the other two would see it.
#[test]
fn without_the_guard_two_hold_one_lock_and_the_stale_one_is_refused() {
    run_as_planned(3, times(4, 8), Guard::Off);
}
