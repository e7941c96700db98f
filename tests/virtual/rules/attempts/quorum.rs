//! Q1–Q6, on managers. The bare rule is tested where it stands, in `quorate-core`.

use std::sync::Arc;

use futures_util::FutureExt as _;
use quorate_core::error::Answer;
use quorate_core::{
    AdoptError, BackendErrorKind, BuildError, ExtendError, LockBackend, LockError, LockManager,
    ReleaseError, Runtime as _,
};
use quorate_memory::{Fault, Value};

use crate::backends::{Begins, begin};
use crate::world::{MS, SECOND, World};

#[test]
fn q1_a_quorum_of_the_configured_nodes_for_every_operation() {
    for count in 1..=7 {
        for dead in 0..=count {
            let quorate = count - dead > count / 2;
            let (world, guard) = World::new(count).held();
            world.inject(..dead, Fault::Dead);
            let lock = world.run(world.manager().lock("other").no_wait());
            let extended = world.run(guard.extend());
            let released = world.run(guard.release());
            let state = format!("{dead} of {count} dead");
            assert_eq!(lock.is_ok(), quorate, "{state}");
            assert_eq!(extended.is_ok(), quorate, "{state}");
            assert_eq!(released.is_ok(), quorate, "{state}");
            if !quorate {
                assert!(matches!(lock, Err(LockError::NoQuorum(_))));
                assert!(matches!(extended, Err(ExtendError::NoQuorum(_))));
                assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))));
            }
        }
    }
}

/// `SET NX`, as one key needs it, cannot see that. The script for several keys can.
/// Rule A4.
#[test]
fn q4_a_key_of_another_type_is_held_by_no_client() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.put("r", Value::List));
    let lost = world.run(world.manager().lock(["r", "s"])).unwrap_err();
    assert!(matches!(lost, LockError::NoQuorum(_)) && lost.is_permanent(), "{lost}");
    assert!(lost.to_string().contains("WRONGTYPE"), "{lost}");
    assert!(world.sim.elapsed() <= 2 * MS, "A4: at once");
}

/// Whatever is done first, and when it is done again.
/// Rule C8.
#[test]
fn q6_one_server_under_two_names_is_refused() {
    let world = World::in_order(3);
    let record = world.run(world.manager().lock("handed over")).unwrap().detach().unwrap();
    let twice = || {
        let alias = Begins::new(&world.nodes[0], begin).named("alias");
        let all: [Arc<dyn LockBackend>; 3] =
            [Arc::new(world.nodes[0].clone()), Arc::new(alias), Arc::new(world.nodes[1].clone())];
        world.over(all)
    };
    for fenced in [false, true] {
        let manager = twice();
        for _ in 0..2 {
            let request = manager.lock("r");
            let refused = world.run(if fenced { request.fenced() } else { request });
            let Err(error @ LockError::SameServer { .. }) = refused else { panic!("{refused:?}") };
            assert_eq!(error.to_string(), "the nodes memory-1 and alias are one server");
            assert_eq!(world.holders("r"), 0, "C8: when it is returned");
            world.advance(SECOND);
            assert_eq!(world.holders("r"), 0);
        }
        for manager in [manager, twice()] {
            let adopted = world.run(manager.adopt(&record));
            assert!(
                matches!(adopted, Err(AdoptError::Lock(LockError::SameServer { .. }))),
                "{adopted:?}"
            );
        }
    }
}

/// The answer of the alias comes after the win. A caller that waits for it knows before the work begins.
#[test]
fn q6_an_alias_that_answers_after_the_win_is_a_failure_of_its_node() {
    let world = World::in_order(2);
    let sim = world.sim.clone();
    let alias = Begins::new(&world.nodes[0], move |node, call, _| {
        let (node, runtime) = (node.clone(), sim.clone());
        let begins = sim.sleep(20 * MS).map(move |()| drop(begin(&node, call, &runtime)));
        sim.spawn(Box::pin(begins));
        Ok(())
    });
    let alias: Arc<dyn LockBackend> = Arc::new(alias.named("alias"));
    let others = world.nodes.iter().map(|node| Arc::new(node.clone()) as Arc<dyn LockBackend>);
    let manager = world.over(others.chain([alias]));
    let guard = world.lock(&manager);
    let failure = || manager.readiness().nodes()[2].failure.as_ref().map(ToString::to_string);
    assert!(guard.is_valid() && failure().is_none(), "a quorum is enough");
    world.advance(20 * MS);
    assert_eq!(failure().as_deref(), Some("this is the same server as memory-1"));
    let known = manager.readiness();
    let Some(Answer::Failed(error)) = &known.nodes()[2].failure else { panic!("{known}") };
    assert_eq!(error.kind(), BackendErrorKind::Identity);
}

#[test]
fn q6_one_address_twice_is_refused() {
    let world = World::new(1);
    let nodes = [world.nodes[0].clone(), world.nodes[0].clone()];
    let built = LockManager::builder(nodes).runtime(world.sim.clone()).build();
    assert_eq!(built.err(), Some(BuildError::DuplicateNode { name: "memory-1".to_owned() }));
}
