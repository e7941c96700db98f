//! Addresses that lead to several nodes, or to another than before.

use std::sync::Mutex;

use quorate_core::backend::Capabilities;

use super::*;
use crate::backends::Odd;

/// Each reply may come from the other server, which did not set the epoch.
#[test]
fn an_address_with_several_servers_behind_it_does_not_vote() {
    let world = World::complete(3);
    world.inject(..2, Fault::Flapping);
    let manager = world.guarded(MAX_TTL);
    for _ in 0..200 {
        world.advance(SECOND);
        assert_eq!(kinds(&world.failure(&manager))[..2], [BackendErrorKind::Quarantined; 2]);
    }
    world.heal();
    world.failure(&manager);
    world.advance(2 * MAX_TTL);
    world.lock_and_release(&manager);
}

/// Q6, for as long as the manager lives: a node's server id comes with each of its votes.
#[test]
fn an_address_that_comes_to_lead_to_another_node_is_noticed() {
    let world = World::after_a_quarantine(3);
    let second = Arc::new(Mutex::new(world.nodes[1].clone()));
    let leads_to = Arc::clone(&second);
    let able = Capabilities::GUARD | Capabilities::SERVER_ID;
    let nodes = [
        Odd::new(&world.nodes[0]).named("first address"),
        Odd::leading_to(move || leads_to.lock().unwrap().clone()).named("second address"),
        Odd::new(&world.nodes[2]).named("third address"),
    ];
    let nodes = nodes.map(|node| node.able(able));
    let builder = LockManager::builder(nodes).runtime(world.sim.clone()).ttl(TTL);
    let manager = builder.restart_guard(MAX_TTL).build().unwrap();
    world.lock_and_release(&manager);
    *second.lock().unwrap() = world.nodes[0].clone();
    let lost = world.try_lock(&manager).unwrap_err();
    assert!(matches!(lost, LockError::SameServer { .. }), "{lost:?}");
    *second.lock().unwrap() = world.nodes[1].clone();
    world.advance(SECOND);
    // Both have reported theirs anew by the time that this is over.
    let _ = world.try_lock(&manager);
    world.advance(SECOND);
    world.lock_and_release(&manager);
}
