//! What a quarantined node does.

use super::*;

#[test]
fn a_quarantined_node_extends_what_it_still_has_and_releases_it() {
    let world = World::new(3);
    let manager = world.manager(MAX_TTL);
    let guard = world.try_lock(&manager).unwrap();
    // Nothing is lost, but no client can know that.
    for node in &world.nodes {
        node.save();
        node.restart_from_save();
    }
    assert_quarantined(&failure_of(world.sim.block_on(manager.lock("s").no_wait())), 3);
    world.sim.advance(TTL / 2);
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(TTL * 3 / 4);
    assert!(guard.is_valid());
    world.sim.block_on(guard.release()).unwrap();
    world.sim.advance(Duration::ZERO);
    assert_eq!(world.holders(), 0);
    // An adoption is an extension.
    let world = World::new(3);
    let manager = world.manager(MAX_TTL);
    let record = world.try_lock(&manager).unwrap().detach().unwrap();
    for node in &world.nodes {
        node.save();
        node.restart_from_save();
    }
    assert!(world.sim.block_on(manager.adopt(&record)).unwrap().is_valid());
}

/// H3: a key that is set again on a node counts from the next extension on, in quarantine or not.
#[test]
fn a_quarantined_node_gets_the_key_back_and_keeps_others_out() {
    let world = World::new(3);
    let (one, other) = (world.manager(MAX_TTL), world.manager(MAX_TTL));
    let guard = world.try_lock(&one).unwrap();
    world.nodes[2].restart();
    assert_eq!(world.holders(), 2);
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(Duration::ZERO);
    assert_eq!(world.holders(), 3);
    world.nodes[1].restart();
    world.sim.block_on(guard.extend()).unwrap();
    world.sim.advance(Duration::ZERO);
    world.nodes[0].restart();
    world.sim.block_on(guard.extend()).unwrap();
    assert!(world.try_lock(&other).is_err());
    world.sim.block_on(guard.release()).unwrap();
    world.sim.advance(Duration::ZERO);
    assert_eq!(world.holders(), 0);
}

#[test]
fn a_guarded_acquire_that_is_sent_twice_is_granted_twice() {
    for fenced in [false, true] {
        let world = World::new(3);
        let manager = world.manager(MAX_TTL);
        for node in &world.nodes {
            node.add_rule(Rule::new(Effect::Duplicate(100 * MS)).on(Operation::Acquire));
        }
        let request = manager.lock("r").no_wait();
        let request = if fenced { request.fenced() } else { request };
        let guard = world.sim.block_on(request).unwrap();
        world.sim.advance(200 * MS);
        assert_eq!(world.holders(), 3);
        world.sim.block_on(guard.release()).unwrap();
    }
    // Also after a restart, if the key is there: it was granted before.
    let world = World::new(1);
    let node = &world.nodes[0];
    let claim = claim(1);
    let acquire = || {
        let mut options = AcquireOptions::default();
        options.guard = Some(RestartGuard::strict(MAX_TTL));
        let acquired = world.sim.block_on(node.acquire(&claim, options));
        acquired.map(|acquired| acquired.vote)
    };
    assert_eq!(acquire().unwrap(), Vote::Granted);
    node.save();
    node.restart_from_save();
    assert_eq!(acquire().unwrap(), Vote::Granted);
    node.expire("r");
    let quarantined = acquire().unwrap_err();
    assert_eq!(quarantined.kind(), BackendErrorKind::Quarantined);
    assert!(quarantined.to_string().contains("60.0s"), "{quarantined}");
}

fn claim(holder: u8) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(holder);
        Ok(())
    });
    let key = Key::new(b"", &Resource::new("r").unwrap());
    Claim::new([key], token.unwrap(), TTL.try_into().unwrap())
}

#[test]
fn a_quarantined_node_neither_refuses_nor_is_taken_for_one_that_does() {
    let world = World::new(3);
    let (one, other) = (world.manager(MAX_TTL), world.manager(MAX_TTL));
    let _held = world.try_lock(&one).unwrap();
    for node in &world.nodes[..2] {
        node.save();
        node.restart_from_save();
    }
    // Two have the key, and say nothing of it. One refuses.
    let failure = failure_of(world.try_lock(&other));
    assert_quarantined(&failure, 2);
    let refused =
        failure.nodes().iter().filter(|node| matches!(node.answer, Answer::Refused { .. })).count();
    assert_eq!(refused, 1);
}
