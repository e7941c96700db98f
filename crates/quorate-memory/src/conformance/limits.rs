//! What a backend was not built for, and the id of its server.

use std::time::Duration;

use quorate_core::backend::{AcquireOptions, Capabilities, Entry, ReleaseOptions};
use quorate_core::{BackendError, FenceHint, FencingToken, RestartGuard};

use super::bench::{Bench, Checked, granted, text};
use super::ensure;

pub(super) async fn unsupported(bench: &Bench<'_>) -> Checked {
    let (backend, claim) = (bench.backend, bench.claim("a", 1)?);
    let (key, entry, number) = (bench.key("a")?, Entry::new(*b"entry"), FencingToken::MAX);
    if !bench.can(Capabilities::FENCING) {
        let mut options = AcquireOptions::default();
        options.fencing = Some(FenceHint::default());
        not_sent("acquire with a fencing hint", backend.acquire(&claim, options).await)?;
        let mut options = ReleaseOptions::default();
        options.raise_to = Some(number);
        not_sent("release with a number", backend.release(&claim, options).await)?;
        not_sent("raise", backend.raise(&claim, number).await)?;
    }
    if !bench.can(Capabilities::GUARD) {
        let mut options = AcquireOptions::default();
        options.guard = Some(RestartGuard::strict(Duration::from_secs(120)));
        not_sent("acquire with a restart guard", backend.acquire(&claim, options).await)?;
    }
    if !bench.can(Capabilities::QUEUE) {
        not_sent("refresh", backend.queue_refresh(&key, &entry, &[]).await)?;
        not_sent("leave", backend.queue_leave(&key, &entry, None).await)?;
    }
    if !bench.can(Capabilities::WATCH) {
        not_sent("watch", backend.watch(&key, None).await)?;
    }
    if !bench.can(Capabilities::INSPECT) {
        not_sent("inspect", backend.inspect(&key).await)?;
    }
    if !bench.can(Capabilities::SERVER_ID) {
        not_sent("server id", backend.server_id().await)?;
    }
    ensure!(!bench.is_there("a").await?, "a call that is not supported set the key");
    // A question may be left without an answer, but fails no call.
    let mut options = AcquireOptions::default();
    options.waiters = true;
    let seen = backend.acquire(&claim, options).await;
    granted("acquire with a question", seen.map(|acquired| acquired.vote))
}

fn not_sent<T: std::fmt::Debug>(what: &str, seen: Result<T, BackendError>) -> Checked {
    let is_not_sent = seen.as_ref().is_err_and(BackendError::is_not_sent);
    ensure!(is_not_sent, "{what} is not supported, and the result is {seen:?}");
    Ok(())
}

pub(super) async fn server_id(bench: &Bench<'_>) -> Checked {
    let first = bench.backend.server_id().await.map_err(text)?;
    ensure!(first.as_deref() != Some(""), "the id is empty");
    let second = bench.backend.server_id().await.map_err(text)?;
    ensure!(first == second, "first {first:?}, then {second:?}");
    Ok(())
}
