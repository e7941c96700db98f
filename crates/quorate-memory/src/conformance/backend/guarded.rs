//! The contract of a node that keeps from voting while it may have forgotten.

use std::time::Duration;

use quorate_core::protocol::quarantine::{EPOCH, KEY};
use quorate_core::{
    BackendError, BackendErrorKind, Claim, FenceHint, Guarded, GuardedVote, RestartGuard, Vote,
};

use super::{Bench, GRACE, TTL, ensure, voted};

/// Not whole seconds, and longer than any ttl here.
const MAX_TTL: Duration = Duration::from_millis(120_300);

type Answer = Result<Guarded, BackendError>;

async fn acquire(bench: &Bench<'_>, claim: &Claim, hint: Option<FenceHint>) -> Answer {
    under(bench, claim, hint, MAX_TTL).await
}

async fn under(
    bench: &Bench<'_>,
    claim: &Claim,
    hint: Option<FenceHint>,
    max_ttl: Duration,
) -> Answer {
    let gone = || BackendError::new(BackendErrorKind::Other, "the backend can guard no more");
    let quarantine = bench.backend.quarantine().ok_or_else(gone)?;
    quarantine.acquire(claim, hint, RestartGuard::strict(max_ttl)).await
}

fn said(what: &str, seen: Answer, expected: GuardedVote) -> Result<(), String> {
    match seen {
        Ok(guarded) if guarded.vote == expected => Ok(()),
        seen => Err(format!("{what}: {seen:?} instead of {expected:?}")),
    }
}

/// The time left of the quarantine.
fn quarantined(what: &str, seen: Answer) -> Result<Duration, String> {
    match seen.as_ref().map(|guarded| guarded.vote) {
        Ok(GuardedVote::Quarantined { left }) => Ok(left),
        _ => Err(format!("{what}: {seen:?} instead of a quarantine")),
    }
}

const GRANTED: GuardedVote = GuardedVote::Granted(None);

pub(super) async fn begins(bench: &Bench<'_>) -> Result<(), String> {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    bench.testbed.forget_scripts().await;
    let first = quarantined("the first acquire", acquire(bench, &ours, None).await)?;
    ensure!(bench.is_left(first, MAX_TTL), "of {MAX_TTL:?}, {first:?} are left");
    let second = quarantined("the second", acquire(bench, &theirs, None).await)?;
    ensure!(second <= first, "of {first:?}, {second:?} are left");
    ensure!(bench.value(b'a').await?.is_none(), "a quarantined node has set the key");
    // Its end.
    bench.testbed.expire(KEY.as_bytes()).await;
    let granted = acquire(bench, &ours, None).await;
    let id = granted.as_ref().map(|guarded| guarded.server_id.clone()).unwrap_or_default();
    let before = granted.as_ref().map(|guarded| guarded.before.clone()).unwrap_or_default();
    said("after it", granted, GRANTED)?;
    ensure!(before.is_none(), "{before:?} is said to have been there before");
    if let Some(identity) = bench.backend.identity() {
        let told = identity.server_id().await.map_err(|error| error.to_string())?;
        ensure!(told.as_ref() == Some(&id), "it is {told:?}, and calls itself {id}");
    }
    let value = bench.value(b'a').await?;
    ensure!(value.as_deref() == Some(ours.token().as_bytes()), "the value is not the token");
    let left = bench.time_left(b'a').await?;
    ensure!(bench.is_left(left, TTL), "of {TTL:?}, {left:?} are left");
    said("acquire of a taken key", acquire(bench, &theirs, None).await, GuardedVote::Refused)?;
    voted("acquire without", bench.backend.acquire(&theirs).await, Vote::Refused)?;
    voted("release", bench.backend.release(&ours).await, Vote::Granted)?;
    said("acquire", acquire(bench, &theirs, None).await, GRANTED)
}

pub(super) async fn knows(bench: &Bench<'_>) -> Result<(), String> {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    quarantined("the first acquire", acquire(bench, &ours, None).await)?;
    bench.testbed.expire(KEY.as_bytes()).await;
    said("after it", acquire(bench, &ours, None).await, GRANTED)?;
    // Something was lost, though not this.
    bench.testbed.expire(EPOCH.as_bytes()).await;
    quarantined("acquire of a taken key", acquire(bench, &theirs, None).await)?;
    said("acquire, sent twice", acquire(bench, &ours, None).await, GRANTED)?;
    voted("extend", bench.backend.extend(&ours).await, Vote::Granted)?;
    voted("extend by another", bench.backend.extend(&theirs).await, Vote::Refused)?;
    voted("release by another", bench.backend.release(&theirs).await, Vote::Refused)?;
    voted("release", bench.backend.release(&ours).await, Vote::Granted)?;
    quarantined("acquire of what was released", acquire(bench, &ours, None).await)?;
    if !bench.put_list(&bench.key(b'a')?).await {
        return Ok(());
    }
    let seen = acquire(bench, &ours, None).await;
    let kind = seen.as_ref().err().map(BackendError::kind);
    ensure!(kind == Some(BackendErrorKind::WrongType), "a list: {seen:?}");
    Ok(())
}

pub(super) async fn restarts(bench: &Bench<'_>) -> Result<(), String> {
    let claim = bench.claim(b"a", 1)?;
    quarantined("the first acquire", acquire(bench, &claim, None).await)?;
    bench.testbed.expire(KEY.as_bytes()).await;
    said("after it", acquire(bench, &claim, None).await, GRANTED)?;
    voted("release", bench.backend.release(&claim).await, Vote::Granted)?;
    if bench.testbed.restart().await {
        let left = quarantined("after a restart", acquire(bench, &claim, None).await)?;
        ensure!(bench.is_left(left, MAX_TTL), "of {MAX_TTL:?}, {left:?} are left");
    }
    Ok(())
}

pub(super) async fn disagrees(bench: &Bench<'_>) -> Result<(), String> {
    let claim = bench.claim(b"a", 1)?;
    let left = quarantined("the first acquire", acquire(bench, &claim, None).await)?;
    for other in [MAX_TTL - GRACE, MAX_TTL + GRACE] {
        let seen = under(bench, &claim, None, other).await;
        let text = seen.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let kind = seen.as_ref().err().map(BackendError::kind);
        ensure!(kind == Some(BackendErrorKind::MaxTtl), "another max_ttl: {seen:?}");
        for max_ttl in [MAX_TTL, other] {
            ensure!(
                text.contains(&max_ttl.as_millis().to_string()),
                "it does not tell both: {text}"
            );
        }
    }
    let now = quarantined("the next", acquire(bench, &claim, None).await)?;
    ensure!(now <= left, "of {left:?}, {now:?} are left");
    Ok(())
}

pub(super) async fn together(bench: &Bench<'_>) -> Result<(), String> {
    let (all, b) = (bench.claim(b"abc", 1)?, bench.claim(b"b", 2)?);
    quarantined("the first acquire", acquire(bench, &all, None).await)?;
    bench.testbed.expire(KEY.as_bytes()).await;
    let hints = [None, FenceHint::new(7).filter(|_| bench.backend.fencer().is_some())];
    for hint in hints {
        let first = acquire(bench, &b, hint).await.map_err(|error| error.to_string())?;
        let GuardedVote::Granted(of_b) = first.vote else { return Err(format!("{first:?}")) };
        ensure!(of_b.is_some() == hint.is_some(), "{first:?} for {hint:?}");
        said("one key taken", acquire(bench, &all, hint).await, GuardedVote::Refused)?;
        ensure!(bench.value(b'a').await?.is_none(), "a part of the keys was taken");
        voted("release", bench.backend.release(&b).await, Vote::Granted)?;
        let granted = acquire(bench, &all, hint).await.map_err(|error| error.to_string())?;
        let GuardedVote::Granted(of_all) = granted.vote else { return Err(format!("{granted:?}")) };
        ensure!(of_all.is_some() == hint.is_some() && of_all >= of_b, "{of_all:?} after {of_b:?}");
        for name in *b"abc" {
            let left = bench.time_left(name).await?;
            ensure!(bench.is_left(left, TTL), "of {TTL:?}, {left:?} are left");
        }
        said("sent twice", acquire(bench, &all, hint).await, granted.vote)?;
        if let (Some(number), Some(fencer)) = (of_all, bench.backend.fencer()) {
            voted("raise", fencer.raise(&all, number).await, Vote::Granted)?;
        }
        // One of them is lost: it is not known who had it.
        bench.testbed.expire(bench.key(b'c')?.as_bytes()).await;
        bench.testbed.expire(EPOCH.as_bytes()).await;
        quarantined("sent twice, one key gone", acquire(bench, &all, hint).await)?;
        bench.testbed.expire(KEY.as_bytes()).await;
        voted("release, one key gone", bench.backend.release(&all).await, Vote::Refused)?;
    }
    Ok(())
}
