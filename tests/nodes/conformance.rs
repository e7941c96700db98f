//! The contract of a backend, on a real node, through both clients, on several runtimes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quorate::LockBackend;
use quorate::memory::conformance::{Testbed, backend};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, on_tokio, with_each_client};

struct Real<'a> {
    server: &'a RedisServer,
    backend: Arc<dyn LockBackend>,
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

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.server.get(key)
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

    async fn forget_scripts(&self) {
        self.run(&[b"SCRIPT", b"FLUSH"]);
    }
}

async fn check(client: Client, nodes: &Nodes) {
    for (server, backend_) in nodes.iter().zip(client.connect(&nodes.addresses())) {
        let real = Real { server, backend: backend_ };
        let passed = backend(&real).await.unwrap_or_else(|failure| panic!("{client:?}: {failure}"));
        assert_eq!(passed.len(), 39);
    }
}

#[test]
fn a_real_node_keeps_the_contract_on_tokio() {
    let nodes = &Nodes::start(1);
    with_each_client(|client| async move { check(client, nodes).await });
}

#[test]
fn a_real_node_keeps_the_contract_on_smol_and_on_bare_threads() {
    let nodes = Nodes::start(1);
    for client in Client::ALL {
        smol::block_on(check(client, &nodes));
        quorate_examples::block_on(check(client, &nodes));
    }
}

/// One lane, several lanes, a pool of the user's, a connection of the user's.
#[test]
fn every_shape_of_the_redis_backend_keeps_the_contract() {
    use quorate::redis::redis::Client as Redis;
    use quorate::redis::{RedisBackend, bb8};

    let server = &RedisServer::start();
    let open = || Redis::open(server.address()).unwrap();
    on_tokio(async {
        let pool = bb8::Pool::builder().max_size(4).build(open()).await.unwrap();
        let connection = open().get_multiplexed_async_connection().await.unwrap();
        let shapes = [
            RedisBackend::new(open()),
            quorate::redis::builder().connections(3).build(open()),
            RedisBackend::from_pool("pool", pool),
            RedisBackend::from_connection("connection", connection),
        ];
        for shape in shapes {
            let name = format!("{shape:?}");
            let real = Real { server, backend: Arc::new(shape) };
            backend(&real).await.unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    });
}

#[test]
fn a_fred_client_of_the_users_keeps_the_contract() {
    use quorate::fred::FredBackend;
    use quorate::fred::fred::prelude::{Builder, ClientLike, Config};

    let server = &RedisServer::start();
    on_tokio(async {
        let config = Config::from_url(&server.address()).unwrap();
        let client = Builder::from_config(config).build().unwrap();
        client.init().await.unwrap();
        let backend_ = FredBackend::from_client("mine", client).unwrap();
        let real = Real { server, backend: Arc::new(backend_) };
        backend(&real).await.unwrap();
    });
}
