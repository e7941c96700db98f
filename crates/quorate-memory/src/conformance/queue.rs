//! Wait queues: the REFRESH and LEAVE of `TURN.md`.

use std::time::Duration;

use quorate_core::backend::{
    AcquireOptions, Capabilities, Entry, ExtendOptions, Refreshed, ReleaseOptions,
};

use super::bench::{Bench, Checked, text};
use super::ensure;
use super::watch::notified;

/// How long an entry lives after a refresh.
const ENTRY_TTL: Duration = Duration::from_secs(2);

fn entries<const N: usize>() -> [Entry; N] {
    std::array::from_fn(|number| Entry::new(format!("entry-{number}").into_bytes()))
}

/// Refreshes an entry in the queue of `name`, for a lock over `locks`.
async fn refresh(
    bench: &Bench<'_>,
    name: u8,
    entry: &Entry,
    locks: &[u8],
) -> Result<Refreshed, String> {
    let locks: Vec<_> = locks.iter().map(|lock| bench.key(*lock)).collect::<Result<_, _>>()?;
    bench.backend.queue_refresh(&bench.key(name)?, entry, &locks).await.map_err(text)
}

/// Refreshes an entry, which is behind `predecessor`, in a queue that begins with `first`.
async fn waits(
    bench: &Bench<'_>,
    entry: &Entry,
    predecessor: Option<&Entry>,
    first: &Entry,
) -> Checked {
    let seen = refresh(bench, b'a', entry, b"a").await?;
    let expected = (predecessor, first);
    ensure!((seen.predecessor.as_ref(), &seen.first) == expected, "{seen:?}, not {expected:?}");
    Ok(())
}

/// Removes entries; `is_left` says whether any other one waits.
async fn leaves(bench: &Bench<'_>, entry: &Entry, also: Option<&Entry>, is_left: bool) -> Checked {
    let seen = bench.backend.queue_leave(&bench.key(b'a')?, entry, also).await.map_err(text)?;
    ensure!(seen == is_left, "an entry is left: {seen}");
    Ok(())
}

pub(super) async fn in_order(bench: &Bench<'_>) -> Checked {
    let [a, b, c, d, other] = entries();
    refresh(bench, b'b', &other, b"b").await?;
    for _ in 0..2 {
        bench.testbed.forget_scripts().await;
        // Not in the order of their names.
        waits(bench, &c, None, &c).await?;
        waits(bench, &a, Some(&c), &c).await?;
        waits(bench, &b, Some(&a), &c).await?;
        // A refresh keeps the place.
        waits(bench, &a, Some(&c), &c).await?;
        waits(bench, &c, None, &c).await?;
        bench.testbed.forget_scripts().await;
        leaves(bench, &a, None, true).await?;
        waits(bench, &b, Some(&c), &c).await?;
        // An entry that joins again is the last one.
        waits(bench, &a, Some(&b), &c).await?;
        waits(bench, &d, Some(&a), &c).await?;
        // A process that attempts out of turn takes the first entry with it.
        leaves(bench, &a, Some(&c), true).await?;
        waits(bench, &d, Some(&b), &b).await?;
        leaves(bench, &d, None, true).await?;
        leaves(bench, &d, None, true).await?;
        leaves(bench, &b, None, false).await?;
    }
    leaves(bench, &a, Some(&c), false).await
}

pub(super) async fn held(bench: &Bench<'_>) -> Checked {
    let [entry] = entries();
    let held = |locks: &'static [u8]| async {
        Ok::<_, String>(refresh(bench, b'a', &entry, locks).await?.held)
    };
    ensure!(held(b"abc").await?.is_none(), "a free lock is reported as held");
    let (b, c) = (bench.claim(b"b", 1)?, bench.claim(b"c", 2)?);
    bench.must_acquire(&b).await?;
    let seen = held(b"abc").await?;
    ensure!(seen == Some(1), "the second key is held, and {seen:?} is reported");
    ensure!(held(b"a").await?.is_none(), "a key of another lock counts");
    bench.must_acquire(&c).await?;
    let seen = held(b"abc").await?;
    ensure!(seen == Some(2), "the last key that is held is the third, and {seen:?} is reported");
    bench.expire(b'c').await?;
    bench.must_release(&b).await?;
    ensure!(held(b"abc").await?.is_none(), "a released lock is reported as held");
    if bench.put_list(bench.key(b'a')?.as_bytes()).await {
        ensure!(held(b"a").await?.is_none(), "a key without an expiry does not count as free");
    }
    Ok(())
}

pub(super) async fn expires(bench: &Bench<'_>) -> Checked {
    let [a, b] = entries();
    waits(bench, &a, None, &a).await?;
    waits(bench, &b, Some(&a), &a).await?;
    bench.testbed.pass(ENTRY_TTL + Duration::from_millis(1)).await;
    waits(bench, &b, None, &b).await?;
    waits(bench, &a, Some(&b), &b).await?;
    leaves(bench, &a, Some(&b), false).await
}

pub(super) async fn hint(bench: &Bench<'_>) -> Checked {
    let [entry] = entries();
    // In another order than that of the names: the queue is that of the first key in sorted order.
    let claim = bench.claim(b"ba", 1)?;
    for waits in [false, true] {
        if waits {
            refresh(bench, b'a', &entry, b"ab").await?;
        }
        let expected = Some(waits);
        let (mut acquire, mut extend) = (AcquireOptions::default(), ExtendOptions::default());
        let mut release = ReleaseOptions::default();
        (acquire.waiters, extend.waiters, release.waiters) = (true, true, true);
        let seen = bench.backend.acquire(&claim, acquire).await.map_err(text)?.waiters;
        ensure!(seen == expected, "with an acquire, {seen:?} instead of {expected:?}");
        let seen = bench.backend.extend(&claim, extend).await.map_err(text)?.waiters;
        ensure!(seen == expected, "with an extension, {seen:?} instead of {expected:?}");
        let seen = bench.backend.release(&claim, release).await.map_err(text)?.waiters;
        ensure!(seen == expected, "with a release, {seen:?} instead of {expected:?}");
    }
    leaves(bench, &entry, None, false).await
}

pub(super) async fn watched(bench: &Bench<'_>) -> Checked {
    let [a, b] = entries();
    let key = bench.key(b'a')?;
    waits(bench, &a, None, &a).await?;
    waits(bench, &b, Some(&a), &a).await?;
    if bench.can(Capabilities::WATCH) {
        let watched = bench.backend.watch(&key, Some(&a)).await.map_err(text)?;
        ensure!(watched.is_held(), "the key of an entry that waits is not there");
        leaves(bench, &a, None, true).await?;
        let after = bench.backend.watch(&key, Some(&a)).await.map_err(text)?;
        ensure!(!after.is_held(), "the key of an entry that left is still there");
        notified(bench, watched, "the entry that left").await?;
    }
    leaves(bench, &b, Some(&a), false).await
}
