//! What cannot be guarded is refused by name.

use quorate_core::backend::Capabilities;

use super::*;

#[test]
fn a_manager_with_another_max_ttl_is_refused_by_name() {
    let world = World::after_a_quarantine(3);
    for other in [MAX_TTL - MS, MAX_TTL + MS] {
        let manager = world.guarded(other);
        // Waiting is pointless, and ends at once.
        let start = world.sim.elapsed();
        let failure = failure_of(world.run(manager.lock("r").timeout(MAX_TTL)));
        assert!(world.sim.elapsed() - start <= 2 * MS);
        assert!(kinds(&failure).contains(&BackendErrorKind::MaxTtl));
        assert!(kinds(&failure).iter().all(|kind| *kind == BackendErrorKind::MaxTtl), "{failure}");
        let text = failure.to_string();
        assert!(text.contains(&format!("60000 ms, not {} ms", other.as_millis())), "{text}");
        assert_eq!(world.holders("r"), 0);
        // Nor does it change anything for the others, though a node has forgotten.
        world.nodes[2].restart_from_save();
        world.failure(&manager);
    }
    world.lock_and_release(&world.guarded(MAX_TTL));
}

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
        matches!(adopted, AdoptError::Invalid(InvalidRequest::Ttl(ttl)) if ttl == over(2 * MAX_TTL))
    );
}

#[test]
fn a_node_that_may_evict_keys_is_refused_by_name() {
    let world = World::complete(3);
    let manager = world.guarded(MAX_TTL);
    world.inject(1.., Fault::Evicting);
    let failure = failure_of(world.run(manager.lock("r").timeout(2 * MAX_TTL)));
    assert!(world.sim.elapsed() <= 2 * MS, "waiting would not help");
    let text = failure.to_string();
    assert!(text.contains("memory-3: QUORATEEVICTS the node may evict keys"), "{text}");
    assert!(text.contains("allkeys-lru"), "{text}");
    // No epoch is set on it, so its quarantine begins when that is repaired.
    world.advance(MAX_TTL);
    world.heal();
    world.assert_quarantined(&manager, 2);
    world.advance(MAX_TTL);
    world.lock_and_release(&manager);
}

#[test]
fn a_node_that_does_not_tell_who_it_is_is_refused_by_name() {
    let world = World::after_a_quarantine(3);
    let manager = world.guarded(MAX_TTL);
    world.inject(..2, Fault::NoInfo);
    let failure = failure_of(world.run(manager.lock("r").timeout(MAX_TTL)));
    assert_eq!(kinds(&failure), [BackendErrorKind::Permission; 2]);
    assert!(failure.to_string().contains("'info' command"), "{failure}");
    // Without the guard it may vote.
    let plain = world.manager();
    world.lock_and_release(&plain);
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
