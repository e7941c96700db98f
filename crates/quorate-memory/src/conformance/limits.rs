//! What a backend was built for, and what it was not; what it says about a key and its server.

use std::time::Duration;

use quorate_core::backend::Holder;
use quorate_core::backend::{AcquireOptions, Capabilities, Entry, LockBackend, ReleaseOptions};
use quorate_core::{
    BackendError, BackendErrorKind, FenceHint, FencingToken, Key, RestartGuard, Vote,
};

use super::bench::{Bench, Checked, TTL, failed, text, voted};
use super::ensure;

pub(super) async fn unsupported(bench: &Bench<'_>) -> Checked {
    let (backend, claim) = (bench.backend, bench.claim(b"a", 1)?);
    let (key, entry, number) = (bench.key(b'a')?, Entry::new(*b"entry"), FencingToken::MAX);
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
    ensure!(!bench.is_there(b'a').await?, "a call that is not supported set the key");
    bench.must_acquire(&claim).await
}

fn not_sent<T: std::fmt::Debug>(what: &str, seen: Result<T, BackendError>) -> Checked {
    let is_not_sent = seen.as_ref().is_err_and(BackendError::is_not_sent);
    ensure!(is_not_sent, "{what} is not supported, and the result is {seen:?}");
    Ok(())
}

pub(super) async fn inspects(bench: &Bench<'_>) -> Checked {
    let (a, b) = (bench.key(b'a')?, bench.key(b'b')?);
    let ours = bench.claim(b"ab", 1)?;
    let holder = Holder::new(ours.token().as_bytes());
    bench.testbed.forget_scripts().await;
    free("a free key", bench.backend, &a).await?;
    ensure!(!bench.is_there(b'a').await?, "an inspection set the key");
    bench.must_acquire(&ours).await?;
    for key in [&a, &b, &a] {
        let seen = bench.backend.inspect(key).await.map_err(text)?;
        let seen = seen.ok_or("a held key was reported as free")?;
        ensure!(seen.holder == holder, "another holder was reported");
        let left = seen.time_left.ok_or("a key that expires was reported without an expiry")?;
        ensure!(bench.is_left(left, TTL), "of {TTL:?}, {left:?} were reported");
    }
    bench.must_live(b"ab").await?;
    bench.expire(b'a').await?;
    free("an expired key", bench.backend, &a).await?;
    voted("release", bench.release(&ours).await, Vote::Refused)?;
    free("a released key", bench.backend, &b).await?;
    if bench.put_list(a.as_bytes()).await {
        failed("a list", bench.backend.inspect(&a).await, BackendErrorKind::WrongType)?;
    }
    Ok(())
}

async fn free(what: &str, backend: &dyn LockBackend, key: &Key) -> Checked {
    let seen = backend.inspect(key).await;
    ensure!(matches!(seen, Ok(None)), "{what}: {seen:?}");
    Ok(())
}

pub(super) async fn server_id(bench: &Bench<'_>) -> Checked {
    let first = bench.backend.server_id().await.map_err(text)?;
    ensure!(first.as_deref() != Some(""), "the id is empty");
    let second = bench.backend.server_id().await.map_err(text)?;
    ensure!(first == second, "first {first:?}, then {second:?}");
    Ok(())
}
