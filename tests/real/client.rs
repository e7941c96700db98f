//! The row of the tests: a client. One generic body is about both, and what differs says so.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorate::error::{Answer, NodeAnswer, QuorumFailure};
use quorate::redis::bb8::{ManageConnection, Pool};
use quorate::redis::from_pool;
use quorate::redis::redis::aio::MultiplexedConnection;
use quorate::redis::redis::{self, AsyncConnectionConfig, RedisError};
use quorate::runtime::TokioRuntime;
use quorate::{
    BackendError, LockBackend, LockError, LockManager, LockManagerBuilder,
    operators::{KeyState, NodeView},
};
pub(crate) use quorate_tests::wait::LIMIT;
use quorate_tests::wait::{LONG_TTL, NODE_TIMEOUT, until, until_it_says};
use quorate_tests::{Nodes, RedisServer};
use tokio::runtime::{Builder, Runtime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Redis,
    Fred,
    /// redis-rs over a pool of bb8 that a user has: no order, no watches.
    Pool,
}

/// Longer than a slow machine takes to connect, and well below the limit of the tests.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The nodes of a client at these addresses, from its builder as `$set` makes it: the builders of both crates have the same
/// methods.
macro_rules! connected {
    ($client:expr, $addresses:expr, |$builder:ident| $set:expr) => {
        match $client {
            Client::Redis => {
                let $builder = quorate::redis::builder();
                crate::client::shared($set.connect($addresses).unwrap())
            }
            Client::Fred => {
                let $builder = quorate::fred::builder();
                crate::client::shared($set.connect($addresses).unwrap())
            }
            Client::Pool => unreachable!("a pool makes its own connections"),
        }
    };
}

pub(crate) use connected;

impl Client {
    /// Most tests are about these two. Calls and waits over a pool differ, and so do their tests.
    pub(crate) const ALL: [Self; 2] = [Self::Redis, Self::Fred];

    pub(crate) const WITH_POOL: [Self; 3] = [Self::Redis, Self::Fred, Self::Pool];

    /// Backends that a slow machine does not keep from connecting.
    pub(crate) fn connect(self, addresses: &[String]) -> Vec<Arc<dyn LockBackend>> {
        if self == Self::Pool {
            return addresses.iter().map(|address| pooled(address, 2)).collect();
        }
        connected!(self, addresses.iter().cloned(), |it| it.connect_timeout(CONNECT_TIMEOUT))
    }

    /// The only backend at `address`.
    pub(crate) fn connect_one(self, address: &str) -> Arc<dyn LockBackend> {
        self.connect(&[address.to_owned()]).remove(0)
    }

    /// A manager of the only node at `address`.
    pub(crate) fn manager_at(self, address: &str) -> LockManager {
        self.builder_of(&[address.to_owned()]).build().unwrap()
    }

    pub(crate) fn builder_of(self, addresses: &[String]) -> LockManagerBuilder {
        unhurried(self.connect(addresses))
    }

    pub(crate) fn builder(self, nodes: &Nodes) -> LockManagerBuilder {
        self.builder_of(&nodes.addresses())
    }

    pub(crate) fn manager(self, nodes: &Nodes) -> LockManager {
        self.builder(nodes).build().unwrap()
    }

    /// The word for it in the arguments of a program.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Fred => "fred",
            Self::Pool => "pool",
        }
    }
}

/// A node over a pool of up to `size` connections, which a slow machine does not keep from connecting.
pub(crate) fn pooled(address: &str, size: u32) -> Arc<dyn LockBackend> {
    let manager = Connects(redis::Client::open(address).unwrap());
    let pool = Pool::builder().max_size(size).connection_timeout(LIMIT);
    let pool = pool.idle_timeout(None).max_lifetime(None).build_unchecked(manager);
    let (_, place) = address.rsplit_once(['@', '/']).unwrap();
    Arc::new(from_pool(place, pool))
}

/// As redis-rs' own manager, with more time.
struct Connects(redis::Client);

impl ManageConnection for Connects {
    type Connection = MultiplexedConnection;
    type Error = RedisError;

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT));
        let config = config.set_response_timeout(Some(CONNECT_TIMEOUT));
        self.0.get_multiplexed_async_connection_with_config(&config).await
    }

    async fn is_valid(&self, _: &mut MultiplexedConnection) -> Result<(), RedisError> {
        Ok(())
    }

    fn has_broken(&self, _: &mut MultiplexedConnection) -> bool {
        false
    }
}

pub(crate) fn shared(nodes: Vec<impl LockBackend>) -> Vec<Arc<dyn LockBackend>> {
    nodes.into_iter().map(|node| Arc::new(node) as _).collect()
}

/// Settings under which no lease ends, and no healthy node is given up, because the machine is slow.
/// A test of an expiry or of a node that hangs sets the ttl or the node timeout itself.
pub(crate) fn unhurried<B: LockBackend>(nodes: impl IntoIterator<Item = B>) -> LockManagerBuilder {
    let builder = LockManager::builder(nodes).runtime(TokioRuntime::new());
    builder.ttl(LONG_TTL).node_timeout(NODE_TIMEOUT).wait_timeout(LIMIT)
}

/// Runs `check` with both clients, each on both kinds of tokio.
pub(crate) fn with_each_client<F: Future<Output = ()>>(check: impl Fn(Client) -> F) {
    for client in Client::ALL {
        current_thread().block_on(check(client));
        on_tokio(check(client));
    }
}

pub(crate) fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs `check` with one client after the other.
pub(crate) fn with_each(clients: &[Client], check: impl AsyncFn(Client)) {
    on_tokio(async {
        for client in clients {
            check(*client).await;
        }
    });
}

pub(crate) fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn on_tokio<F: Future>(future: F) -> F::Output {
    multi_thread().block_on(future)
}

/// Takes a lock and releases it, so that each node has a connection and knows the scripts.
pub(crate) async fn warm_up(manager: &LockManager) {
    // With a short node timeout on a busy machine, the release may be unconfirmed, and goes on.
    drop(manager.lock("warm").await.unwrap().release().await);
    // A quorum may have connected before the others.
    until_it_says("each node answers", async || {
        let seen = manager.inspect("warm").await.unwrap();
        let answers = |view: &NodeView| !matches!(view.state, KeyState::Failed(_));
        seen.nodes().iter().all(answers)
    })
    .await;
}

/// How many connections the node has accepted.
pub(crate) fn accepted(node: &RedisServer) -> u64 {
    node.info("total_connections_received").parse().unwrap()
}

/// Waits until no key is left. A key that another call sets later is left when the manager is closed.
pub(crate) async fn nothing_is_left(nodes: &Nodes) {
    until("no key is left", || nodes.keys_left().is_empty()).await;
}

/// Waits until each node has the key, which a quorum may have without the others.
pub(crate) async fn all_have(nodes: &Nodes, key: &str) {
    until("each node has the key", || nodes.iter().all(|node| node.get(key).is_some())).await;
}

/// Closes the only manager of the nodes: every node answers, and no key is left on one.
pub(crate) async fn close(manager: &LockManager, nodes: &Nodes) {
    close_all([manager], nodes).await;
}

/// Closes all managers of the nodes. One may still have to release what another has already.
pub(crate) async fn close_all<const N: usize>(managers: [&LockManager; N], nodes: &Nodes) {
    for manager in managers {
        assert_clean(manager).await;
    }
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
        Err(LockError::NoQuorum(failure)) => failure,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("there was a quorum"),
    }
}

/// The error of the only node in a failure.
#[track_caller]
pub(crate) fn only_error(failure: &QuorumFailure) -> &BackendError {
    match failure.nodes() {
        [NodeAnswer { answer: Answer::Failed(error), .. }] => error,
        _ => panic!("{failure}"),
    }
}

/// How often a node has executed a command.
pub(crate) fn calls(node: &RedisServer, command: &str) -> u64 {
    let info = node.cli(&["INFO", "commandstats"]).text();
    let start = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&start));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}
