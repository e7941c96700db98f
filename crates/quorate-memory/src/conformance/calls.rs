//! Calls side by side, dropped calls, and unusual names.

use std::pin::pin;

use futures_util::future::{join_all, poll_immediate};
use quorate_core::backend::{Capabilities, Claim, Operation, Vote};
use quorate_core::resource::Resource;

use super::bench::{Bench, Checked, claim, granted, is_vote, key, text};
use super::ensure;

pub(super) async fn binary(bench: &Bench<'_>) -> Checked {
    for name in [vec![0, b'\r', b'\n', 0xff, b' ', b'"'], vec![b'x'; Resource::MAX_LEN]] {
        let claim = claim(vec![key(&name)?], 1)?;
        bench.testbed.expire(&name).await;
        granted("acquire", bench.acquire(&claim)).await?;
        let value = bench.testbed.value(&name).await;
        ensure!(value.as_deref() == Some(claim.token().as_bytes()), "the key has another name");
        granted("release", bench.release(&claim)).await?;
    }
    Ok(())
}

pub(super) async fn one_of_many(bench: &Bench<'_>) -> Checked {
    let claims: Result<Vec<Claim>, String> = (1..=16).map(|n| bench.claim("ab", n)).collect();
    let votes = join_all(claims?.iter().map(|claim| bench.acquire(claim))).await;
    let count = |vote| votes.iter().filter(|seen| is_vote(seen, vote)).count();
    let counts = (count(Vote::Granted), count(Vote::Refused));
    ensure!(counts == (1, 15), "granted and refused were {counts:?} of 16");
    Ok(())
}

/// A call whose answer is dropped is given up.
pub(super) async fn dropped(bench: &Bench<'_>) -> Checked {
    let (dropped, other) = (bench.claim("a", 1)?, bench.claim("b", 2)?);
    for _ in 0..16 {
        // Polled once, then dropped. It may be done by then.
        let _ = poll_immediate(pin!(bench.acquire(&dropped))).await;
        granted("acquire", bench.acquire(&other)).await?;
        let mut watched = None;
        if bench.can(Capabilities::WATCH) {
            let watch = Operation::Watch { key: bench.key("b")?, entry: None };
            let _ = poll_immediate(pin!(bench.begin(&watch))).await;
            for _ in 0..2 {
                (&mut *watched.insert(bench.begin(&watch))).await.map_err(text)?;
            }
        }
        granted("release", bench.release(&other)).await?;
        if let Some(watched) = watched {
            bench.notified(watched).await?;
        }
    }
    Ok(())
}
