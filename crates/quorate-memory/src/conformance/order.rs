//! Calls of a connection that keeps the order.

use std::pin::pin;

use futures_util::future::{join, join_all, poll_immediate};
use quorate_core::Vote;
use quorate_core::backend::{Capabilities, Entry};

use super::bench::{Bench, Checked, text, voted};
use super::ensure;

const ROUNDS: usize = 40;

/// How many other calls are in flight.
const OTHERS: [u64; 4] = [0, 1, 3, 24];

/// An acquire directly after a release finds the key free.
pub(super) async fn calls(bench: &Bench<'_>) -> Checked {
    for round in 0..ROUNDS {
        let (first, second) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
        bench.must_acquire(&first).await?;
        let others = (0..OTHERS[round % OTHERS.len()]).map(|holder| bench.claim(b"b", holder));
        let others: Vec<_> = others.collect::<Result<_, _>>()?;
        let mut others = pin!(join_all(others.iter().map(|claim| bench.acquire(claim))));
        let _ = poll_immediate(others.as_mut()).await;
        let mut release = pin!(bench.release(&first));
        let early = poll_immediate(release.as_mut()).await;
        let release = async {
            match early {
                Some(vote) => vote,
                None => release.await,
            }
        };
        // The acquire is polled before the release is polled again. That must not put it in front.
        let (acquired, released) = join(bench.acquire(&second), release).await;
        voted("the release", released, Vote::Granted)?;
        voted("the acquire behind it", acquired, Vote::Granted)?;
        bench.must_release(&second).await?;
        others.await;
    }
    Ok(())
}

pub(super) async fn leave(bench: &Bench<'_>) -> Checked {
    let (key, entry) = (bench.key(b'a')?, Entry::new(*b"entry"));
    // A script that the node does not know yet is sent twice, the second time behind the leave.
    bench.backend.queue_refresh(&key, &entry, &[]).await.map_err(text)?;
    bench.backend.queue_leave(&key, &entry, None).await.map_err(text)?;
    if !bench.can(Capabilities::ORDERED) {
        return Ok(());
    }
    for _ in 0..ROUNDS {
        let mut refresh = bench.backend.queue_refresh(&key, &entry, &[]);
        let early = poll_immediate(&mut refresh).await;
        let refresh = async {
            match early {
                Some(refreshed) => refreshed,
                None => refresh.await,
            }
        };
        let leave = bench.backend.queue_leave(&key, &entry, None);
        let (left, refreshed) = join(leave, refresh).await;
        ensure!(refreshed.is_ok(), "the refresh: {refreshed:?}");
        ensure!(matches!(left, Ok(false)), "the leave behind it: {left:?}");
        let left = bench.backend.queue_leave(&key, &entry, None).await;
        ensure!(matches!(left, Ok(false)), "after the leave: {left:?}");
    }
    Ok(())
}
