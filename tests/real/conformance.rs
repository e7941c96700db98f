//! The contract of a backend: every kind of node, on every runtime.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use quorate::memory::conformance::{Testbed, backend};
use quorate::runtime::{SmolRuntime, TokioRuntime};
use quorate::{LockBackend, Runtime};
use quorate_examples::{StdRuntime, block_on};
use quorate_tests::{RedisServer, Reply};

use crate::calls::server_id;
use crate::client::{Client, current_thread, on_tokio};
use crate::{permissions, pools};

struct Real<'a> {
    server: &'a RedisServer,
    backend: Arc<dyn LockBackend>,
    runtime: Arc<dyn Runtime>,
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
        while server_id(&self.backend).await.is_err() {}
        true
    }

    async fn forget_scripts(&self) {
        self.run(&[b"SCRIPT", b"FLUSH"]);
    }
}

type Make = fn(&str) -> Arc<dyn LockBackend>;

/// The kinds of nodes, what a user needs beside the rights of the guide, and how many cases of the suite concern each. A pool
/// keeps no order and does not watch, and one of a user pings its connections.
const KINDS: [(Make, &str, usize, bool); 3] = [
    (|address| Client::Redis.connect_one(address), "", 66, true),
    (|address| Client::Fred.connect_one(address), "", 66, true),
    (pools::theirs, "+ping", 58, false),
];

/// Checks a node on a server of its own, which keeps its data over a restart.
async fn check(make: Make, right: &str, cases: usize, runtime: Arc<dyn Runtime>) {
    let rules = format!("on >pw ~* {}{right}", permissions::rights());
    let server = &RedisServer::builder().append_only().user("locker", &rules).start();
    let node = make(&server.address_as("locker", "pw"));
    let name = format!("{node:?}");
    let real = Real { server, backend: node, runtime };
    let passed = backend(&real).await.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    assert_eq!(passed.len(), cases, "{name}: {passed:?}");
    permissions::assert_enough(server);
}

/// All at once, as most of it is waiting.
/// Rules V7, V9.
#[test]
fn each_kind_of_node_keeps_the_contract_on_every_runtime() {
    thread::scope(|scope| {
        for (make, right, cases, on_every_runtime) in KINDS {
            let tokio = move || check(make, right, cases, Arc::new(TokioRuntime::new()));
            scope.spawn(move || on_tokio(tokio()));
            if !on_every_runtime {
                continue;
            }
            scope.spawn(move || current_thread().block_on(tokio()));
            scope.spawn(move || {
                smol::block_on(check(make, right, cases, Arc::new(SmolRuntime::new())))
            });
            scope.spawn(move || block_on(check(make, right, cases, Arc::new(StdRuntime::new()))));
        }
    });
}
