//! Nodes that cannot fence.

use super::*;
use crate::backends::Odd;

#[test]
fn a_node_that_cannot_fence_is_a_typed_error_and_nothing_is_sent() {
    let world = World::new(3);
    let mut nodes: Vec<Arc<dyn LockBackend>> =
        world.spies().into_iter().map(|spy| Arc::new(spy) as _).collect();
    nodes[1] = Arc::new(Odd::new(&world.nodes[1]));
    let manager = LockManager::builder(nodes).runtime(world.sim.clone()).build().unwrap();
    for failed in
        [world.run(manager.lock("r").fenced()), world.run(manager.lock("r").no_wait().fenced())]
    {
        let Err(LockError::Invalid(InvalidRequest::Fencing { node })) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(node, "node 2");
    }
    assert_eq!(world.log.calls(), []);
    assert_eq!(world.sim.elapsed(), Duration::ZERO);
    assert!(world.run(manager.lock("r")).is_ok());
}
