//! A wrong backend as the suite sees it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::{LockBackend, Runtime};
use quorate_memory::conformance::Testbed;

use super::Wrong;
use crate::list::Flaw;

#[async_trait]
impl Testbed for Wrong {
    fn backend(&self) -> Arc<dyn LockBackend> {
        Arc::new(self.clone())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Testbed::runtime(&self.node)
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        Testbed::value(&self.node, key).await
    }

    async fn time_left(&self, key: &[u8]) -> Option<Duration> {
        self.node.time_left(key)
    }

    async fn expire(&self, key: &[u8]) {
        self.node.expire(key);
    }

    /// A store in which each value is a lock keeps the contract as well.
    fn has_other_values(&self) -> bool {
        !self.is(Flaw::None)
    }

    async fn put_list(&self, key: &[u8]) {
        assert!(self.has_other_values(), "there is no such value");
        Testbed::put_list(&self.node, key).await;
    }

    async fn restart(&self) -> bool {
        Testbed::restart(&self.node).await
    }
}
