//! The contract of a backend: all cases in their order.

use std::time::Instant;

use quorate_core::backend::Capabilities;
use quorate_core::runtime::BoxFuture;

use super::bench::{Bench, Checked};
use super::script::scripts;
use super::{Failure, Testbed, calls, order};

type Case = for<'a> fn(&'a Bench<'a>) -> BoxFuture<'a, Checked>;

/// The cases that are code. The others are in `cases.txt`.
const CASES: [(Capabilities, &str, Case); 6] = [
    (Capabilities::NONE, "names are bytes, of any length", |b| Box::pin(calls::binary(b))),
    (Capabilities::NONE, "of many at once, one is granted", |b| Box::pin(calls::one_of_many(b))),
    (Capabilities::NONE, "a call that is dropped or given up disturbs no other", |b| {
        Box::pin(calls::dropped(b))
    }),
    (Capabilities::ORDERED, "calls take effect in the order of their begins", |b| {
        Box::pin(order::calls(b))
    }),
    (Capabilities::ORDERED, "calls of one moment have each its own answer", |b| {
        Box::pin(order::together(b))
    }),
    (
        Capabilities::QUEUE,
        "a leave and a release that asks see what the call before them did",
        |b| Box::pin(order::queue(b)),
    ),
];

/// Checks the contract of `LockBackend`, and returns the names of the cases that were run.
///
/// What only some backends can do is checked on those whose
/// [`capabilities`](quorate_core::backend::LockBackend::capabilities) say so. Every other backend
/// must fail such a call as unsupported, with nothing sent.
///
/// Run it on a node that no other program uses. The keys begin with `quorate:conformance:`. They
/// are removed before and after, as are their fencing numbers and what the restart guard keeps. A
/// backend with a wait queue takes about 2 s.
///
/// # Errors
///
/// The first [`Failure`].
///
/// # Cancel safety
///
/// If the future is dropped, keys of the open case are left on the node. The next run removes them.
pub async fn backend(testbed: &dyn Testbed) -> Result<Vec<&'static str>, Failure> {
    let (backend, runtime) = (&testbed.backend(), &testbed.runtime());
    // No two cases have the same keys: a call that was dropped may set a key later.
    let bench = |number| Bench { testbed, backend, runtime, number, started: Instant::now() };
    let can = |needs| backend.capabilities().contains(needs);
    let mut passed = Vec::new();
    for script in scripts().filter(|script| can(script.needs)) {
        let bench = bench(passed.len());
        bench.run(script.name, script.play(&bench)).await?;
        passed.push(script.name);
    }
    for (_, case, check) in CASES.into_iter().filter(|(needs, ..)| can(*needs)) {
        let bench = bench(passed.len());
        bench.run(case, check(&bench)).await?;
        passed.push(case);
    }
    Ok(passed)
}
