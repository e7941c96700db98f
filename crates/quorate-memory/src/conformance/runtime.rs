//! The contract of a runtime.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use quorate_core::Runtime;
use quorate_core::runtime::BoxFuture;

use super::bench::Checked;
use super::{Failure, ensure};

/// Far longer than a background task needs to be run once.
const LIMIT: Duration = Duration::from_secs(30);

/// Checks the contract of [`Runtime`], and returns the names of the cases.
///
/// Sleeps for some 50 ms on the clock of the runtime.
///
/// # Errors
///
/// The first [`Failure`].
///
/// # Cancel safety
///
/// The future can be dropped at any time. Tasks that it has spawned end by themselves, 10 ms later
/// at most.
pub async fn runtime(runtime: &Arc<dyn Runtime>) -> Result<Vec<&'static str>, Failure> {
    let cases: [(&'static str, BoxFuture<'_, Checked>); 5] = [
        ("the clock never goes back", Box::pin(monotonic(runtime))),
        ("a sleep is never early, by the same clock", Box::pin(never_early(runtime))),
        ("a sleep until the past ends at once", Box::pin(past(runtime))),
        ("a spawned task runs on its own", Box::pin(spawns(runtime))),
        ("randomness does not repeat", Box::pin(random(runtime))),
    ];
    let mut passed = Vec::new();
    for (case, check) in cases {
        check.await.map_err(|detail| Failure { case, detail })?;
        passed.push(case);
    }
    Ok(passed)
}

async fn monotonic(runtime: &Arc<dyn Runtime>) -> Checked {
    let mut before = runtime.now();
    for _ in 0..10_000 {
        let now = runtime.now();
        ensure!(now >= before, "back by {:?}", before - now);
        before = now;
    }
    Ok(())
}

async fn never_early(runtime: &Arc<dyn Runtime>) -> Checked {
    for sleep_until in [<dyn Runtime>::sleep_until, <dyn Runtime>::long_sleep_until] {
        for micros in [1, 100, 999, 1_000, 1_500, 3_333, 10_000] {
            let start = runtime.now();
            let deadline = start + Duration::from_micros(micros);
            sleep_until(&**runtime, deadline).await;
            let now = runtime.now();
            ensure!(now >= deadline, "{micros} µs took {:?}", now - start);
        }
    }
    Ok(())
}

async fn past(runtime: &Arc<dyn Runtime>) -> Checked {
    let now = runtime.now();
    let past = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
    for deadline in [past, now] {
        for sleep in [runtime.sleep_until(deadline), runtime.long_sleep_until(deadline)] {
            let ended = select(sleep, runtime.sleep_until(now + LIMIT)).await;
            ensure!(matches!(ended, Either::Left(_)), "it slept for {LIMIT:?}");
        }
    }
    Ok(())
}

/// Only waits for what the tasks send, and polls none of them.
async fn spawns(runtime: &Arc<dyn Runtime>) -> Checked {
    let (sender, woken) = channel::<(Instant, Instant)>();
    for millis in [0, 10, 1] {
        let (there, sender) = (Arc::clone(runtime), sender.clone());
        let deadline = runtime.now() + Duration::from_millis(millis);
        runtime.spawn(Box::pin(async move {
            there.sleep_until(deadline).await;
            // Nobody listens if the suite was dropped.
            let _ = sender.send((deadline, there.now()));
        }));
    }
    let (mut tasks, limit) = (3, runtime.now() + LIMIT);
    while tasks > 0 {
        while let Ok((deadline, woken)) = woken.try_recv() {
            ensure!(woken >= deadline, "a task's sleep was early by {:?}", deadline - woken);
            tasks -= 1;
        }
        ensure!(runtime.now() < limit, "a task did not end within {LIMIT:?}");
        runtime.sleep_until(runtime.now() + Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn random(runtime: &Arc<dyn Runtime>) -> Checked {
    let mut drawn = [[0; 20]; 64];
    for bytes in &mut drawn {
        runtime.fill_random(bytes).map_err(|error| error.to_string())?;
    }
    drawn.sort_unstable();
    ensure!(drawn[0] != [0; 20], "the bytes were not filled");
    ensure!(drawn.windows(2).all(|pair| pair[0] != pair[1]), "two of 64 draws are equal");
    Ok(())
}
