//! Watches of keys.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, poll_immediate, select};
use quorate_core::backend::Watched;
use quorate_core::{BackendErrorKind, Key, Vote};

use super::bench::{Bench, Checked, failed, text, ttl, voted};
use super::ensure;

/// Far longer than a notification takes on any machine.
const LIMIT: Duration = Duration::from_secs(30);

async fn watch(bench: &Bench<'_>, key: &Key, is_held: bool) -> Result<Watched, String> {
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
    bench.must_hold(b'a', &ours).await?;
    bench.must_live(b"a").await?;
    if bench.put_list(a.as_bytes()).await {
        failed("a list", bench.backend.watch(&a, None).await, BackendErrorKind::WrongType)?;
    }
    Ok(())
}

pub(super) async fn changes(bench: &Bench<'_>) -> Checked {
    let (a, ours, theirs) = (bench.key(b'a')?, bench.claim(b"ab", 1)?, bench.claim(b"a", 2)?);
    for is_released in [true, false] {
        let free = watch(bench, &a, false).await?;
        bench.must_acquire(&ours).await?;
        notified(bench, free, "an acquire").await?;
        let both = [watch(bench, &a, true).await?, watch(bench, &a, true).await?];
        voted("acquire of a held key", bench.acquire(&theirs).await, Vote::Refused)?;
        if is_released {
            bench.must_release(&ours).await?;
        } else {
            bench.clear().await;
        }
        for watched in both {
            notified(bench, watched, if is_released { "a release" } else { "an expiry" }).await?;
        }
    }
    // By its own ttl. It may have passed before the watch begins, if the node is far away.
    bench.must_acquire(&theirs.with_ttl(ttl(Duration::from_millis(20))?)).await?;
    let watched = bench.backend.watch(&a, None).await.map_err(text)?;
    if watched.is_held() {
        notified(bench, watched, "the end of a ttl").await?;
    }
    Ok(())
}

pub(super) async fn dropped(bench: &Bench<'_>) -> Checked {
    let (a, ours) = (bench.key(b'a')?, bench.claim(b"a", 1)?);
    bench.must_acquire(&ours).await?;
    let first = watch(bench, &a, true).await?;
    for _ in 0..16 {
        // Polled once, then dropped.
        let _ = poll_immediate(bench.backend.watch(&a, None)).await;
        drop(watch(bench, &a, true).await?);
    }
    let last = watch(bench, &a, true).await?;
    bench.must_release(&ours).await?;
    notified(bench, first, "a release, to a watch before dropped ones").await?;
    notified(bench, last, "a release, to a watch after dropped ones").await
}
