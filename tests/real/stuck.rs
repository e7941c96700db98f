//! A connection whose peer acknowledges and never answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quorate::error::LeaseEnd;
use quorate::{LockBackend, LockManagerBuilder, ReleaseError};
use quorate_tests::wait::{LONG_TTL, NODE_TIMEOUT, until, until_it_says, within_limit};
use quorate_tests::{Direction, Mode, Nodes, Proxy, RedisServer};

use crate::client::{Client, LIMIT, all_have, on_tokio, unhurried};

/// For the oldest command without a reply.
const REPLY_LIMIT: Duration = Duration::from_secs(1);

/// Connects to one node, with a reply limit.
type Connect = fn(String, Duration) -> Arc<dyn LockBackend>;

const WAYS: [(&str, Connect); 3] = [
    ("redis", |address, limit| connect(Client::Redis, address, limit)),
    ("fred", |address, limit| connect(Client::Fred, address, limit)),
    ("pool", pooled),
];

fn connect(client: Client, address: String, limit: Duration) -> Arc<dyn LockBackend> {
    match client {
        Client::Redis => {
            let builder = quorate::redis::builder().reply_limit(limit);
            Arc::new(builder.connect([address]).unwrap().remove(0))
        }
        Client::Fred => {
            let builder = quorate::fred::builder().reply_limit(limit);
            Arc::new(builder.connect([address]).unwrap().remove(0))
        }
        Client::Pool => pooled(address, limit),
    }
}

fn pooled(address: String, limit: Duration) -> Arc<dyn LockBackend> {
    let builder = quorate::redis::builder().reply_limit(limit);
    Arc::new(builder.pooled(2, [address]).unwrap().remove(0))
}

/// Three nodes behind proxies.
fn proxied() -> (Nodes, Vec<Proxy>) {
    let nodes = Nodes::start(3);
    let proxies = nodes.iter().map(|node| Proxy::start(node.port())).collect();
    (nodes, proxies)
}

fn impatient(proxies: &[Proxy], connect: Connect, limit: Duration) -> LockManagerBuilder {
    let backends = proxies.iter().map(|proxy| connect(proxy.address(), limit));
    unhurried(backends).node_timeout(Duration::from_millis(300))
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
        for (way, connect) in WAYS {
            let (nodes, proxies) = proxied();
            let manager = impatient(&proxies, connect, REPLY_LIMIT).build().unwrap();
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

/// Two of three flows get stuck under a lock that is renewed: before a reply, and within one. The renewals go on over
/// new connections before the lease ends.
#[test]
fn a_renewed_lock_outlives_the_connections_that_never_answer() {
    const BETWEEN_REPLIES: usize = 0;
    const WITHIN_A_REPLY: usize = 2;
    on_tokio(async {
        let cases =
            WAYS.into_iter().flat_map(|way| [BETWEEN_REPLIES, WITHIN_A_REPLY].map(|at| (way, at)));
        join_all(cases.map(async |((way, connect), bytes)| {
            let place = format!("{way}, after {bytes} bytes");
            let (nodes, proxies) = proxied();
            let builder = impatient(&proxies, connect, REPLY_LIMIT).node_timeout(NODE_TIMEOUT);
            let manager = builder.renew_interval(Duration::from_millis(100)).build().unwrap();
            let guard = manager.lock("held").auto_renew().await.unwrap();
            all_have(&nodes, "held").await;
            proxies[..2].iter().for_each(|proxy| proxy.stick_after(bytes));
            // Each look is a connection as well.
            let before = [0, 1].map(|at| accepted(&nodes[at]));
            let mut looks = 0;
            until(&place, || {
                looks += 1;
                [0, 1].map(|at| accepted(&nodes[at]) > before[at] + looks) == [true; 2]
            })
            .await;
            let valid_until = guard.valid_until();
            until(&place, || guard.valid_until() > valid_until).await;
            assert!(guard.is_valid(), "{place}");
            guard.release().await.unwrap_or_else(|error| panic!("{place}: {error}"));
            let next = manager.lock("held").no_wait().await;
            next.unwrap_or_else(|error| panic!("{place}: {error}")).release().await.unwrap();
            until("no key is left", || nodes.keys_left().is_empty()).await;
        }))
        .await;
    });
}

/// The lease ends before the connections are replaced. Its holder is notified, and the lock works again.
#[test]
fn a_lock_whose_connections_never_answer_is_lost_and_works_again() {
    const TTL: Duration = Duration::from_secs(2);
    on_tokio(async {
        join_all(WAYS.map(async |(way, connect)| {
            let (nodes, proxies) = proxied();
            let builder = impatient(&proxies, connect, 2 * TTL).ttl(TTL);
            let manager = builder.build().unwrap();
            let guard = manager.lock("held").auto_renew().await.unwrap();
            all_have(&nodes, "held").await;
            proxies[..2].iter().for_each(|proxy| proxy.stick_after(0));
            let lost = within_limit(way, guard.lost()).await;
            assert!(matches!(lost, LeaseEnd::Expired { .. }), "{way}: {lost}");
            assert!(!guard.is_valid(), "{way}");
            let released = guard.release().await;
            assert!(matches!(released, Err(ReleaseError::Lost(_))), "{way}: {released:?}");
            let next = manager.lock("held").ttl(LONG_TTL).await;
            drop(next.unwrap_or_else(|error| panic!("{way}: {error}")));
            until("no key is left", || nodes.keys_left().is_empty()).await;
        }))
        .await;
    });
}
