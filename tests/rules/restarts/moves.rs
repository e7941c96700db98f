//! Addresses that lead to several nodes, or to another than before.

use std::sync::Mutex;

use async_trait::async_trait;
use quorate_core::{BackendError, FenceHint, Guarded, Identify, Vote};

use super::*;

#[test]
fn an_address_with_several_servers_behind_it_is_reported_and_does_not_vote() {
    let world = World::fresh(3);
    for node in &world.nodes[..2] {
        node.inject(Fault::Flapping);
    }
    let manager = world.manager(MAX_TTL);
    let mut said = Vec::new();
    for _ in 0..200 {
        world.sim.advance(SECOND);
        said.extend(world.failure(&manager).iter().filter_map(|node| match &node.answer {
            Answer::Failed(error) => Some(error.kind()),
            _ => None,
        }));
    }
    assert!(said.contains(&BackendErrorKind::Identity));
    let last = world.failure(&manager);
    assert_eq!(kinds(&last), [BackendErrorKind::Identity; 2]);
    let text = last.to_string();
    assert!(text.contains("memory-1: unstable identity"), "{text}");
    world.nodes.iter().for_each(MemoryNode::heal);
    world.failure(&manager);
    world.sim.advance(2 * MAX_TTL);
    world.lock_and_release(&manager);
}

/// Q6, for as long as the manager lives: who a node is comes with each of its votes.
#[test]
fn q6_an_address_that_comes_to_lead_to_another_node_is_noticed() {
    let world = World::new(3);
    let moves = Moves::new(&world.nodes);
    let nodes = moves.clone();
    let builder = LockManager::builder(nodes).runtime(world.sim.clone()).ttl(TTL);
    let manager = builder.restart_guard(MAX_TTL).build().unwrap();
    world.lock_and_release(&manager);
    moves[1].go_to(&world.nodes[0]);
    let lost = world.try_lock(&manager).unwrap_err();
    assert!(matches!(lost, LockError::SameServer { .. }), "{lost:?}");
    moves[1].go_to(&world.nodes[1]);
    world.sim.advance(SECOND);
    // Both have told anew by the time that this is over.
    let _ = world.try_lock(&manager);
    world.sim.advance(SECOND);
    world.lock_and_release(&manager);
}

#[derive(Clone, Debug)]
struct Moves {
    name: String,
    node: Arc<Mutex<MemoryNode>>,
}

impl Moves {
    fn new(nodes: &[MemoryNode]) -> Vec<Self> {
        let address = |node: &MemoryNode| Self {
            name: format!("address of {}", node.name()),
            node: Arc::new(Mutex::new(node.clone())),
        };
        nodes.iter().map(address).collect()
    }

    fn go_to(&self, node: &MemoryNode) {
        *self.node.lock().unwrap() = node.clone();
    }

    fn node(&self) -> MemoryNode {
        self.node.lock().unwrap().clone()
    }
}

#[async_trait]
impl LockBackend for Moves {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::acquire(&self.node(), claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node().extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        LockBackend::release(&self.node(), claim).await
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn identity(&self) -> Option<&dyn Identify> {
        Some(self)
    }

    fn quarantine(&self) -> Option<&dyn Quarantine> {
        Some(self)
    }
}

#[async_trait]
impl Identify for Moves {
    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        self.node().server_id().await
    }
}

#[async_trait]
impl Quarantine for Moves {
    async fn acquire(
        &self,
        claim: &Claim,
        hint: Option<FenceHint>,
        guard: RestartGuard,
    ) -> Result<Guarded, BackendError> {
        Quarantine::acquire(&self.node(), claim, hint, guard).await
    }
}
