//! Those who wait for a key stand in the order in which they came.

use futures_util::future::join;
use quorate_core::protocol::queue;
use quorate_core::{BackendError, BackendErrorKind, Claim, Holder, Place, Queue, Vote};

use super::{Bench, ensure, voted};
use crate::rng::SplitMix64;

fn queue<'a>(bench: &Bench<'a>) -> Result<&'a dyn Queue, String> {
    bench.backend.queue().ok_or_else(|| "the backend keeps no queues any more".to_owned())
}

fn place(number: u64) -> Result<Place, String> {
    let drawn = Place::draw(|bytes| {
        SplitMix64::new(number).fill(bytes);
        Ok(())
    });
    drawn.map_err(|error| error.to_string())
}

async fn joins(bench: &Bench<'_>, at: &Place, behind: Option<&Place>) -> Result<(), String> {
    let before = queue(bench)?.join(&bench.key(b'a')?, at).await;
    let before = before.map_err(|error| format!("a place in the queue: {error}"))?;
    ensure!(before.as_ref() == behind, "{at:?} stands behind {before:?} instead of {behind:?}");
    Ok(())
}

async fn leaves(bench: &Bench<'_>, at: &Place, before: Option<&Place>) -> Result<(), String> {
    let left = queue(bench)?.leave(&bench.key(b'a')?, at, before).await;
    left.map_err(|error| format!("leaving the queue: {error}"))
}

pub(super) async fn in_order(bench: &Bench<'_>) -> Result<(), String> {
    let places: Vec<Place> = (1..=4).map(place).collect::<Result<_, _>>()?;
    let [first, second, third, fourth] = places.as_slice() else { return Ok(()) };
    for _ in 0..2 {
        joins(bench, first, None).await?;
        joins(bench, second, Some(first)).await?;
        joins(bench, third, Some(second)).await?;
        leaves(bench, third, Some(second)).await?;
        joins(bench, third, Some(second)).await?;
        leaves(bench, second, Some(first)).await?;
        leaves(bench, third, Some(first)).await?;
        joins(bench, fourth, Some(first)).await?;
        leaves(bench, first, None).await?;
        leaves(bench, fourth, Some(first)).await?;
        for key in places.iter().map(|place| place.key().clone()) {
            let left = bench.testbed.value(key.as_bytes()).await;
            ensure!(left.is_none(), "a place that was left is still there: {key}");
        }
    }
    leaves(bench, first, None).await
}

pub(super) async fn apart(bench: &Bench<'_>) -> Result<(), String> {
    let (ours, waits) = (bench.claim(b"a", 1)?, place(1)?);
    joins(bench, &waits, None).await?;
    voted(
        "acquire of a key that is waited for",
        bench.backend.acquire(&ours).await,
        Vote::Granted,
    )?;
    let elsewhere = queue(bench)?.join(&bench.key(b'b')?, &place(2)?).await;
    ensure!(matches!(elsewhere, Ok(None)), "the queue of another key: {elsewhere:?}");
    let left = queue(bench)?.leave(&bench.key(b'b')?, &place(2)?, None).await;
    ensure!(left.is_ok(), "the queue of another key: {left:?}");
    voted("release", bench.backend.release(&ours).await, Vote::Granted)?;
    leaves(bench, &waits, None).await
}

pub(super) async fn watched(bench: &Bench<'_>) -> Result<(), String> {
    let (first, second) = (place(1)?, place(2)?);
    let watcher = bench.backend.watcher().ok_or("the backend can watch no more")?;
    let look = |at| async move {
        watcher.look(Place::key(at)).await.map_err(|error| format!("a look: {error}"))
    };
    joins(bench, &first, None).await?;
    joins(bench, &second, Some(&first)).await?;
    let named = Holder::new(first.key().as_bytes());
    let seen = look(&second).await?;
    ensure!(seen.holder() == Some(&named), "a place does not hold the name of the one before it");
    let seen = look(&first).await?;
    ensure!(seen.holder() == Some(&Holder::new([])), "a first place holds something");
    let (told, left) = join(seen.changed(), leaves(bench, &first, None)).await;
    left?;
    ensure!(told.is_ok(), "it was left, and {told:?}");
    ensure!(look(&first).await?.holder().is_none(), "a place that was left is still there");
    leaves(bench, &second, None).await
}

pub(super) async fn no_queue(bench: &Bench<'_>) -> Result<(), String> {
    let (a, waits, theirs) = (bench.key(b'a')?, place(1)?, bench.claim(b"a", 2)?);
    let last = queue::last(&a);
    if bench.put_list(&last).await {
        let joined = queue(bench)?.join(&a, &waits).await;
        let kind = joined.as_ref().err().map(BackendError::kind);
        let expected = Some(BackendErrorKind::WrongType);
        ensure!(kind == expected, "a list in place of a queue: {joined:?}");
    }
    bench.testbed.expire(last.as_bytes()).await;
    // Somebody has locked what is called like the queue.
    let theirs = Claim::new([last.clone()], theirs.token().clone(), theirs.ttl());
    voted("acquire", bench.backend.acquire(&theirs).await, Vote::Granted)?;
    let joined = queue(bench)?.join(&a, &waits).await;
    let kind = joined.as_ref().err().map(BackendError::kind);
    ensure!(kind == Some(BackendErrorKind::Other), "a lock in place of a queue: {joined:?}");
    leaves(bench, &waits, None).await?;
    voted("release", bench.backend.release(&theirs).await, Vote::Granted)?;
    joins(bench, &waits, None).await?;
    leaves(bench, &waits, None).await
}
