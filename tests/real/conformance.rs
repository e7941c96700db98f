//! The contract of a backend, on a real node, through both clients, on several runtimes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quorate::memory::conformance::{Testbed, backend};
use quorate::runtime::{SmolRuntime, TokioRuntime};
use quorate::{LockBackend, Runtime};
use quorate_examples::StdRuntime;
use quorate_tests::{RedisServer, Reply};

use crate::client::{Client, with_each_client};

struct Real<'a> {
    server: &'a RedisServer,
    backend: Arc<dyn LockBackend>,
    runtime: Arc<dyn Runtime>,
}

impl Real<'_> {
    fn run(&self, words: &[&[u8]]) {
        let reply = self.server.cli(words);
        assert_eq!(reply.error(), None);
    }
}

#[async_trait]
impl Testbed for Real<'_> {
    fn backend(&self) -> Arc<dyn LockBackend> {
        Arc::clone(&self.backend)
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.runtime)
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.server.cli(&[b"GET", key]) {
            Reply::Bulk(value) => Some(value),
            Reply::Nil => None,
            // The wait queue of a key is an ordered set.
            _ => Some(Vec::new()),
        }
    }

    async fn time_left(&self, key: &[u8]) -> Option<Duration> {
        u64::try_from(self.server.pttl(key)).ok().map(Duration::from_millis)
    }

    async fn expire(&self, key: &[u8]) {
        self.run(&[b"PEXPIRE", key, b"0"]);
    }

    async fn put_list(&self, key: &[u8]) {
        self.run(&[b"LPUSH", key, b"x"]);
    }

    async fn restart(&self) -> bool {
        self.server.restart();
        // The runtime stood still meanwhile, so the end of a connection is not known yet.
        while self.backend.server_id().await.is_err() {}
        true
    }

    async fn forget_scripts(&self) {
        self.run(&[b"SCRIPT", b"FLUSH"]);
    }
}

/// A node that keeps its data over a restart.
fn server() -> RedisServer {
    RedisServer::builder().append_only().start()
}

async fn check(server: &RedisServer, node: Arc<dyn LockBackend>, runtime: Arc<dyn Runtime>) {
    let name = format!("{node:?}");
    let real = Real { server, backend: node, runtime };
    let passed = backend(&real).await.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    // Nothing is left out: both clients keep the queue, watch, fence, guard and keep the order.
    assert_eq!(passed.len(), 40, "{name}: {passed:?}");
}

#[test]
fn a_real_node_keeps_the_contract_on_tokio() {
    let server = &server();
    with_each_client(|client| {
        check(server, client.connect_one(&server.address()), Arc::new(TokioRuntime::new()))
    });
}

#[test]
fn a_real_node_keeps_the_contract_on_smol_and_on_bare_threads() {
    let server = server();
    for client in Client::ALL {
        let node = || client.connect_one(&server.address());
        smol::block_on(check(&server, node(), Arc::new(SmolRuntime::new())));
        quorate_examples::block_on(check(&server, node(), Arc::new(StdRuntime::new())));
    }
}
