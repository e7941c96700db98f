//! A node in memory as a testbed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::Runtime;
use quorate_core::backend::LockBackend;

use super::Testbed;
use crate::node::MemoryNode;
use crate::store::Value;

#[async_trait]
impl Testbed for MemoryNode {
    fn backend(&self) -> Arc<dyn LockBackend> {
        Arc::new(self.clone())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Self::runtime(self)
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.get(key) {
            Some(Value::String(value)) => Some(value),
            _ => None,
        }
    }

    async fn time_left(&self, key: &[u8]) -> Option<Duration> {
        Self::time_left(self, key)
    }

    async fn expire(&self, key: &[u8]) {
        Self::expire(self, key);
    }

    async fn restart(&self) -> bool {
        self.save();
        self.restart_from_save();
        true
    }

    async fn put_list(&self, key: &[u8]) {
        self.put(key, Value::List);
    }
}
