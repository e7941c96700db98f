//! Numbers of fencing tokens: in order, and at their end an error, never a lower number.

use std::time::Duration;

use quorate_core::protocol::fence;
use quorate_core::{BackendErrorKind, Claim, Fence, FenceHint, FenceVote, FencingToken, Ttl, Vote};

use super::{Bench, TTL, ensure, voted};

fn fencer<'a>(bench: &Bench<'a>) -> Result<&'a dyn Fence, String> {
    bench.backend.fencer().ok_or_else(|| "the backend can fence no more".to_owned())
}

/// The number of a grant. Other runs may have left any number behind.
async fn counted(what: &str, bench: &Bench<'_>, claim: &Claim, hint: u64) -> Result<u64, String> {
    let hint = FenceHint::new(hint).ok_or("a hint that is too great")?;
    match fencer(bench)?.acquire(claim, hint).await {
        Ok(FenceVote::Granted(number)) => Ok(number.get()),
        seen => Err(format!("{what}: {seen:?} instead of a grant")),
    }
}

fn token(number: u64) -> Result<FencingToken, String> {
    FencingToken::new(number).ok_or_else(|| format!("{number} is no token"))
}

pub(super) async fn counts(bench: &Bench<'_>) -> Result<(), String> {
    let fencer = fencer(bench)?;
    let mut last = 0;
    for holder in 1..=3 {
        let claim = bench.claim(b"a", holder)?;
        bench.testbed.forget_scripts().await;
        let number = counted("acquire", bench, &claim, 0).await?;
        ensure!(number > last, "{number} after {last}");
        let value = bench.value(b'a').await?;
        ensure!(value.as_deref() == Some(claim.token().as_bytes()), "the value is not the token");
        let left = bench.time_left(b'a').await?;
        ensure!(bench.is_left(left, TTL), "of {TTL:?}, {left:?} are left");
        let ahead = token(number + 7)?;
        bench.testbed.forget_scripts().await;
        voted("raise", fencer.raise(&claim, ahead).await, Vote::Granted)?;
        bench.testbed.forget_scripts().await;
        voted("release", fencer.release(&claim, ahead).await, Vote::Granted)?;
        ensure!(bench.value(b'a').await?.is_none(), "the key is still there");
        last = ahead.get();
    }
    let claim = bench.claim(b"a", 4)?;
    let hinted = counted("acquire with a hint", bench, &claim, last + 1_000).await?;
    ensure!(hinted == last + 1_000, "{hinted} instead of the hint, {}", last + 1_000);
    Ok(())
}

pub(super) async fn recounts(bench: &Bench<'_>) -> Result<(), String> {
    for names in [&b"a"[..], b"abc"] {
        let claim = bench.claim(names, 1)?;
        let number = counted("acquire", bench, &claim, 0).await?;
        let again = counted("acquire, sent twice", bench, &claim, number + 1_000).await?;
        ensure!(number == again, "{number}, and then {again}");
        bench.clear().await;
        let anew = counted("acquire after expiry", bench, &claim, 0).await?;
        ensure!(anew > number, "a new grant gave {anew} after {number}");
        bench.clear().await;
    }
    Ok(())
}

pub(super) async fn raises(bench: &Bench<'_>) -> Result<(), String> {
    let fencer = fencer(bench)?;
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    let before = counted("acquire", bench, &theirs, 0).await?;
    bench.testbed.expire(bench.key(b'a')?.as_bytes()).await;
    let far = token(before + 1_000)?;
    voted("raise of a free key", fencer.raise(&theirs, far).await, Vote::Refused)?;
    let number = counted("acquire", bench, &ours, 0).await?;
    ensure!(number > before && number < far.get(), "{number} after {before}");
    voted("raise by another", fencer.raise(&theirs, far).await, Vote::Refused)?;
    voted("release by another", fencer.release(&theirs, far).await, Vote::Refused)?;
    voted("raise to less", fencer.raise(&ours, token(before)?).await, Vote::Refused)?;
    let again = counted("acquire, sent twice", bench, &ours, 0).await?;
    ensure!(again == number, "{number} became {again}");
    voted("raise to the same", fencer.raise(&ours, token(number)?).await, Vote::Granted)?;
    voted("release", fencer.release(&ours, token(before)?).await, Vote::Granted)?;
    let next = counted("acquire", bench, &theirs, 0).await?;
    ensure!(next > number, "a release with a lower number left {next} after {number}");
    Ok(())
}

pub(super) async fn outlives(bench: &Bench<'_>) -> Result<(), String> {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    let number = counted("acquire", bench, &ours, 0).await?;
    voted("acquire without", bench.backend.acquire(&theirs).await, Vote::Refused)?;
    voted("extend", bench.backend.extend(&ours).await, Vote::Granted)?;
    voted("release without", bench.backend.release(&ours).await, Vote::Granted)?;
    voted("acquire without", bench.backend.acquire(&theirs).await, Vote::Granted)?;
    let refused = fencer(bench)?.acquire(&ours, FenceHint::MAX).await;
    ensure!(matches!(refused, Ok(FenceVote::Refused)), "acquire of a taken key: {refused:?}");
    voted("release", bench.backend.release(&theirs).await, Vote::Granted)?;
    let next = counted("acquire", bench, &ours, 0).await?;
    ensure!(next > number && next < FenceHint::MAX.get(), "{next} after {number}");
    voted("release", bench.backend.release(&ours).await, Vote::Granted)?;
    // Nor does it end with the ttl of its lock.
    let ttl = Duration::from_millis(20);
    let short = theirs.with_ttl(Ttl::try_from(ttl).map_err(|error| error.to_string())?);
    let number = counted("acquire for 20 ms", bench, &short, 0).await?;
    bench.testbed.pass(ttl + ttl).await;
    let next = counted("acquire after expiry", bench, &ours, 0).await?;
    ensure!(next > number, "{next} after {number}, which has expired");
    Ok(())
}

pub(super) async fn counts_together(bench: &Bench<'_>) -> Result<(), String> {
    let fencer = fencer(bench)?;
    let (both, b) = (bench.claim(b"ab", 1)?, bench.claim(b"b", 2)?);
    let of_b = counted("acquire", bench, &b, 0).await?;
    let refused = fencer.acquire(&both, FenceHint::default()).await;
    ensure!(matches!(refused, Ok(FenceVote::Refused)), "acquire, one key taken: {refused:?}");
    ensure!(bench.value(b'a').await?.is_none(), "a part of the keys was taken");
    voted("raise", fencer.raise(&b, token(of_b + 100)?).await, Vote::Granted)?;
    voted("release", fencer.release(&b, token(of_b)?).await, Vote::Granted)?;
    let of_both = counted("acquire", bench, &both, 0).await?;
    ensure!(of_both > of_b + 100, "{of_both} after {}", of_b + 100);
    bench.testbed.expire(bench.key(b'b')?.as_bytes()).await;
    let far = token(of_both + 100)?;
    voted("raise, one key gone", fencer.raise(&both, far).await, Vote::Refused)?;
    let next = counted("acquire", bench, &b, 0).await?;
    ensure!(next > of_both && next < far.get(), "{next} after {of_both}");
    voted("release, one key gone", fencer.release(&both, far).await, Vote::Refused)?;
    let of_a = counted("acquire", bench, &bench.claim(b"a", 3)?, 0).await?;
    ensure!(of_a > far.get(), "{of_a} after {}, which was released with", far.get());
    Ok(())
}

pub(super) async fn end(bench: &Bench<'_>) -> Result<(), String> {
    let fencer = fencer(bench)?;
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    let far = counted("acquire, far in the future", bench, &ours, FenceHint::MAX.get()).await?;
    ensure!(far >= FenceHint::MAX.get(), "{far} is under its hint");
    voted("release", fencer.release(&ours, token(far)?).await, Vote::Granted)?;
    let next = counted("acquire after it", bench, &theirs, 0).await?;
    ensure!(next > far, "{next} after {far}");
    let last_but_one = token(FencingToken::MAX.get() - 1)?;
    voted("raise", fencer.raise(&theirs, last_but_one).await, Vote::Granted)?;
    voted("release", fencer.release(&theirs, last_but_one).await, Vote::Granted)?;
    let last = counted("the last number", bench, &ours, 0).await?;
    ensure!(last == FencingToken::MAX.get(), "{last} after the last but one");
    let again = counted("the last number, sent twice", bench, &ours, 0).await?;
    ensure!(again == last, "{again} after the last");
    voted("raise to less", fencer.raise(&ours, last_but_one).await, Vote::Refused)?;
    voted("raise to the last", fencer.raise(&ours, FencingToken::MAX).await, Vote::Granted)?;
    voted("release", fencer.release(&ours, last_but_one).await, Vote::Granted)?;
    for hint in [0, FenceHint::MAX.get()] {
        fails(bench, &theirs, hint, BackendErrorKind::Fence).await?;
    }
    voted("acquire without", bench.backend.acquire(&theirs).await, Vote::Granted)?;
    voted("release", fencer.release(&theirs, FencingToken::MAX).await, Vote::Granted)?;
    fails(bench, &ours, 0, BackendErrorKind::Fence).await
}

pub(super) async fn of_another_type(bench: &Bench<'_>) -> Result<(), String> {
    let fencer = fencer(bench)?;
    let ours = bench.claim(b"a", 1)?;
    let number = counted("acquire", bench, &ours, 0).await?;
    let counter = fence::counter(&bench.key(b'a')?);
    bench.testbed.expire(counter.as_bytes()).await;
    if !bench.put_list(&counter).await {
        return Ok(());
    }
    match fencer.raise(&ours, token(number + 1)?).await {
        Err(error) if error.kind() == BackendErrorKind::WrongType => {}
        seen => return Err(format!("raise of what is no number: {seen:?}")),
    }
    voted("release", fencer.release(&ours, token(number)?).await, Vote::Granted)?;
    fails(bench, &ours, 0, BackendErrorKind::WrongType).await
}

/// No number is to be had, so nothing is taken.
async fn fails(
    bench: &Bench<'_>,
    claim: &Claim,
    hint: u64,
    kind: BackendErrorKind,
) -> Result<(), String> {
    let hint = FenceHint::new(hint).ok_or("a hint that is too great")?;
    match fencer(bench)?.acquire(claim, hint).await {
        Err(error) if error.kind() == kind => {}
        seen => return Err(format!("acquire without a number to give: {seen:?}")),
    }
    ensure!(bench.value(b'a').await?.is_none(), "the key was taken without a number");
    Ok(())
}
