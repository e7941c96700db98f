//! The clients, so that a test can be about both.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorate::error::QuorumFailure;
use quorate::runtime::TokioRuntime;
use quorate::{KeyState, LockBackend, LockError, LockManager, LockManagerBuilder, NodeView};
use quorate_tests::Nodes;
pub(crate) use quorate_tests::wait::LIMIT;
use quorate_tests::wait::{LONG_TTL, NODE_TIMEOUT, until, until_it_says};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    Redis,
    Fred,
}

/// Longer than a slow machine takes to connect, and well below the limit of the tests.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

impl Client {
    pub(crate) const ALL: [Self; 2] = [Self::Redis, Self::Fred];

    /// Backends that a slow machine does not keep from connecting.
    pub(crate) fn connect(self, addresses: &[String]) -> Vec<Arc<dyn LockBackend>> {
        let addresses = addresses.iter().cloned();
        match self {
            Self::Redis => {
                let builder = quorate::redis::builder().connect_timeout(CONNECT_TIMEOUT);
                shared(builder.connect(addresses).unwrap())
            }
            Self::Fred => {
                let builder = quorate::fred::builder().connect_timeout(CONNECT_TIMEOUT);
                shared(builder.connect(addresses).unwrap())
            }
        }
    }

    /// Backends whose connections live on a thread of their own.
    #[allow(dead_code, reason = "the fault matrix has one runtime")]
    pub(crate) fn connect_on_own_thread(self, addresses: &[String]) -> Vec<Arc<dyn LockBackend>> {
        let addresses = addresses.iter().cloned();
        match self {
            Self::Redis => {
                let builder = quorate::redis::builder().connect_timeout(CONNECT_TIMEOUT);
                shared(builder.own_thread().connect(addresses).unwrap())
            }
            Self::Fred => {
                let builder = quorate::fred::builder().connect_timeout(CONNECT_TIMEOUT);
                shared(builder.own_thread().connect(addresses).unwrap())
            }
        }
    }

    /// The only backend at `address`.
    #[allow(dead_code, reason = "the fault matrix makes whole clusters")]
    pub(crate) fn connect_one(self, address: &str) -> Arc<dyn LockBackend> {
        self.connect(&[address.to_owned()]).remove(0)
    }

    pub(crate) fn builder(self, nodes: &Nodes) -> LockManagerBuilder {
        unhurried(self.connect(&nodes.addresses()))
    }
}

fn shared(nodes: Vec<impl LockBackend>) -> Vec<Arc<dyn LockBackend>> {
    nodes.into_iter().map(|node| Arc::new(node) as _).collect()
}

/// Settings under which no lease ends, and no healthy node is given up, because the machine is slow.
/// A test of an expiry or of a node that hangs sets the ttl or the node timeout itself.
pub(crate) fn unhurried<B: LockBackend>(nodes: impl IntoIterator<Item = B>) -> LockManagerBuilder {
    let builder = LockManager::builder(nodes).runtime(TokioRuntime::new());
    builder.ttl(LONG_TTL).node_timeout(NODE_TIMEOUT).timeout(LIMIT)
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

/// Takes a lock and releases it, so that each node has a connection and knows the scripts.
pub(crate) async fn warm_up(manager: &LockManager) {
    // With a short node timeout on a busy machine, the release may be unconfirmed, and goes on.
    drop(manager.lock("warm").await.unwrap().release().await);
    // A quorum may have connected before the others.
    until_it_says("each node answers", async || {
        let seen = manager.inspect("warm").await.unwrap();
        let answers =
            |view: &NodeView| !matches!(view.state, KeyState::Failed(_) | KeyState::NoReply { .. });
        seen.nodes().iter().all(answers)
    })
    .await;
}

/// Waits until no key is left. A key that another call sets later is left when the manager is closed.
pub(crate) async fn nothing_is_left(nodes: &Nodes) {
    until("no key is left", || nodes.keys_left().is_empty()).await;
}

/// Waits until each node has the key, which a quorum may have without the others.
#[allow(dead_code, reason = "the fault matrix looks at each node")]
pub(crate) async fn all_have(nodes: &Nodes, key: &str) {
    until("each node has the key", || nodes.iter().all(|node| node.get(key).is_some())).await;
}

/// Closes the manager: every node answers, and no key is left on one.
pub(crate) async fn close(manager: &LockManager, nodes: &Nodes) {
    assert_clean(manager).await;
    assert_eq!(nodes.keys_left(), []);
}

/// Closes the manager: every node answers, and is clean. A first report may name a node that failed a
/// release and answers again.
pub(crate) async fn assert_clean(manager: &LockManager) {
    if manager.close(LIMIT).await.is_clean() {
        return;
    }
    until_it_says("all is released", async || manager.close(LIMIT).await.is_clean()).await;
}

/// What the nodes answered to a round without a quorum.
#[track_caller]
pub(crate) fn unreachable<T>(outcome: Result<T, LockError>) -> QuorumFailure {
    match outcome {
        Err(LockError::Unreachable(failure)) => failure,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("there was a quorum"),
    }
}
