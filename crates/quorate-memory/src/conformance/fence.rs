//! Fencing numbers: they rise, and at their end is an error, never a lower number.

use std::time::Duration;

use quorate_core::backend::{AcquireOptions, Acquired, ReleaseOptions};
use quorate_core::{BackendError, BackendErrorKind, Claim, FenceHint, FencingToken, Vote};

use super::bench::{Bench, Checked, failed, ttl, voted};
use super::ensure;
use crate::keys;

async fn acquire(bench: &Bench<'_>, claim: &Claim, hint: u64) -> Result<Acquired, BackendError> {
    let mut options = AcquireOptions::default();
    options.fencing = FenceHint::new(hint);
    bench.backend.acquire(claim, options).await
}

/// The number of a grant. Other programs may have left any number behind.
async fn counted(what: &str, bench: &Bench<'_>, claim: &Claim, hint: u64) -> Result<u64, String> {
    let seen = acquire(bench, claim, hint).await;
    match &seen {
        Ok(Acquired { vote: Vote::Granted, number: Some(number), .. }) => Ok(number.get()),
        _ => Err(format!("{what}: {seen:?} instead of a grant with a number")),
    }
}

async fn raise(bench: &Bench<'_>, claim: &Claim, number: u64) -> Result<Vote, BackendError> {
    bench.backend.raise(claim, FencingToken::new(number).unwrap_or(FencingToken::MAX)).await
}

async fn release(bench: &Bench<'_>, claim: &Claim, number: u64) -> Result<Vote, BackendError> {
    let mut options = ReleaseOptions::default();
    options.raise_to = FencingToken::new(number);
    Ok(bench.backend.release(claim, options).await?.vote)
}

/// No number is left, so the acquire fails and sets nothing.
async fn fails(bench: &Bench<'_>, claim: &Claim, hint: u64, kind: BackendErrorKind) -> Checked {
    failed("acquire without a number", acquire(bench, claim, hint).await, kind)?;
    ensure!(!bench.is_there(b'a').await?, "the key was set without a number");
    Ok(())
}

pub(super) async fn counts(bench: &Bench<'_>) -> Checked {
    let mut last = 0;
    for holder in 1..=3 {
        let claim = bench.claim(b"a", holder)?;
        bench.testbed.forget_scripts().await;
        let number = counted("acquire", bench, &claim, 0).await?;
        ensure!(number > last, "{number} after {last}");
        bench.must_hold(b'a', &claim).await?;
        bench.must_live(b"a").await?;
        last = number + 7;
        bench.testbed.forget_scripts().await;
        voted("raise", raise(bench, &claim, last).await, Vote::Granted)?;
        bench.testbed.forget_scripts().await;
        voted("release", release(bench, &claim, last).await, Vote::Granted)?;
        ensure!(!bench.is_there(b'a').await?, "the key is still there");
    }
    let hinted =
        counted("acquire with a hint", bench, &bench.claim(b"a", 4)?, last + 1_000).await?;
    ensure!(hinted == last + 1_000, "{hinted} instead of the hint, {}", last + 1_000);
    Ok(())
}

pub(super) async fn resent(bench: &Bench<'_>) -> Checked {
    for names in [&b"a"[..], b"abc"] {
        let claim = bench.claim(names, 1)?;
        let number = counted("acquire", bench, &claim, 0).await?;
        let again = counted("acquire, sent twice", bench, &claim, number + 1_000).await?;
        ensure!(number == again, "{number}, and then {again}");
        bench.clear().await;
        let anew = counted("acquire after expiry", bench, &claim, 0).await?;
        ensure!(anew > number, "a new grant has {anew} after {number}");
        bench.clear().await;
    }
    Ok(())
}

pub(super) async fn raises(bench: &Bench<'_>) -> Checked {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    let before = counted("acquire", bench, &theirs, 0).await?;
    bench.expire(b'a').await?;
    let far = before + 1_000;
    voted("raise of a free key", raise(bench, &theirs, far).await, Vote::Refused)?;
    let number = counted("acquire", bench, &ours, 0).await?;
    ensure!(number > before && number < far, "{number} after {before}");
    voted("raise by another", raise(bench, &theirs, far).await, Vote::Refused)?;
    voted("release by another", release(bench, &theirs, far).await, Vote::Refused)?;
    voted("raise to less", raise(bench, &ours, before).await, Vote::Refused)?;
    let again = counted("acquire, sent twice", bench, &ours, 0).await?;
    ensure!(again == number, "{number} became {again}");
    voted("raise to the same", raise(bench, &ours, number).await, Vote::Granted)?;
    voted("release", release(bench, &ours, before).await, Vote::Granted)?;
    let next = counted("acquire", bench, &theirs, 0).await?;
    ensure!(next > number, "a release with a lower number left {next} after {number}");
    Ok(())
}

pub(super) async fn outlives(bench: &Bench<'_>) -> Checked {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    let time = Duration::from_millis(20);
    let expired = counted("acquire for 20 ms", bench, &theirs.with_ttl(ttl(time)?), 0).await?;
    bench.testbed.pass(time + time).await;
    let number = counted("acquire after expiry", bench, &ours, 0).await?;
    ensure!(number > expired, "{number} after {expired}, which has expired");
    voted("acquire without a number", bench.acquire(&theirs).await, Vote::Refused)?;
    bench.must_release(&ours).await?;
    bench.must_acquire(&theirs).await?;
    let refused = acquire(bench, &ours, FenceHint::MAX.get()).await.map(|seen| seen.vote);
    voted("acquire of a held key", refused, Vote::Refused)?;
    bench.must_release(&theirs).await?;
    let next = counted("acquire", bench, &ours, 0).await?;
    ensure!(next > number && next < FenceHint::MAX.get(), "{next} after {number}");
    Ok(())
}

pub(super) async fn together(bench: &Bench<'_>) -> Checked {
    let (both, b) = (bench.claim(b"ab", 1)?, bench.claim(b"b", 2)?);
    let of_b = counted("acquire", bench, &b, 0).await?;
    let refused = acquire(bench, &both, 0).await.map(|seen| seen.vote);
    voted("acquire, one key held", refused, Vote::Refused)?;
    ensure!(!bench.is_there(b'a').await?, "a part of the keys was set");
    voted("raise", raise(bench, &b, of_b + 100).await, Vote::Granted)?;
    voted("release", release(bench, &b, of_b).await, Vote::Granted)?;
    let of_both = counted("acquire", bench, &both, 0).await?;
    ensure!(of_both > of_b + 100, "{of_both} after {}", of_b + 100);
    bench.expire(b'b').await?;
    let far = of_both + 100;
    voted("raise, one key gone", raise(bench, &both, far).await, Vote::Refused)?;
    let next = counted("acquire", bench, &b, 0).await?;
    ensure!(next > of_both && next < far, "{next} after {of_both}");
    voted("release, one key gone", release(bench, &both, far).await, Vote::Refused)?;
    let of_a = counted("acquire", bench, &bench.claim(b"a", 3)?, 0).await?;
    ensure!(of_a > far, "{of_a} after a release with {far}");
    Ok(())
}

pub(super) async fn end(bench: &Bench<'_>) -> Checked {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    let (far, max) = (FenceHint::MAX.get(), FencingToken::MAX.get());
    let number = counted("acquire, far in the future", bench, &ours, far).await?;
    ensure!(number >= far, "{number} is under its hint");
    voted("raise", raise(bench, &ours, max - 1).await, Vote::Granted)?;
    bench.must_release(&ours).await?;
    for what in ["the last number", "the last number, sent twice"] {
        let last = counted(what, bench, &theirs, 0).await?;
        ensure!(last == max, "{what}: {last}");
    }
    voted("raise to less", raise(bench, &theirs, max - 1).await, Vote::Refused)?;
    voted("raise to the last", raise(bench, &theirs, max).await, Vote::Granted)?;
    voted("release", release(bench, &theirs, max - 1).await, Vote::Granted)?;
    for hint in [0, far] {
        fails(bench, &ours, hint, BackendErrorKind::Fence).await?;
    }
    bench.must_acquire(&ours).await
}

pub(super) async fn another_type(bench: &Bench<'_>) -> Checked {
    let ours = bench.claim(b"a", 1)?;
    let number = counted("acquire", bench, &ours, 0).await?;
    let counter = keys::counter(&bench.key(b'a')?);
    bench.testbed.expire(&counter).await;
    if !bench.put_list(&counter).await {
        return Ok(());
    }
    let seen = raise(bench, &ours, number + 1).await;
    failed("raise of what is no number", seen, BackendErrorKind::WrongType)?;
    voted("release", release(bench, &ours, number).await, Vote::Granted)?;
    fails(bench, &ours, 0, BackendErrorKind::WrongType).await
}
