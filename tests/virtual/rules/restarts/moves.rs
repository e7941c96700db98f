//! Addresses that lead to several nodes, or to another than before.

use std::borrow::Cow;
use std::sync::Mutex;

use async_trait::async_trait;
use quorate_core::backend::{Capabilities, ExtendOptions, ReleaseOptions, Reply};

use super::*;

/// Each reply may come from the other server, which did not set the epoch.
#[test]
fn an_address_with_several_servers_behind_it_does_not_vote() {
    let world = World::fresh(3);
    for node in &world.nodes[..2] {
        node.inject(Fault::Flapping);
    }
    let manager = world.manager(MAX_TTL);
    for _ in 0..200 {
        world.sim.advance(SECOND);
        assert_eq!(kinds(&world.failure(&manager))[..2], [BackendErrorKind::Quarantined; 2]);
    }
    world.nodes.iter().for_each(MemoryNode::heal);
    world.failure(&manager);
    world.sim.advance(2 * MAX_TTL);
    world.lock_and_release(&manager);
}

/// Q6, for as long as the manager lives: a node's server id comes with each of its votes.
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
    // Both have reported theirs anew by the time that this is over.
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
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        self.node().acquire(claim, options).await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.node().extend(claim, options).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.node().release(claim, options).await
    }

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::GUARD | Capabilities::SERVER_ID
    }

    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        self.node().server_id().await
    }
}
