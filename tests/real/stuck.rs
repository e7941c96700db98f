//! A connection whose peer acknowledges and never answers.

use std::sync::Arc;
use std::time::Duration;

use quorate::LockBackend;
use quorate_tests::wait::{until, until_it_says};
use quorate_tests::{Direction, Mode, Nodes, Proxy, RedisServer};

use crate::client::{Client, LIMIT, all_have, on_tokio, unhurried};

/// For the oldest command without a reply.
const REPLY_LIMIT: Duration = Duration::from_secs(1);

fn connect(client: Client, address: String) -> Arc<dyn LockBackend> {
    match client {
        Client::Redis => {
            let builder = quorate::redis::builder().reply_limit(REPLY_LIMIT);
            Arc::new(builder.connect([address]).unwrap().remove(0))
        }
        Client::Fred => {
            let builder = quorate::fred::builder().reply_limit(REPLY_LIMIT);
            Arc::new(builder.connect([address]).unwrap().remove(0))
        }
        Client::Pool => pooled(address),
    }
}

fn pooled(address: String) -> Arc<dyn LockBackend> {
    let builder = quorate::redis::builder().reply_limit(REPLY_LIMIT);
    Arc::new(builder.pooled(2, [address]).unwrap().remove(0))
}

/// How many connections the node has accepted.
fn accepted(node: &RedisServer) -> u64 {
    node.info("total_connections_received").parse().unwrap()
}

/// Two of three flows are stuck, under a lock that is held. The lock goes on with what is renewed over new
/// connections, and the next lock is acquired over them.
#[test]
fn a_connection_that_never_answers_is_replaced() {
    on_tokio(async {
        type Connect = fn(String) -> Arc<dyn LockBackend>;
        let ways: [(&str, Connect); 3] = [
            ("redis", |address| connect(Client::Redis, address)),
            ("fred", |address| connect(Client::Fred, address)),
            ("pool", pooled),
        ];
        for (way, connect) in ways {
            let nodes = Nodes::start(3);
            let proxies: Vec<_> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
            let backends = proxies.iter().map(|proxy| connect(proxy.address()));
            let manager = unhurried(backends).node_timeout(Duration::from_millis(300)).build();
            let manager = manager.unwrap();
            let guard = manager.lock("held").await.unwrap();
            all_have(&nodes, "held").await;
            for proxy in &proxies[..2] {
                proxy.set(Mode::BlackHole(Direction::ToClient));
            }
            assert!(guard.extend().await.is_err(), "{way}: two of three are silent");
            let before = [0, 1].map(|at| accepted(&nodes[at]));
            // Each look is a connection as well.
            let mut looks = 0;
            until_it_says(way, async || {
                let _ = manager.lock("probe").no_wait().await;
                looks += 1;
                let replaced = [0, 1].map(|at| accepted(&nodes[at]) > before[at] + looks);
                replaced.iter().all(|is_replaced| *is_replaced)
            })
            .await;
            for proxy in &proxies[..2] {
                proxy.set(Mode::Pass);
            }
            guard.extend().await.ok();
            let next = manager.lock("next").timeout(LIMIT).await.unwrap();
            next.release().await.unwrap();
            let extended = guard.extend().await;
            assert!(extended.is_ok(), "{way}: {extended:?}");
            drop(guard);
            until("no key is left", || nodes.keys_left().is_empty()).await;
        }
    });
}
