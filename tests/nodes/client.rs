//! The clients, so that a test can be about both.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorate::runtime::TokioRuntime;
use quorate::{LockBackend, LockManager, LockManagerBuilder};
use quorate_tests::Nodes;

/// No property here takes longer; only a broken one waits for it.
pub(crate) const BACKSTOP: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    Redis,
    Fred,
}

impl Client {
    pub(crate) const ALL: [Self; 2] = [Self::Redis, Self::Fred];

    pub(crate) fn connect(self, addresses: &[String]) -> Vec<Arc<dyn LockBackend>> {
        match self {
            Self::Redis => quorate::redis::connect(addresses.iter().cloned())
                .unwrap()
                .into_iter()
                .map(|node| Arc::new(node) as _)
                .collect(),
            Self::Fred => quorate::fred::connect(addresses.iter().cloned())
                .unwrap()
                .into_iter()
                .map(|node| Arc::new(node) as _)
                .collect(),
        }
    }

    pub(crate) fn builder(self, nodes: &Nodes) -> LockManagerBuilder {
        LockManager::builder(TokioRuntime::new(), self.connect(&nodes.addresses()))
    }
}

/// Runs `check` with both clients, each on both kinds of tokio.
pub(crate) fn with_each_client<F: Future<Output = ()>>(check: impl Fn(Client) -> F) {
    for client in Client::ALL {
        let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        current.block_on(check(client));
        on_tokio(check(client));
    }
}

pub(crate) fn on_tokio<F: Future>(future: F) -> F::Output {
    let mut multi = tokio::runtime::Builder::new_multi_thread();
    multi.worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// No key is left once everything in the background has settled.
pub(crate) async fn nothing_is_left(manager: &LockManager, nodes: &Nodes) {
    assert_eq!(manager.settle(BACKSTOP).await, 0, "something is still under way");
    assert_eq!(nodes.keys_left(), []);
}
