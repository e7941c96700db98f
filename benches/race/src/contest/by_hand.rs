//! What a careful user writes with a client alone: the commands of quorate, and a return at a quorum.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::{Contestant, settle, token};
use crate::Outcome;

/// A client of one node.
pub(crate) trait Client: Clone + Send + Sync + 'static {
    type Command: Clone + Send + Sync;

    /// Connects; `None` if the node is down.
    fn connect(address: &str) -> impl Future<Output = Outcome<Option<Self>>> + Send;

    fn set(held: &Held, ttl: u64) -> Self::Command;

    fn delete(held: Held) -> Self::Command;

    /// Returns whether the node did it.
    fn call(self, command: Self::Command) -> impl Future<Output = bool> + Send + 'static;
}

pub(crate) struct ByHand<C> {
    nodes: Vec<Option<C>>,
    ttl: u64,
    /// A clone is held by each fan-out that goes on in the background.
    background: Arc<()>,
}

#[derive(Clone)]
pub(crate) struct Held {
    pub(super) key: String,
    pub(super) token: String,
}

impl<C: Client> Contestant for ByHand<C> {
    type Held = Held;

    async fn connect(_: &str, addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let mut nodes = Vec::new();
        for address in addresses {
            nodes.push(C::connect(&address).await?);
        }
        Ok(Self { nodes, ttl: u64::try_from(ttl.as_millis())?, background: Arc::default() })
    }

    async fn acquire(&self, key: &str) -> Option<Held> {
        let held = Held { key: key.to_owned(), token: token()? };
        if self.round(&C::set(&held, self.ttl)).await {
            return Some(held);
        }
        self.release(held).await;
        None
    }

    /// Sent on the same connections, directly after the acquire.
    async fn release(&self, held: Held) -> bool {
        self.round(&C::delete(held)).await
    }

    async fn close(&self) {
        settle(|| Arc::strong_count(&self.background) - 1).await;
    }
}

impl<C: Client> ByHand<C> {
    /// Returns whether a quorum of the nodes did it. The other calls continue in the background: the
    /// client may never send the command of a call that is dropped.
    async fn round(&self, command: &C::Command) -> bool {
        let nodes = self.nodes.iter().flatten().cloned();
        let mut open: FuturesUnordered<_> = nodes.map(|node| node.call(command.clone())).collect();
        let (count, mut yes) = (self.nodes.len(), 0);
        let quorum = count / 2 + 1;
        let mut no = count - open.len();
        while yes < quorum && no <= count - quorum {
            match open.next().await {
                Some(true) => yes += 1,
                Some(false) => no += 1,
                None => break,
            }
        }
        if !open.is_empty() {
            let running = Arc::clone(&self.background);
            tokio::spawn(async move {
                while open.next().await.is_some() {}
                drop(running);
            });
        }
        yes >= quorum
    }
}
