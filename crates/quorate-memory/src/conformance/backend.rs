//! The contract of a backend: all cases in their order.

use std::time::Instant;

use super::bench::Bench;
use super::script::scripts;
use super::{Failure, Testbed};

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
    let mut passed = Vec::new();
    for script in scripts().filter(|script| backend.capabilities().contains(script.needs)) {
        let (number, started) = (passed.len(), Instant::now());
        let bench = Bench { testbed, backend, runtime, number, started };
        bench.run(script.name, script.play(&bench)).await?;
        passed.push(script.name);
    }
    Ok(passed)
}
