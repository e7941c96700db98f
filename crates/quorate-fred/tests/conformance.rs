//! The contract of a backend, on a real server, over fred.

#[cfg(test)]
mod conformance {
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use quorate_core::Runtime;
    use quorate_core::backend::LockBackend;
    use quorate_core::runtime::TokioRuntime;
    use quorate_memory::conformance::{Testbed, backend};
    use quorate_tests::wait::LIMIT;
    use quorate_tests::{RedisServer, Reply};

    struct Real {
        server: RedisServer,
        backend: Arc<dyn LockBackend>,
    }

    impl Real {
        fn run(&self, words: &[&[u8]]) {
            assert_eq!(self.server.cli(words).error(), None);
        }
    }

    #[async_trait]
    impl Testbed for Real {
        fn backend(&self) -> Arc<dyn LockBackend> {
            Arc::clone(&self.backend)
        }

        fn runtime(&self) -> Arc<dyn Runtime> {
            Arc::new(TokioRuntime::new())
        }

        async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
            match self.server.cli(&[b"GET", key]) {
                Reply::Bulk(value) => Some(value),
                Reply::Nil => None,
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

    /// Checks a node on a server that keeps its data over a restart.
    async fn check() {
        let server = RedisServer::builder().append_only().start();
        let builder = quorate_fred::builder().connect_timeout(LIMIT);
        let node = builder.connect([server.address()]).unwrap().remove(0);
        let real = Real { server, backend: Arc::new(node) };
        let passed = backend(&real).await.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(!passed.is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_keeps_the_contract() {
        check().await;
    }

    #[tokio::test]
    async fn a_node_keeps_the_contract_on_one_thread() {
        check().await;
    }

    #[test]
    fn a_node_keeps_the_contract_on_smol() {
        smol::block_on(check());
    }
}
