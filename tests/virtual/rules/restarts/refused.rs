//! What cannot be guarded is refused by name.

use quorate_core::backend::Capabilities;

use super::*;

#[test]
fn what_would_outlive_a_quarantine_is_refused_before_anything_is_sent() {
    let world = World::after_a_quarantine(3);
    let over = |ttl| InvalidTtl::OverMaxTtl { ttl, max_ttl: MAX_TTL };
    let builder = || LockManager::builder(world.nodes.clone()).runtime(world.sim.clone());
    let long = builder().ttl(MAX_TTL + MS).restart_guard(MAX_TTL).build();
    assert_eq!(long.unwrap_err(), BuildError::Ttl(over(MAX_TTL + MS)));
    let endless = builder().restart_guard(Duration::MAX).build().unwrap_err();
    assert!(matches!(endless, BuildError::Ttl(InvalidTtl::TooLong { .. })), "{endless:?}");
    let none = builder().restart_guard(Duration::ZERO).build().unwrap_err();
    assert!(matches!(none, BuildError::Ttl(InvalidTtl::TooShort { .. })), "{none:?}");

    let manager = world.guarded(MAX_TTL);
    let over_all = world.run(manager.lock("r").no_wait().ttl(MAX_TTL + MS)).unwrap_err();
    assert!(
        matches!(&over_all, LockError::Invalid(InvalidRequest::Ttl(ttl)) if *ttl == over(MAX_TTL + MS)),
        "{over_all:?}"
    );
    assert!(over_all.to_string().contains("over the max_ttl of the restart guard, 60s"));
    let guard = world.run(manager.lock("r").no_wait().ttl(MAX_TTL)).unwrap();
    let extended = world.run(guard.extend_to(MAX_TTL + MS)).unwrap_err();
    assert!(matches!(&extended, ExtendError::Ttl(ttl) if *ttl == over(MAX_TTL + MS)));
    world.run(guard.extend_to(MAX_TTL)).unwrap();
    // Nor is a lock adopted that was taken for longer elsewhere.
    let record = builder().ttl(2 * MAX_TTL).build().unwrap();
    let record = world.run(record.lock("s").no_wait()).unwrap().detach().unwrap();
    let adopted = world.run(manager.adopt(&record)).unwrap_err();
    assert!(
        matches!(adopted, AdoptError::Lock(LockError::Invalid(InvalidRequest::Ttl(ttl))) if ttl == over(2 * MAX_TTL))
    );
}

/// A backend that has only what it must.
#[test]
fn a_backend_that_cannot_guard_is_refused_when_the_manager_is_built() {
    let world = World::complete(3);
    let nodes = [world.nodes[0].clone(), world.nodes[1].without(Capabilities::GUARD)];
    let built =
        LockManager::builder(nodes).runtime(world.sim.clone()).restart_guard(MAX_TTL).build();
    let refused = BuildError::RestartGuard { node: "memory-2".to_owned() };
    assert_eq!(built.unwrap_err(), refused);
    assert_eq!(refused.to_string(), "memory-2 cannot be guarded against restarts");
}
