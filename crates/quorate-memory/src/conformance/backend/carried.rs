//! What is carried is as if it had been asked for.

use std::pin::pin;

use futures_util::future::{join_all, poll_immediate};
use quorate_core::{Ask, BackendError, Call, Claim, Vote};

use super::{Bench, ensure, voted};

/// Among so many, no call is alone.
const COMPANY: u64 = 24;

/// The first few may have to make a connection.
const TRIES: usize = 40;

pub(super) async fn keeps(bench: &Bench<'_>) -> Result<(), String> {
    for names in [&b"a"[..], b"abc"] {
        let (ours, theirs) = (bench.claim(names, 1)?, bench.claim(names, 2)?);
        for (what, ask, claim, vote) in [
            ("release of a free key", Ask::Release, &ours, Vote::Refused),
            ("acquire", Ask::Acquire, &ours, Vote::Granted),
            ("acquire of a taken key", Ask::Acquire, &theirs, Vote::Refused),
            ("acquire, sent twice", Ask::Acquire, &ours, Vote::Granted),
            ("release by another", Ask::Release, &theirs, Vote::Refused),
        ] {
            voted(what, carried(bench, ask, claim).await?, vote)?;
        }
        for name in names {
            let value = bench.value(*name).await?;
            ensure!(value.as_deref() == Some(ours.token().as_bytes()), "it is not the token");
            let left = bench.time_left(*name).await?;
            ensure!(bench.is_left(left, super::TTL), "{left:?} are left");
        }
        voted("release", carried(bench, Ask::Release, &ours).await?, Vote::Granted)?;
        voted("release again", carried(bench, Ask::Release, &ours).await?, Vote::Refused)?;
    }
    Ok(())
}

/// What nobody waits for does not leave: what undoes it may have gone before.
pub(super) async fn unwanted(bench: &Bench<'_>) -> Result<(), String> {
    for names in [&b"a"[..], b"ab"] {
        let (call, answered) = Call::apart(Ask::Acquire, bench.claim(names, 1)?);
        answered.forgo();
        carry(bench, call).await?;
        let answer = answered.await;
        ensure!(answer.is_err(), "what nobody waited for was answered: {answer:?}");
        let value = bench.value(b'a').await?;
        ensure!(value.is_none(), "what nobody waited for has left after all");
    }
    Ok(())
}

async fn carried(
    bench: &Bench<'_>,
    ask: Ask,
    claim: &Claim,
) -> Result<Result<Vote, BackendError>, String> {
    let (call, answered) = Call::apart(ask, claim.clone());
    carry(bench, call).await?;
    Ok(answered.await)
}

/// Carries a call where the backend would, among others that change nothing.
async fn carry(bench: &Bench<'_>, call: Call) -> Result<(), String> {
    let carrier = bench.backend.carrier().ok_or("the backend carries nothing any more")?;
    let others: Vec<Claim> = (0..COMPANY)
        .map(|holder| super::claim(call.claim().keys().to_vec(), 100 + holder, super::TTL))
        .collect::<Result<_, _>>()?;
    for _ in 0..TRIES {
        let mut company = pin!(join_all(others.iter().map(|other| bench.backend.extend(other))));
        let _ = poll_immediate(company.as_mut()).await;
        if carrier.carries(call.claim()) {
            carrier.carry(call);
            company.await;
            return Ok(());
        }
        company.await;
    }
    Err(format!("in company {TRIES} times, a call was not carried"))
}
