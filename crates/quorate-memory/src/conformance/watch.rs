//! Watches of keys.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join_all, poll_immediate, select};
use quorate_core::backend::Watched;
use quorate_core::{BackendErrorKind, Key, Vote};

use super::bench::{Bench, Checked, TTL, failed, ttl, voted};
use super::ensure;

/// Far longer than a notification takes on any machine.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn watch(bench: &Bench<'_>, key: &Key, is_held: bool) -> Result<Watched, String> {
    let watched =
        bench.backend.watch(key, None).await.map_err(|error| format!("watch: {error}"))?;
    ensure!(watched.is_held() == is_held, "{key} is there: {}", watched.is_held());
    Ok(watched)
}

pub(super) async fn notified(bench: &Bench<'_>, watched: Watched, what: &str) -> Checked {
    match select(pin!(watched.changed()), bench.testbed.pass(LIMIT)).await {
        Either::Left(_) => Ok(()),
        Either::Right(_) => Err(format!("{what} was not notified for {LIMIT:?}")),
    }
}

pub(super) async fn reads(bench: &Bench<'_>) -> Checked {
    let (a, ours) = (bench.key(b'a')?, bench.claim(b"a", 1)?);
    for _ in 0..3 {
        drop(watch(bench, &a, false).await?);
        ensure!(!bench.is_there(b'a').await?, "a watch set the key");
    }
    bench.must_acquire(&ours).await?;
    drop(watch(bench, &a, true).await?);
    ensure!(bench.is_held_by(b'a', &ours).await?, "a watch changed the key");
    let left = bench.time_left(b'a').await?;
    ensure!(bench.is_left(left, TTL), "of {TTL:?}, a watch left {left:?}");
    if bench.put_list(a.as_bytes()).await {
        failed("a list", bench.backend.watch(&a, None).await, BackendErrorKind::WrongType)?;
    }
    Ok(())
}

pub(super) async fn changes(bench: &Bench<'_>) -> Checked {
    let (a, ours, theirs) = (bench.key(b'a')?, bench.claim(b"ab", 1)?, bench.claim(b"a", 2)?);
    for what in ["a release", "an expiry"] {
        bench.must_acquire(&ours).await?;
        let both = [watch(bench, &a, true).await?, watch(bench, &a, true).await?];
        voted("acquire of a held key", bench.acquire(&theirs).await, Vote::Refused)?;
        match what {
            "a release" => bench.must_release(&ours).await?,
            _ => bench.expire(b'a').await?,
        }
        let notified = join_all(both.map(|watched| notified(bench, watched, what))).await;
        notified.into_iter().collect::<Checked>()?;
        bench.clear().await;
    }
    // By its own ttl. It may be over before the watch begins, if the node is far away.
    bench.must_acquire(&theirs.with_ttl(ttl(Duration::from_millis(20))?)).await?;
    let watched = bench.backend.watch(&a, None).await.map_err(|error| format!("watch: {error}"))?;
    if watched.is_held() {
        notified(bench, watched, "the end of a ttl").await?;
    }
    Ok(())
}

pub(super) async fn set(bench: &Bench<'_>) -> Checked {
    let (a, ours) = (bench.key(b'a')?, bench.claim(b"a", 1)?);
    for _ in 0..3 {
        let watched = watch(bench, &a, false).await?;
        bench.must_acquire(&ours).await?;
        notified(bench, watched, "an acquire").await?;
        bench.must_release(&ours).await?;
    }
    Ok(())
}

pub(super) async fn dropped(bench: &Bench<'_>) -> Checked {
    let (a, ours) = (bench.key(b'a')?, bench.claim(b"a", 1)?);
    bench.must_acquire(&ours).await?;
    let mut kept = Vec::new();
    for number in 0..16 {
        // Polled once, then dropped.
        let _ = poll_immediate(bench.backend.watch(&a, None)).await;
        let watched = watch(bench, &a, true).await?;
        if number % 4 == 0 {
            kept.push(watched);
        }
    }
    bench.must_release(&ours).await?;
    for watched in kept {
        notified(bench, watched, "a release after dropped watches").await?;
    }
    Ok(())
}
