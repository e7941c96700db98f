//! The clients, so that a test can be about both.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorate::runtime::TokioRuntime;
use quorate::{LockBackend, LockManager, LockManagerBuilder};
use quorate_tests::Nodes;
pub(crate) use quorate_tests::wait::LIMIT;
use quorate_tests::wait::{LONG_TTL, NODE_TIMEOUT};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    Redis,
    Fred,
}

/// Longer than a slow machine takes to connect. A call that waits for a pool learns of a failed attempt
/// only after this time, so it is well below the limit of the tests.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

impl Client {
    pub(crate) const ALL: [Self; 2] = [Self::Redis, Self::Fred];

    /// Backends that a slow machine does not keep from connecting.
    pub(crate) fn connect(self, addresses: &[String]) -> Vec<Arc<dyn LockBackend>> {
        let addresses = addresses.iter().cloned();
        match self {
            Self::Redis => quorate::redis::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .connect(addresses)
                .unwrap()
                .into_iter()
                .map(|node| Arc::new(node) as _)
                .collect(),
            Self::Fred => quorate::fred::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .connect(addresses)
                .unwrap()
                .into_iter()
                .map(|node| Arc::new(node) as _)
                .collect(),
        }
    }

    pub(crate) fn builder(self, nodes: &Nodes) -> LockManagerBuilder {
        unhurried(self.connect(&nodes.addresses()))
    }
}

/// Settings under which no lease ends, and no healthy node is given up, because the machine is slow.
/// A test of an expiry or of a node that hangs sets the ttl or the node timeout itself.
pub(crate) fn unhurried(
    nodes: impl IntoIterator<Item = impl LockBackend + 'static>,
) -> LockManagerBuilder {
    let builder = LockManager::builder(TokioRuntime::new(), nodes);
    builder.ttl(LONG_TTL).node_timeout(NODE_TIMEOUT).wait(LIMIT)
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
    assert_eq!(manager.settle(LIMIT).await, 0, "something is still under way");
    assert_eq!(nodes.keys_left(), []);
}
