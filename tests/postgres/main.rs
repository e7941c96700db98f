//! The example of a backend on PostgreSQL, and the SQL of the guide, on a server of the system.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use quorate::memory::conformance;
use quorate::{LockBackend, LockManager};
use quorate_postgres::Postgres;
use quorate_tests::wait::{LONG_TTL, NODE_TIMEOUT, until_it_says, within_limit};
use quorate_tests::{Nodes, RedisServer};

#[allow(dead_code, reason = "its `main` is for users")]
#[path = "../../examples/postgres_backend.rs"]
mod postgres_backend;

mod fences;

use postgres_backend::PostgresNode;

async fn node(server: &Postgres) -> PostgresNode {
    let node = PostgresNode::new(&server.config()).unwrap();
    node.create_table().await.unwrap();
    node
}

/// One test, since both parts need a server: it takes a second to start.
#[tokio::test]
async fn a_node_on_postgresql_keeps_the_contract_and_votes_beside_redis() {
    let server = Postgres::start();
    let postgres = node(&server).await;
    let passed = conformance::backend(&postgres).await.unwrap();
    for case in ["several keys have one number", "of many at once, one is granted"] {
        assert!(passed.contains(&case), "{passed:?}");
    }

    let redis = &Nodes::start_with(2, &RedisServer::builder().append_only());
    let manager = || {
        let nodes = quorate::redis::connect(redis.addresses()).unwrap().into_iter();
        let nodes = nodes.map(|node| Arc::new(node) as Arc<dyn LockBackend>);
        let nodes = nodes.chain([Arc::new(postgres.clone()) as Arc<dyn LockBackend>]);
        let builder = LockManager::builder(nodes).ttl(LONG_TTL).node_timeout(NODE_TIMEOUT);
        builder.build().unwrap()
    };
    let (holder, rival) = (manager(), manager());
    let guard = holder.lock("orders:42").fenced().await.unwrap();
    let mut last = guard.fencing_token().unwrap();
    for name in ["the first Redis", "the other Redis", "PostgreSQL"] {
        let down = redis.get(usize::from(name != "the first Redis"));
        let down = down.filter(|_| name != "PostgreSQL");
        down.map_or_else(|| server.kill(), RedisServer::kill);
        // A node that is back connects with the first call after its pause.
        until_it_says(name, async || guard.extend().await.is_ok()).await;
        let refused = async || rival.lock("orders:42").no_wait().await.unwrap_err().is_held();
        until_it_says(name, refused).await;
        let other = within_limit(name, rival.lock("orders:43").fenced()).await.unwrap();
        other.release().await.unwrap();
        down.map_or_else(|| server.restart(), RedisServer::restart);
    }
    guard.release().await.unwrap();
    for manager in [&rival, &holder] {
        let guard = manager.lock("orders:42").fenced().await.unwrap();
        let token = guard.fencing_token().unwrap();
        assert!(token > last);
        last = token;
        guard.release().await.unwrap();
    }
    // A release that failed while the node was down is sent when the node answers another call.
    let client = postgres.client().await.unwrap();
    let held = "SELECT FROM quorate_lock WHERE token IS NOT NULL AND expires > clock_timestamp()";
    until_it_says("no row is held", async || {
        for manager in [&rival, &holder] {
            manager.lock("orders:44").await.unwrap().release().await.unwrap();
        }
        client.query(held, &[]).await.unwrap().is_empty()
    })
    .await;
}
