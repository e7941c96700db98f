//! The contract of a backend, on a real server, over redis-rs.

#[cfg(test)]
mod conformance {
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use quorate_core::Runtime;
    use quorate_core::backend::LockBackend;
    use quorate_core::runtime::TokioRuntime;
    use quorate_memory::conformance::{Testbed, backend};
    use quorate_redis::{bb8, builder, from_pool, redis};
    use quorate_tests::RedisServer;
    use quorate_tests::wait::LIMIT;

    struct Real<'a> {
        server: &'a RedisServer,
        backend: Arc<dyn LockBackend>,
    }

    impl Real<'_> {
        fn run(&self, words: &[&[u8]]) {
            assert_eq!(self.server.cli(words).error(), None);
        }
    }

    #[async_trait]
    impl Testbed for Real<'_> {
        fn backend(&self) -> Arc<dyn LockBackend> {
            Arc::clone(&self.backend)
        }

        fn runtime(&self) -> Arc<dyn Runtime> {
            Arc::new(TokioRuntime::new())
        }

        async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
            match self.server.cli(&[b"GET", key]) {
                quorate_tests::Reply::Bulk(value) => Some(value),
                quorate_tests::Reply::Nil => None,
                // The wait queue of a key is a sorted set.
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

    /// A node of each kind.
    fn nodes(server: &RedisServer) -> [Arc<dyn LockBackend>; 3] {
        let builder = builder().connect_timeout(LIMIT);
        let client = redis::Client::open(server.address()).unwrap();
        let pool = bb8::Pool::builder().connection_timeout(LIMIT);
        let pool = pool.idle_timeout(None).max_lifetime(None).build_unchecked(client);
        [
            Arc::new(builder.connect([server.address()]).unwrap().remove(0)),
            Arc::new(builder.pooled(4, [server.address()]).unwrap().remove(0)),
            Arc::new(from_pool("theirs", pool)),
        ]
    }

    /// Checks so many kinds of nodes, on a server that keeps its data over a restart.
    async fn check(kinds: usize) {
        let server = RedisServer::builder().append_only().start();
        for node in nodes(&server).into_iter().take(kinds) {
            let real = Real { server: &server, backend: Arc::clone(&node) };
            let passed =
                backend(&real).await.unwrap_or_else(|failure| panic!("{node:?}: {failure}"));
            assert!(!passed.is_empty());
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_kind_of_node_keeps_the_contract() {
        check(3).await;
    }

    #[tokio::test]
    async fn a_node_keeps_the_contract_on_one_thread() {
        check(1).await;
    }

    #[test]
    fn a_node_keeps_the_contract_on_smol() {
        smol::block_on(check(1));
    }
}
