//! A watch tells who has a key, and when that changes.

use std::pin::pin;

use futures_util::future::{join, join_all, poll_immediate};
use quorate_core::runtime::BoxFuture;
use quorate_core::{BackendError, BackendErrorKind, Claim, Holder, Key, Vote};

use super::{Bench, TTL, ensure, voted};

pub(super) async fn free(bench: &Bench<'_>) -> Result<(), String> {
    let a = bench.key(b'a')?;
    for _ in 0..3 {
        watch(bench, &a).await?;
        ensure!(bench.value(b'a').await?.is_none(), "a watch has set the key");
    }
    Ok(())
}

pub(super) async fn changes(bench: &Bench<'_>) -> Result<(), String> {
    let (a, ours, theirs) = (bench.key(b'a')?, bench.claim(b"ab", 1)?, bench.claim(b"a", 2)?);
    type Change = for<'a> fn(&'a Bench<'a>, &'a Claim) -> BoxFuture<'a, Result<(), String>>;
    let changes: [Change; 3] = [
        |bench, claim| {
            Box::pin(async { voted("release", bench.backend.release(claim).await, Vote::Granted) })
        },
        |bench, _| {
            Box::pin(async {
                bench.testbed.expire(bench.key(b'a')?.as_bytes()).await;
                Ok(())
            })
        },
        |bench, _| {
            Box::pin(async {
                bench.clear().await;
                bench.put_list(&bench.key(b'a')?).await;
                Ok(())
            })
        },
    ];
    for change in changes {
        voted("acquire", bench.backend.acquire(&ours).await, Vote::Granted)?;
        let both = join_all([watch(bench, &a), watch(bench, &a)]);
        let later = async {
            // By then, the node has most likely heard of the watches. It need not have.
            for _ in 0..8 {
                voted("acquire", bench.backend.acquire(&theirs).await, Vote::Refused)?;
            }
            let value = bench.value(b'a').await?;
            ensure!(value.as_deref() == Some(ours.token().as_bytes()), "a watch changed the key");
            let left = bench.time_left(b'a').await?;
            ensure!(bench.is_left(left, TTL), "of {TTL:?}, a watch left {left:?}");
            change(bench, &ours).await
        };
        let (both, later) = join(both, later).await;
        later?;
        both.into_iter().collect::<Result<(), String>>()?;
        bench.clear().await;
    }
    Ok(())
}

pub(super) async fn all(bench: &Bench<'_>) -> Result<(), String> {
    let (a, ours) = (bench.key(b'a')?, bench.claim(b"a", 1)?);
    let watcher = bench.backend.watcher().ok_or("the backend can watch no more")?;
    let look = || async { watcher.look(&a).await.map_err(|error| format!("a look: {error}")) };
    for _ in 0..3 {
        let free = look().await?;
        ensure!(free.holder().is_none(), "nobody has it, and {free:?}");
        let taken = bench.backend.acquire(&ours);
        let (told, taken) = join(free.changed(), taken).await;
        voted("acquire", taken, Vote::Granted)?;
        ensure!(told.is_ok(), "it was taken, and {told:?}");

        let held = look().await?;
        let holder = Holder::new(ours.token().as_bytes());
        ensure!(held.holder() == Some(&holder), "another holder than the one whose key it is");
        let (told, released) = join(held.changed(), bench.backend.release(&ours)).await;
        voted("release", released, Vote::Granted)?;
        ensure!(told.is_ok(), "it was released, and {told:?}");
    }
    Ok(())
}

pub(super) async fn no_lock(bench: &Bench<'_>) -> Result<(), String> {
    let a = bench.key(b'a')?;
    let watcher = bench.backend.watcher().ok_or("the backend can watch no more")?;
    if bench.put_list(&a).await {
        let seen = watcher.watch(&a).await;
        let kind = seen.as_ref().err().map(BackendError::kind);
        ensure!(kind == Some(BackendErrorKind::WrongType), "a list: {seen:?}");
    }
    bench.testbed.expire(a.as_bytes()).await;
    watch(bench, &a).await
}

pub(super) async fn dropped(bench: &Bench<'_>) -> Result<(), String> {
    let (a, ours) = (bench.key(b'a')?, bench.claim(b"a", 1)?);
    voted("acquire", bench.backend.acquire(&ours).await, Vote::Granted)?;
    let begun = || async {
        for _ in 0..16 {
            // Polled once, then dropped.
            let _ = poll_immediate(pin!(watch(bench, &a))).await;
        }
        Ok::<(), String>(())
    };
    begun().await?;
    let later = async {
        begun().await?;
        voted("acquire", bench.backend.acquire(&ours).await, Vote::Granted)?;
        begun().await?;
        voted("release", bench.backend.release(&ours).await, Vote::Granted)
    };
    let (told, later) = join(watch(bench, &a), later).await;
    later?;
    told
}

async fn watch(bench: &Bench<'_>, key: &Key) -> Result<(), String> {
    let watcher = bench.backend.watcher().ok_or("the backend can watch no more")?;
    watcher.watch(key).await.map_err(|error| format!("a watch: {error}"))
}
