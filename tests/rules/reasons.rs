//! What errors tell of a node that has not answered.

use async_trait::async_trait;
use quorate_core::{BackendError, BackendErrorKind, Claim, LockBackend, LockManager, Vote};
use quorate_memory::{Fault, MemoryNode};

use crate::world::{MS, World};

/// A node to which there is no connection.
#[derive(Debug)]
struct Dialled {
    node: MemoryNode,
    panics: bool,
}

#[async_trait]
impl LockBackend for Dialled {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node.acquire(claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node.extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.node.release(claim).await
    }

    fn name(&self) -> Option<&str> {
        Some(self.node.name())
    }

    fn obstacle(&self) -> Option<BackendError> {
        assert!(!self.panics, "a backend that panics");
        Some(BackendError::new(BackendErrorKind::TimedOut, "no connection within 1s"))
    }

    fn inspector(&self) -> Option<&dyn quorate_core::Inspect> {
        self.node.inspector()
    }
}

#[test]
fn what_kept_a_call_from_leaving_is_told_of_a_node_that_is_silent() {
    let world = World::new(3);
    let nodes = world.nodes.iter().zip([false, true, false]);
    let nodes = nodes.map(|(node, panics)| Dialled { node: node.clone(), panics });
    let manager = LockManager::builder(world.sim.clone(), nodes).node_timeout(70 * MS);
    let manager = manager.build().unwrap();
    world.nodes[0].inject(Fault::Hung);
    world.nodes[1].inject(Fault::Hung);
    let error = world.sim.block_on(manager.try_lock("r")).unwrap_err().to_string();
    assert_eq!(
        error,
        "no quorum: 1 of 3 nodes granted, 2 needed; \
         memory-1: no answer within 70.0ms: no connection within 1s; \
         memory-2: no answer within 70.0ms"
    );
    let seen = world.sim.block_on(manager.inspect("r")).unwrap();
    let views: Vec<_> = seen.iter().map(|node| node.saw.to_string()).collect();
    assert!(views[0].ends_with("ms: no connection within 1s"), "{views:?}");
    assert!(views[1].ends_with("ms"), "{views:?}");
    assert!(!views[2].contains("no connection"), "it has answered: {views:?}");
}

/// As long as a node that is hung is not asked, too.
#[test]
fn what_kept_a_call_from_leaving_is_told_of_a_node_that_is_not_asked() {
    let world = World::new(3);
    let nodes = world.nodes.iter().map(|node| Dialled { node: node.clone(), panics: false });
    let manager = LockManager::builder(world.sim.clone(), nodes).build().unwrap();
    world.nodes[0].inject(Fault::Hung);
    drop(world.sim.block_on(manager.lock("warm")).unwrap());
    world.sim.advance(600 * MS);
    drop(world.sim.block_on(manager.lock("probe")).unwrap());
    let _held = world.sim.block_on(world.manager().lock("r")).unwrap();
    let error = world.sim.block_on(manager.try_lock("r")).unwrap_err().to_string();
    let told = error.split("; ").find(|part| part.starts_with("memory-1: ")).unwrap();
    assert!(told.starts_with("memory-1: not asked: it has not answered for "), "{error}");
    assert!(told.ends_with("ms: no connection within 1s"), "{error}");
}
