//! The contract of a backend finds those that break it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::{BackendError, Claim, LockBackend, Ttl, Vote};
use quorate_memory::conformance::{self, Failure, Testbed};
use quorate_memory::{MemoryNode, Sim};

#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// Keys live for a second at least.
    Long,
    /// Keys are extended one by one.
    Apart,
}

#[derive(Clone, Debug)]
struct Node {
    inner: MemoryNode,
    wrong: Wrong,
}

#[async_trait]
impl LockBackend for Node {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let least = Ttl::try_from(Duration::from_secs(1)).unwrap();
        match self.wrong {
            Wrong::Long => self.inner.acquire(&claim.with_ttl(claim.ttl().max(least))).await,
            Wrong::Apart => self.inner.acquire(claim).await,
        }
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        if let Wrong::Long = self.wrong {
            return self.inner.extend(claim).await;
        }
        let mut vote = Vote::Granted;
        for key in claim.keys() {
            let one = Claim::new([key.clone()], claim.token().clone(), claim.ttl());
            if self.inner.extend(&one).await? == Vote::Refused {
                vote = Vote::Refused;
            }
        }
        Ok(vote)
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.inner.release(claim).await
    }
}

#[async_trait]
impl Testbed for Node {
    fn backend(&self) -> Arc<dyn LockBackend> {
        Arc::new(self.clone())
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        Testbed::value(&self.inner, key).await
    }

    async fn time_left(&self, key: &[u8]) -> Option<Duration> {
        Testbed::time_left(&self.inner, key).await
    }

    async fn expire(&self, key: &[u8]) {
        Testbed::expire(&self.inner, key).await;
    }

    async fn pass(&self, time: Duration) {
        Testbed::pass(&self.inner, time).await;
    }

    fn has_other_values(&self) -> bool {
        false
    }
}

#[test]
fn a_backend_that_breaks_the_contract_is_told_where() {
    for (wrong, expected) in [
        (Wrong::Long, "a key ends by itself when its ttl is over"),
        (Wrong::Apart, "an extension neither takes nor brings back"),
    ] {
        let sim = Sim::new(1);
        let node = Node { inner: MemoryNode::new("node", sim.clone()), wrong };
        let Err(Failure { case, detail, .. }) = sim.block_on(conformance::backend(&node)) else {
            panic!("{wrong:?} keeps the contract");
        };
        assert_eq!(case, expected, "{detail}");
    }
}
