//! Calls of a connection that keeps the order.

use std::pin::pin;

use futures_util::future::{join, join_all, poll_immediate};
use quorate_core::backend::{Capabilities, Entry};

use super::bench::{Bench, Checked, granted, text};
use super::ensure;

const ROUNDS: usize = 40;

/// How many other calls are in flight.
const OTHERS: [u64; 4] = [0, 1, 3, 24];

/// Polls one call, then another one, and returns what both return. From then on the second call is
/// polled before the first one, which must not put it in front.
async fn one_behind_other<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> (A, B) {
    let mut first = pin!(first);
    let early = poll_immediate(first.as_mut()).await;
    let first = async {
        match early {
            Some(early) => early,
            None => first.await,
        }
    };
    let (second, first) = join(second, first).await;
    (first, second)
}

/// An acquire directly after a release finds the key free.
pub(super) async fn calls(bench: &Bench<'_>) -> Checked {
    for round in 0..ROUNDS {
        let (first, second) = (bench.claim("a", 1)?, bench.claim("a", 2)?);
        granted("acquire", bench.acquire(&first).await)?;
        let others = (0..OTHERS[round % OTHERS.len()]).map(|holder| bench.claim("b", holder));
        let others: Vec<_> = others.collect::<Result<_, _>>()?;
        let mut others = pin!(join_all(others.iter().map(|claim| bench.acquire(claim))));
        let _ = poll_immediate(others.as_mut()).await;
        let calls = one_behind_other(bench.release(&first), bench.acquire(&second));
        let (released, acquired) = calls.await;
        granted("the release", released)?;
        granted("the acquire behind it", acquired)?;
        granted("release", bench.release(&second).await)?;
        others.await;
    }
    Ok(())
}

/// A leave directly after a refresh finds the entry. Without order, it follows the reply.
pub(super) async fn leave(bench: &Bench<'_>) -> Checked {
    let (key, entry) = (bench.key("a")?, Entry::new(*b"entry"));
    // A script that the node does not know yet is sent twice, the second time behind the leave.
    bench.backend.queue_refresh(&key, &entry, &[]).await.map_err(text)?;
    let mut left = bench.backend.queue_leave(&key, &entry, None).await;
    for _ in 0..ROUNDS {
        ensure!(matches!(left, Ok(false)), "the leave behind a refresh: {left:?}");
        if !bench.can(Capabilities::ORDERED) {
            break;
        }
        let refresh = bench.backend.queue_refresh(&key, &entry, &[]);
        let leave = bench.backend.queue_leave(&key, &entry, None);
        left = one_behind_other(refresh, leave).await.1;
    }
    Ok(())
}
