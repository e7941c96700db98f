//! A4: which error a caller gets, and what it says of each node.

use quorate_core::LockError;
use quorate_memory::{Fault, MemoryNode, Value};
use quorate_protocol::error_of_reply;

use crate::world::{MS, SECOND, World};

#[test]
fn a4_permanent_errors_end_a_lock_at_once() {
    for reply in [
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair",
        "WRONGTYPE",
        "NOPERM this user has no permissions to run the 'set' command",
        "ERR unknown command 'EVALSHA'",
    ] {
        let error = error_of_reply(reply);
        for world in [World::complete(5), World::in_order(5), World::new(5)] {
            world.inject(..3, Fault::Failing(error.clone()));
            let failed = world.sim.block_on(world.manager().lock("r")).unwrap_err();
            assert!(matches!(failed, LockError::Unreachable(_)), "{failed}");
            assert!(failed.is_permanent() && !failed.is_held(), "{failed}");
            assert!(world.sim.elapsed() <= 2 * MS, "{reply}: {:?}", world.sim.elapsed());
        }
    }
    // On no more nodes than a quorum can spare they end nothing, and a node that is gone may come back.
    for (third, is_locked) in [(None, true), (Some(Fault::Dead), false)] {
        let world = World::complete(5);
        world.inject(..2, Fault::Failing(error_of_reply("NOAUTH Authentication required.")));
        third.into_iter().for_each(|fault| world.nodes[2].inject(fault));
        match world.sim.block_on(world.manager().lock("r")) {
            Ok(_) => assert!(is_locked),
            Err(lost) => {
                assert!(!is_locked && matches!(lost, LockError::Unreachable(_)), "{lost}");
                assert!(!lost.is_permanent() && world.sim.elapsed() >= 30 * SECOND, "{lost}");
            }
        }
    }
}

#[test]
fn an_error_says_what_each_node_answered() {
    let world = World::new(5);
    world.nodes[0].inject(Fault::Dead);
    world.nodes[1].inject(Fault::Hung);
    world.nodes[2].inject(Fault::Failing(error_of_reply("LOADING")));
    world.nodes[3].put("r", Value::String(b"another client's".to_vec()));
    let manager = world.builder().node_timeout(70 * MS).build().unwrap();
    let failed = world.sim.block_on(manager.lock("r").no_wait()).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "held by another client: 1 of 5 nodes granted, 3 needed; memory-1: connection refused; \
         memory-2: no reply yet when the quorum had become impossible; memory-3: LOADING; \
         memory-4: refused"
    );
    world.nodes[0..4].iter().for_each(MemoryNode::heal);
    world.sim.advance(SECOND);
    assert_eq!(world.keys_left(), 1, "only the other client's");
}
