//! New processes whose nodes are so far away that a connect takes longer than a node timeout.

use std::time::Duration;

use futures_util::future::join_all;
use quorate::operators::LockState;
use quorate::{LockManager, runtime::TokioRuntime};
use quorate_tests::Nodes;
use quorate_tests::proxy::{Mode, Proxy};
use quorate_tests::wait::LONG_TTL;

use crate::client::{Client, on_tokio};

/// Each byte takes this long in each direction.
const WAY: Duration = Duration::from_millis(100);

/// The round trip fits into it, and the four of a connect do not. A slow machine fails nothing: it has the connect limit.
const NODE_TIMEOUT: Duration = Duration::from_millis(700);

/// Each call is the first one of its manager.
/// Rules Q5, O1.
#[test]
fn the_first_call_to_nodes_that_are_far_away_succeeds() {
    let nodes = Nodes::start(3);
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
    proxies.iter().for_each(|proxy| proxy.set(Mode::Delay(WAY)));
    let addresses: Vec<String> = proxies.iter().map(Proxy::address).collect();
    let calls = async |client: Client| {
        let new = || {
            let builder = LockManager::builder(client.connect(&addresses));
            let builder = builder.runtime(TokioRuntime::new()).ttl(LONG_TTL);
            builder.node_timeout(NODE_TIMEOUT).build().unwrap()
        };
        let name = format!("r of {client:?}");
        let guard = new().try_lock(&name).await.unwrap();
        assert!(guard.is_some(), "{client:?}");
        let seen = new().inspect(&name).await.unwrap();
        assert_eq!(seen.state(), LockState::Held, "{client:?}: {seen}");
        drop(guard);
        let job = format!("job of {client:?}");
        let done = new().once_per(job, LONG_TTL, async |_| Ok::<_, ()>(())).await.unwrap();
        assert!(done.is_some(), "{client:?}");
        let check = new().check().await;
        assert!(check.can_lock(), "{client:?}: {check}");
        let seen = new().inspect("free").await.unwrap();
        assert_eq!(seen.state(), LockState::Free, "{client:?}: {seen}");
    };
    // All at once, as each of them waits.
    on_tokio(join_all(Client::WITH_POOL.map(calls)));
}
