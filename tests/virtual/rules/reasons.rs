//! A4: which error a caller gets, and what it says of each node.

use futures_util::future::join;
use quorate_core::LockError;
use quorate_core::error::Answer;
use quorate_memory::{Fault, MemoryNode, Value};
use quorate_protocol::error_of_reply;

use crate::world::{MS, SECOND, World};

fn refuse(world: &World) {
    for node in &world.nodes {
        node.put("r", Value::String(b"another client's".to_vec()));
    }
}

#[test]
fn a4_without_a_round_a_lock_is_held_while_a_guard_of_this_manager_is_in_the_way() {
    let world = World::new(3);
    let manager = world.manager();
    let _guard = world.sim.block_on(manager.lock("r")).unwrap();
    let before = world.log.calls().len();
    for request in [manager.lock("r").no_wait(), manager.lock("r").timeout(SECOND)] {
        let failed = world.sim.block_on(request).unwrap_err();
        let LockError::Held(failure) = &failed else { panic!("{failed}") };
        assert!(failure.is_local(), "{failed}");
        assert_eq!(failed.to_string(), "held by another guard or waiter of this manager");
    }
    assert_eq!(world.log.calls().len(), before, "nothing was sent");
}

#[test]
fn a4_without_a_round_a_lock_is_held_while_an_earlier_waiter_is_in_the_way() {
    let world = World::new(3);
    refuse(&world);
    let manager = world.manager();
    let first = manager.lock("r").timeout(5 * SECOND);
    let later = async {
        world.sim.sleep(SECOND).await;
        let no_wait = manager.lock("r").no_wait().await;
        (no_wait, manager.lock("r").timeout(SECOND).await)
    };
    let (first, (no_wait, second)) = world.sim.block_on(join(first.into_future(), later));
    let failed = first.unwrap_err();
    assert!(failed.is_held() && !failed.failure().unwrap().is_local(), "{failed}");
    for failed in [no_wait.unwrap_err(), second.unwrap_err()] {
        let LockError::Held(failure) = &failed else { panic!("{failed}") };
        assert!(failure.is_local(), "{failed}");
    }
}

#[test]
fn a4_a_round_that_the_timeout_cut_short_says_less_than_the_one_before_it() {
    let world = World::new(3);
    refuse(&world);
    let manager = world.builder().backoff(100 * MS, 100 * MS).build().unwrap();
    let hangs = async {
        world.sim.sleep(900 * MS).await;
        world.nodes.iter().for_each(|node| node.inject(Fault::Hung));
    };
    let request = manager.lock("r").timeout(SECOND).into_future();
    let (failed, ()) = world.sim.block_on(join(request, hangs));
    let failed = failed.unwrap_err();
    assert!(failed.is_held(), "{failed}");
    assert!(world.sim.elapsed() >= SECOND);
}

#[test]
fn a4_a_round_that_the_timeout_cut_short_is_told_if_there_was_no_other() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.inject(Fault::Hung));
    let failed = world.sim.block_on(world.manager().lock("r").timeout(100 * MS)).unwrap_err();
    let LockError::Unreachable(failure) = &failed else { panic!("{failed}") };
    let is_silent = |answer: &Answer| matches!(answer, Answer::NoReply { .. });
    assert!(failure.nodes().iter().all(|node| is_silent(&node.answer)), "{failed}");
}

#[test]
fn a4_permanent_errors_end_a_lock_at_once() {
    for reply in [
        "NOAUTH Authentication required.",
        "NOPERM this user has no permissions to run the 'set' command",
        "ERR unknown command 'EVALSHA'",
    ] {
        let error = error_of_reply(reply);
        let is_permanent = error.kind().is_permanent();
        let world = World::new(5);
        for node in &world.nodes[..3] {
            node.inject(Fault::Failing(error.clone()));
        }
        let failed = world.sim.block_on(world.manager().lock("r")).unwrap_err();
        assert!(matches!(failed, LockError::Unreachable(_)), "{failed}");
        assert_eq!(failed.is_permanent(), is_permanent, "{failed}");
        assert_eq!(world.sim.elapsed() < SECOND, is_permanent, "{reply}");
    }
    // On no more nodes than a quorum can spare, they end nothing.
    let world = World::new(5);
    for node in &world.nodes[..2] {
        node.inject(Fault::Failing(error_of_reply("NOAUTH Authentication required.")));
    }
    assert!(world.sim.block_on(world.manager().lock("r")).is_ok());
}

#[test]
fn a4_a_key_of_another_type_on_a_quorum_ends_a_lock_at_once() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.put("r", Value::List));
    let failed = world.sim.block_on(world.manager().lock(["r", "s"])).unwrap_err();
    assert!(failed.is_permanent() && failed.to_string().contains("WRONGTYPE"), "{failed}");
    assert!(world.sim.elapsed() <= 2 * MS);
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
