//! Waiting for events, under a limit that no machine reaches by being slow.
//!
//! Tests assert no bound on a real duration. A test that needs time to pass waits for the event that
//! ends the wait. Clippy's `disallowed_methods` keeps clocks and sleeps out of the tests. The few
//! exceptions beside this module give their reason with an `expect`.

#![expect(clippy::disallowed_methods, reason = "the one place where tests wait")]

use std::env;
use std::fmt::Display;
use std::future::IntoFuture;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

/// The limit of every wait. Only a broken library waits that long.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The ttl of locks that must not end while a test looks at them, however slow the machine is.
pub const LONG_TTL: Duration = Duration::from_secs(3_600);

/// How long a round listens to a node, and the pause before a failed release is sent again. Only a node
/// that never answers takes that long.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(20);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// The present, to be compared with moments that the library reports. Not for measuring.
pub fn now() -> Instant {
    Instant::now()
}

/// Blocks until `is_so` returns `true`. `what` is only shown if that fails, and is formatted then.
#[track_caller]
pub fn eventually(what: impl Display, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// Looks again and again until `is_so` returns `true`; other tasks run in between.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_it_says(what, async || is_so()).await;
}

/// Asks again and again until the answer is `true`.
pub async fn until_it_says(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !within_limit(what, is_so()).await {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Awaits `future`.
pub async fn within_limit<F: IntoFuture>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {LIMIT:?}: {what}"),
    }
}

/// Awaits `future`. With `turns`, it is dropped after so many turns of the scheduler.
pub async fn for_turns<F: IntoFuture>(turns: Option<usize>, future: F) -> Option<F::Output> {
    let Some(turns) = turns else { return Some(future.await) };
    let over = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        output = future.into_future() => Some(output),
        () = over => None,
    }
}

/// Receives a value that a thread sends; `None` if the sender has gone.
#[track_caller]
pub fn receive<T>(receiver: &Receiver<T>) -> Option<T> {
    use std::sync::mpsc::RecvTimeoutError;
    match receiver.recv_timeout(LIMIT) {
        Ok(value) => Some(value),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("nothing was sent within {LIMIT:?}"),
    }
}

/// How often to repeat something: `short` in every test run, `long` if `QUORATE_LONG` is set, as in
/// the scheduled workflow.
pub fn times<T>(short: T, long: T) -> T {
    if env::var_os("QUORATE_LONG").is_some() { long } else { short }
}
