//! The ends of the numbers of fencing tokens: an error or the right order, and never a lower number.

use quorate_core::protocol::fence;
use quorate_core::{BackendErrorKind, Claim, FenceHint, FencingToken, Vote};

use super::{Bench, counted, ensure, fencer, token, voted};

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
    bench.testbed.put_list(counter.as_bytes()).await;
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
