//! Calls that set out one after the other arrive one after the other.

use std::pin::pin;

use futures_util::future::{join, join_all, poll_immediate};
use quorate_core::Vote;

use super::{Bench, voted};

/// So many times, with more or less company.
const ROUNDS: u64 = 40;
const COMPANY: [u64; 4] = [0, 1, 3, 24];

/// One who asks right behind a release finds the key free.
pub(super) async fn kept(bench: &Bench<'_>) -> Result<(), String> {
    let backend = bench.backend;
    let others = |holder| bench.claim(b"b", holder);
    for round in 0..ROUNDS {
        let (first, second) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
        voted("the first acquire", backend.acquire(&first).await, Vote::Granted)?;
        let company = COMPANY[round as usize % COMPANY.len()];
        let others: Vec<_> = (0..company).map(others).collect::<Result<_, _>>()?;
        let mut company = pin!(join_all(others.iter().map(|claim| backend.acquire(claim))));
        let _ = poll_immediate(company.as_mut()).await;
        let mut released = backend.release(&first);
        let early = poll_immediate(&mut released).await;
        let acquired = backend.acquire(&second);
        let released = async {
            match early {
                Some(vote) => vote,
                None => released.await,
            }
        };
        // The acquire is polled first, which must not put it in front.
        let (acquired, released) = join(acquired, released).await;
        voted("the release", released, Vote::Granted)?;
        voted("the acquire behind it", acquired, Vote::Granted)?;
        voted("the last release", backend.release(&second).await, Vote::Granted)?;
        company.await;
    }
    Ok(())
}
