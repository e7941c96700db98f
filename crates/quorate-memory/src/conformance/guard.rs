//! The restart guard: a node that may have forgotten locks does not vote.

use std::time::Duration;

use quorate_core::backend::{AcquireOptions, Acquired, Capabilities};
use quorate_core::{BackendError, BackendErrorKind, Claim, FenceHint, RestartGuard, Vote};

use super::bench::{Bench, Checked, GRACE, failed, text, voted};
use super::ensure;
use crate::keys::{EPOCH, QUARANTINE};

/// Not whole seconds, and longer than any ttl here.
const MAX_TTL: Duration = Duration::from_millis(120_300);

type Answer = Result<Acquired, BackendError>;

async fn acquire(bench: &Bench<'_>, claim: &Claim) -> Answer {
    under(bench, claim, None, MAX_TTL).await
}

async fn under(
    bench: &Bench<'_>,
    claim: &Claim,
    hint: Option<FenceHint>,
    max_ttl: Duration,
) -> Answer {
    let mut options = AcquireOptions::default();
    (options.fencing, options.guard) = (hint, Some(RestartGuard::strict(max_ttl)));
    bench.backend.acquire(claim, options).await
}

fn said(what: &str, seen: Answer, expected: Vote) -> Checked {
    voted(what, seen.map(|acquired| acquired.vote), expected)
}

/// Returns what is left of the quarantine.
async fn quarantined(what: &str, bench: &Bench<'_>, seen: Answer) -> Result<Duration, String> {
    failed(what, seen, BackendErrorKind::Quarantined)?;
    let left = bench.testbed.time_left(QUARANTINE.as_bytes()).await;
    left.ok_or_else(|| format!("{what}: {QUARANTINE} is not there"))
}

/// Lets the node vote from now on.
async fn enter(bench: &Bench<'_>, claim: &Claim) -> Checked {
    quarantined("the first acquire", bench, acquire(bench, claim).await).await?;
    bench.testbed.expire(QUARANTINE.as_bytes()).await;
    Ok(())
}

pub(super) async fn begins(bench: &Bench<'_>) -> Checked {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    bench.testbed.forget_scripts().await;
    let first = quarantined("the first acquire", bench, acquire(bench, &ours).await).await?;
    ensure!(bench.is_left(first, MAX_TTL), "of {MAX_TTL:?}, {first:?} are left");
    let second = quarantined("the second", bench, acquire(bench, &theirs).await).await?;
    ensure!(second <= first, "of {first:?}, {second:?} are left");
    ensure!(!bench.is_there(b'a').await?, "a quarantined node has set the key");
    bench.testbed.expire(QUARANTINE.as_bytes()).await;
    let granted = acquire(bench, &ours).await.map_err(text)?;
    voted("after it", Ok(granted.vote), Vote::Granted)?;
    let server = granted.server.ok_or("the server is missing")?;
    ensure!(server.before.is_none(), "{:?} is reported to have been there before", server.before);
    if bench.can(Capabilities::SERVER_ID) {
        let id = bench.backend.server_id().await.map_err(text)?;
        ensure!(id.as_ref() == Some(&server.id), "{id:?} calls itself {:?}", server.id);
    }
    bench.must_hold(b'a', &ours).await?;
    bench.must_live(b"a").await?;
    said("acquire of a held key", acquire(bench, &theirs).await, Vote::Refused)?;
    voted("acquire without the guard", bench.acquire(&theirs).await, Vote::Refused)?;
    bench.must_release(&ours).await?;
    said("acquire", acquire(bench, &theirs).await, Vote::Granted)
}

pub(super) async fn knows(bench: &Bench<'_>) -> Checked {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    enter(bench, &ours).await?;
    said("after it", acquire(bench, &ours).await, Vote::Granted)?;
    // Something was lost, though not this lock.
    bench.testbed.expire(EPOCH.as_bytes()).await;
    quarantined("acquire of a held key", bench, acquire(bench, &theirs).await).await?;
    said("acquire, sent twice", acquire(bench, &ours).await, Vote::Granted)?;
    voted("extend", bench.extend(&ours).await, Vote::Granted)?;
    voted("extend by another", bench.extend(&theirs).await, Vote::Refused)?;
    voted("release by another", bench.release(&theirs).await, Vote::Refused)?;
    bench.must_release(&ours).await?;
    quarantined("acquire of a released key", bench, acquire(bench, &ours).await).await?;
    if bench.put_list(bench.key(b'a')?.as_bytes()).await {
        failed("a list", acquire(bench, &ours).await, BackendErrorKind::WrongType)?;
    }
    Ok(())
}

pub(super) async fn restarts(bench: &Bench<'_>) -> Checked {
    let claim = bench.claim(b"a", 1)?;
    enter(bench, &claim).await?;
    let server = acquire(bench, &claim).await.map_err(text)?.server;
    bench.must_release(&claim).await?;
    if !bench.testbed.restart().await {
        return Ok(());
    }
    let seen = acquire(bench, &claim).await;
    let left = quarantined("after a restart", bench, seen).await?;
    ensure!(bench.is_left(left, MAX_TTL), "of {MAX_TTL:?}, {left:?} are left");
    bench.testbed.expire(QUARANTINE.as_bytes()).await;
    let after = acquire(bench, &claim).await.map_err(text)?.server;
    ensure!(server.map(|server| server.id) != after.map(|server| server.id), "one id for two runs");
    Ok(())
}

pub(super) async fn disagrees(bench: &Bench<'_>) -> Checked {
    let claim = bench.claim(b"a", 1)?;
    let left = quarantined("the first acquire", bench, acquire(bench, &claim).await).await?;
    for other in [MAX_TTL - GRACE, MAX_TTL + GRACE] {
        let seen = under(bench, &claim, None, other).await;
        let error = seen.as_ref().err().map(text).unwrap_or_default();
        failed("another max_ttl", seen, BackendErrorKind::MaxTtl)?;
        for max_ttl in [MAX_TTL, other] {
            let is_named = error.contains(&max_ttl.as_millis().to_string());
            ensure!(is_named, "the error does not name both: {error}");
        }
    }
    let now = quarantined("the next", bench, acquire(bench, &claim).await).await?;
    ensure!(now <= left, "of {left:?}, {now:?} are left");
    Ok(())
}

pub(super) async fn together(bench: &Bench<'_>) -> Checked {
    let (all, b) = (bench.claim(b"abc", 1)?, bench.claim(b"b", 2)?);
    enter(bench, &all).await?;
    for hint in [None, FenceHint::new(7).filter(|_| bench.can(Capabilities::FENCING))] {
        let acquire = |claim| under(bench, claim, hint, MAX_TTL);
        let of_b = acquire(&b).await.map_err(text)?;
        ensure!(of_b.vote == Vote::Granted && of_b.number.is_some() == hint.is_some(), "{of_b:?}");
        said("one key held", acquire(&all).await, Vote::Refused)?;
        ensure!(!bench.is_there(b'a').await?, "a part of the keys was set");
        bench.must_release(&b).await?;
        let of_all = acquire(&all).await.map_err(text)?;
        let is_raised = of_all.number.is_some() == hint.is_some() && of_all.number >= of_b.number;
        ensure!(of_all.vote == Vote::Granted && is_raised, "{of_all:?} after {of_b:?}");
        bench.must_live(b"abc").await?;
        let again = acquire(&all).await;
        ensure!(again.as_ref().ok() == Some(&of_all), "sent twice: {again:?} after {of_all:?}");
        // One of them is lost, and its holder unknown.
        bench.expire(b'c').await?;
        bench.testbed.expire(EPOCH.as_bytes()).await;
        quarantined("sent twice, one key gone", bench, acquire(&all).await).await?;
        bench.testbed.expire(QUARANTINE.as_bytes()).await;
        voted("release, one key gone", bench.release(&all).await, Vote::Refused)?;
    }
    Ok(())
}
