//! The fan-out that a careful user of a bare client writes: it returns at a quorum.

use std::future::Future;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::Background;

/// Returns whether a quorum of `calls` returned true. The other calls continue in the background: the
/// client may never send the command of a call that is dropped.
pub(super) async fn quorum<F>(background: &Background, calls: impl Iterator<Item = F>) -> bool
where
    F: Future<Output = bool> + Send + 'static,
{
    let mut open: FuturesUnordered<F> = calls.collect();
    let (count, mut yes, mut no) = (open.len(), 0, 0);
    let quorum = count / 2 + 1;
    while yes < quorum && no <= count - quorum {
        match open.next().await {
            Some(true) => yes += 1,
            Some(false) => no += 1,
            None => break,
        }
    }
    if !open.is_empty() {
        let running = background.enter();
        tokio::spawn(async move {
            while open.next().await.is_some() {}
            drop(running);
        });
    }
    yes >= quorum
}
