//! The contract of a backend finds those that break it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::{Ask, BackendError, Call, Carry, Claim, LockBackend, Runtime, Ttl, Vote};
use quorate_memory::conformance::{self, Failure, Testbed};
use quorate_memory::{MemoryNode, Sim};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// Keys live for a second at least.
    Long,
    /// Keys are extended one by one.
    Apart,
    /// What is carried leaves, wanted or not.
    Stubborn,
    /// A release that is carried is granted to anybody.
    Generous,
}

#[derive(Clone, Debug)]
struct Node {
    sim: Sim,
    inner: MemoryNode,
    wrong: Wrong,
}

#[async_trait]
impl LockBackend for Node {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        let least = Ttl::try_from(Duration::from_secs(1)).unwrap();
        match self.wrong {
            Wrong::Long => self.inner.acquire(&claim.with_ttl(claim.ttl().max(least))).await,
            _ => self.inner.acquire(claim).await,
        }
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        if self.wrong != Wrong::Apart {
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

    fn carrier(&self) -> Option<&dyn Carry> {
        matches!(self.wrong, Wrong::Stubborn | Wrong::Generous).then_some(self as _)
    }
}

impl Carry for Node {
    fn carries(&self, _: &Claim) -> bool {
        true
    }

    fn carry(&self, call: Call) {
        let node = self.clone();
        self.sim.spawn(Box::pin(async move {
            let answer = match (call.ask(), node.wrong) {
                (Ask::Acquire, _) => node.acquire(call.claim()).await,
                (_, Wrong::Generous) => Ok(Vote::Granted),
                _ => node.release(call.claim()).await,
            };
            call.answer(answer);
        }));
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
        (Wrong::Generous, "what is carried is as if it had been asked for"),
        (Wrong::Stubborn, "what is carried and not wanted does not leave"),
    ] {
        let sim = Sim::new(1);
        let node = Node { sim: sim.clone(), inner: MemoryNode::new("node", sim.clone()), wrong };
        let Err(Failure { case, detail, .. }) = sim.block_on(conformance::backend(&node)) else {
            panic!("{wrong:?} keeps the contract");
        };
        assert_eq!(case, expected, "{detail}");
    }
}

#[test]
fn nodes_in_memory_keep_the_contract_carrying_or_not() {
    let sim = Sim::new(1);
    let node = MemoryNode::new("node", sim.clone());
    let plain = sim.block_on(conformance::backend(&node)).unwrap();
    let carrying = sim.block_on(conformance::backend(&node.carrying())).unwrap();
    assert_eq!(carrying.len(), plain.len() + 2);
}
