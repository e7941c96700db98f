//! Names that are empty, long or binary, and everything that is no lock.

use std::time::Duration;

use quorate_core::backend::InvalidTtl;
use quorate_core::error::InvalidRequest;
use quorate_core::resource::Resource;
use quorate_core::{InvalidResource, LockError};

use crate::world::{MS, SECOND, World};

#[test]
fn names_of_any_bytes_are_locked_as_they_are() {
    let world = World::new(3);
    let manager = world.manager();
    let long = vec![b'x'; Resource::MAX_LEN];
    for name in [&b"\0\r\n\xff {}*"[..], b" ", "ключ".as_bytes(), &long] {
        let guard = world.sim.block_on(manager.lock(name)).unwrap();
        assert_eq!(world.nodes[0].keys(), [name.to_vec()]);
        assert!(world.sim.block_on(manager.lock(name).no_wait()).is_err());
        world.sim.block_on(guard.release()).unwrap();
    }
}

#[test]
fn names_that_cannot_be_locked_are_refused_before_anything_is_sent() {
    let world = World::new(3);
    let manager = world.manager();
    let error = |lock: Result<quorate_core::LockGuard, LockError>| match lock {
        Err(LockError::Invalid(InvalidRequest::Resource(error))) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(error(world.sim.block_on(manager.lock(""))), InvalidResource::Empty);
    assert_eq!(error(world.sim.block_on(manager.lock(["a", ""]))), InvalidResource::Empty);
    let nothing = Vec::<String>::new();
    assert_eq!(error(world.sim.block_on(manager.lock(nothing))), InvalidResource::Nothing);
    let long = vec![b'x'; Resource::MAX_LEN + 1];
    assert!(matches!(
        error(world.sim.block_on(manager.lock(long).no_wait())),
        InvalidResource::TooLong { .. }
    ));
    assert!(world.log.calls().is_empty());
}

#[test]
fn a_ttl_that_leaves_no_validity_is_refused_before_anything_is_sent() {
    let world = World::new(3);
    let manager = world.manager();
    for ttl in [Duration::ZERO, MS / 2, MS, 3 * MS, Duration::MAX] {
        let lock = world.sim.block_on(manager.lock("r").ttl(ttl));
        let Err(LockError::Invalid(InvalidRequest::Ttl(error))) = lock else {
            panic!("{ttl:?}: {lock:?}")
        };
        assert!(matches!(error, InvalidTtl::TooShort { .. } | InvalidTtl::TooLong { .. }));
    }
    assert!(world.log.calls().is_empty());
    let guard = world.sim.block_on(manager.lock("r").ttl(4 * MS)).unwrap();
    assert!(guard.remaining() >= MS && guard.remaining() < 2 * MS);
    let guard = world.sim.block_on(manager.lock("s").ttl(SECOND)).unwrap();
    assert!(guard.is_valid());
}
