//! Calls of a connection that keeps the order.

use futures_util::future::{join, join_all};
use quorate_core::backend::{
    CallReply, CallResult, Capabilities, Choice, Entry, ExtendOptions, Operation, ReleaseOptions,
    Vote, Waiters,
};

use super::bench::{Bench, Checked, acquiring, granted, is_vote, releasing, text};
use super::ensure;
use crate::rng::{SplitMix64, below};

const ROUNDS: usize = 40;

/// How many other calls are in flight.
const OTHERS: [u64; 4] = [0, 1, 3, 24];

/// An acquire directly after a release finds the key free.
pub(super) async fn calls(bench: &Bench<'_>) -> Checked {
    for round in 0..ROUNDS {
        let (first, second) = (bench.claim("a", 1)?, bench.claim("a", 2)?);
        granted("acquire", bench.acquire(&first)).await?;
        let mut others = Vec::new();
        for holder in 0..OTHERS[round % OTHERS.len()] {
            others.push(bench.begin(&acquiring(&bench.claim("b", holder)?)));
        }
        let released = bench.begin(&releasing(&first));
        let acquired = bench.begin(&acquiring(&second));
        // The second reply is awaited first, which must not put its call in front.
        let acquired = granted("the acquire behind a release", acquired);
        let (acquired, released) = join(acquired, granted("the release", released)).await;
        released.and(acquired)?;
        granted("release", bench.release(&second)).await?;
        join_all(others).await;
    }
    Ok(())
}

/// Calls that begin at one moment do what they do one by one, and each has its own answer.
pub(super) async fn together(bench: &Bench<'_>) -> Checked {
    let mut random = SplitMix64::new(1);
    // The number of the call that has acquired each key, or zero.
    let (mut held, mut calls, mut expected) = ([0; 3], Vec::new(), Vec::new());
    for number in 1..=1_000 {
        let mut draw = || below(random.next(), 3) as usize;
        let (first, last, what) = (draw(), draw(), draw());
        let own = &mut held[first.min(last)..=last];
        let holder = if what > 0 && own[0] > 0 { own[0] } else { number };
        let claim = bench.claim(&"abc"[first.min(last)..=last], holder)?;
        let wanted = if what == 0 { 0 } else { holder };
        let is_granted = own.iter().all(|held| *held == wanted);
        for held in own.iter_mut().filter(|held| **held == wanted && (is_granted || what == 1)) {
            *held = [holder, 0, holder][what];
        }
        expected.push(if is_granted { Vote::Granted } else { Vote::Refused });
        calls.push(bench.begin(&match what {
            0 => acquiring(&claim),
            1 => releasing(&claim),
            _ => Operation::Extend(claim, ExtendOptions::default()),
        }));
    }
    for (seen, vote) in join_all(calls).await.iter().zip(expected) {
        ensure!(is_vote(seen, vote), "{seen:?} instead of {vote:?}");
    }
    Ok(())
}

/// Begins one call, then another one. Returns the second reply, which is awaited first. Without
/// order, the second call follows the first reply.
async fn behind(bench: &Bench<'_>, first: &Operation, second: &Operation) -> CallResult {
    let mut first = bench.begin(first);
    if !bench.can(Capabilities::ORDERED) {
        (&mut first).await?;
    }
    bench.begin(second).await
}

/// A leave, and a release that asks, see what the call before them did.
pub(super) async fn queue(bench: &Bench<'_>) -> Checked {
    let (key, entry, claim) = (bench.key("a")?, Entry::new(*b"entry"), bench.claim("a", 1)?);
    let mut options = ReleaseOptions::default();
    options.asks = Some([key.clone()].into());
    let release = Operation::Release(claim.clone(), options);
    let leave = Operation::Leave { key: key.clone(), entry: entry.clone(), also: None };
    let refresh = {
        let (locks, choice) = (claim.keys().into(), Choice::All);
        Operation::Refresh { key, entry, locks, choice }
    };
    let waiters = |seen: CallResult| match seen {
        Ok(CallReply::Voted(reply)) => Ok(reply.waiters),
        seen => Err(format!("{seen:?}")),
    };
    for _ in 0..ROUNDS {
        let left = behind(bench, &refresh, &leave).await;
        ensure!(matches!(left, Ok(CallReply::Waiters(false))), "the leave left an entry: {left:?}");
        let seen = waiters(behind(bench, &refresh, &release).await)?;
        ensure!(seen == Waiters::For(0), "the release behind a refresh found no entry: {seen:?}");
        let seen = waiters(behind(bench, &leave, &release).await)?;
        ensure!(seen == Waiters::Nobody, "the release behind a leave found an entry: {seen:?}");
        behind(bench, &acquiring(&claim), &release).await.map_err(text)?;
        ensure!(!bench.is_there("a").await?, "the release that asks freed nothing");
    }
    Ok(())
}
