//! A holder that is asked to leave: how it hears of it, and when its lock is free.

use std::sync::atomic::{AtomicUsize, Ordering};

use quorate_core::operators::Leaving;
use quorate_core::resource::Label;
use quorate_core::{AdoptError, backend};
use quorate_memory::{Observed, SimClient};

use super::*;
use crate::backends::{Begins, begin};
use crate::world::{HOUR, MARGIN};

/// A manager whose nodes push.
fn pushing(world: &World, label: &str) -> LockManager {
    seen_by(world, &world.sim.client(0), label)
}

fn seen_by(world: &World, client: &SimClient, label: &str) -> LockManager {
    let nodes = world.nodes.iter().map(|node| node.pushing().seen_by(client));
    LockManager::builder(nodes).runtime(client.clone()).label(label).build().unwrap()
}

/// A lock on "r" that is held for long enough to have been looked at.
fn held() -> (World, LockGuard) {
    let world = World::complete(3);
    let guard = world.lock(&pushing(&world, "holder"));
    world.advance(150 * MS);
    (world, guard)
}

fn revoke_by_admin(world: &World) -> Revocation {
    world.run(pushing(world, "admin").revoke("r")).unwrap()
}

fn by(guard: &LockGuard, world: &World) -> Option<Label> {
    world.run(guard.revoked()).unwrap()
}

#[test]
fn a_revoke_asks_the_holder_to_leave_and_the_lock_is_free_when_he_has() {
    for several in [false, true] {
        let world = World::complete(3);
        let names: &[&str] = if several { &["q", "r"] } else { &["r"] };
        let guard = world.run(pushing(&world, "holder").lock(names)).unwrap();
        guard.auto_renew();
        world.advance(20 * SECOND);
        let (at, end) = (world.sim.now(), guard.valid_until());
        assert!(revoke_by_admin(&world).is_effective());
        assert_eq!(by(&guard, &world).unwrap().as_str(), "admin");
        assert_eq!(world.sim.now(), at, "without a wait for a renewal");
        assert!(guard.is_valid() && guard.is_at_risk() && guard.valid_until() == end);
        assert!(world.run(guard.at_risk()).unwrap() > Duration::ZERO);
        let refused = world.run(guard.extend());
        assert!(is_lost(&refused), "{refused:?}");
        let refused = refused.unwrap_err();
        assert!(refused.to_string().contains("revoked by \"admin\""), "{refused}");
        world.run(guard.release()).unwrap();
        assert_eq!(world.keys_left(), 0, "it is free");
    }
}

#[test]
fn p1_a_push_alone_ends_nothing() {
    let (world, guard) = held();
    guard.auto_renew();
    let end = guard.valid_until();
    world.add_rule(.., slow(50 * MS).on(Operation::Look));
    for _ in 0..5 {
        world.nodes.iter().for_each(MemoryNode::push_for_nothing);
        world.advance(60 * MS);
        assert!(guard.is_valid() && !guard.is_at_risk() && guard.valid_until() == end);
    }
    // One node is a minority, and its answer is no vote.
    world.nodes[0].expire("r");
    world.advance(SECOND);
    assert!(guard.is_valid() && !guard.is_at_risk());
    world.advance(20 * SECOND);
    assert!(guard.is_valid());
}

#[test]
fn p2_a_push_that_is_lost_or_late_leaves_it_to_the_renewal() {
    let [lost, unanswered] = [Effect::DropReply, Effect::DropRequest].map(Rule::new);
    // With the third the push comes, and the look is not answered.
    for rule in [lost, slow(30 * SECOND), unanswered] {
        let (world, guard) = held();
        guard.auto_renew();
        world.add_rule(.., rule.on(Operation::Look));
        let at = world.sim.now();
        revoke_by_admin(&world);
        assert_eq!(by(&guard, &world).unwrap().as_str(), "admin");
        assert!(world.sim.now() - at <= 5 * SECOND, "at the next renewal");
        world.run(guard.release()).unwrap();
        assert_eq!(world.keys_left(), 0);
        world.advance(HOUR);
    }
}

/// A manager of one node that pushes, the node, and how often it was looked at.
fn counted(world: &World) -> (LockManager, MemoryNode, Arc<AtomicUsize>) {
    let (node, looks) = (world.nodes[0].pushing(), Arc::<AtomicUsize>::default());
    let seen = Arc::clone(&looks);
    node.observe(move |observed| {
        if let Observed::Sent { operation: Operation::Look, .. } = observed {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    (world.over([node.clone()]), node, looks)
}

#[test]
fn p3_a_node_that_pushes_for_nothing_is_looked_at_once_a_second() {
    let world = World::complete(1);
    let (locks, node, looks) = counted(&world);
    let guard = world.run(locks.lock("r").ttl(HOUR)).unwrap();
    world.advance(150 * MS);
    assert_eq!(looks.swap(0, Ordering::Relaxed), 1);
    for _ in 0..1000 {
        node.push_for_nothing();
        world.advance(10 * MS);
    }
    let looked = looks.load(Ordering::Relaxed);
    assert!((9..=11).contains(&looked), "{looked} in ten seconds");
    assert!(guard.is_valid());
}

#[test]
fn v8_a_mark_frees_nothing() {
    let (world, guard) = held();
    let other = pushing(&world, "another");
    let held_by = |locks: &LockManager| world.run(locks.lock("r").no_wait()).unwrap_err();
    revoke_by_admin(&world);
    assert!(held_by(&other).to_string().contains("revoked by admin"), "{}", held_by(&other));
    world.run(other.read("r").no_wait()).unwrap_err();
    let waits = world.run(other.lock("r").timeout(SECOND));
    assert!(waits.unwrap_err().to_string().contains("held"));
    assert!(guard.is_valid());
    world.run(guard.release()).unwrap();
    drop(world.lock(&other));
}

#[test]
fn v9_only_the_release_of_the_value_that_was_revoked_frees_its_mark() {
    for asks in 1..3 {
        let (world, guard) = held();
        for _ in 0..asks {
            revoke_by_admin(&world);
        }
        let marks = values(&world);
        // Each of these releases on all nodes.
        for _ in 0..3 {
            world.try_lock(&pushing(&world, "another")).unwrap_err();
            world.catch_up();
        }
        assert_eq!(values(&world), marks);
        world.run(guard.release()).unwrap();
        assert_eq!(world.keys_left(), 0, "asked {asks} times");
    }
}

/// One name is released by a comparison, two by a script.
#[test]
fn v9_a_record_frees_the_mark_of_its_lock_and_of_no_other() {
    for names in [&["r"][..], &["r", "s"]] {
        let world = World::complete(3);
        let guard = world.run(pushing(&world, "holder").lock(names)).unwrap();
        let other = world.run(pushing(&world, "other").lock("t")).unwrap().detach().unwrap();
        let record = guard.detach().unwrap();
        revoke_by_admin(&world);
        let (marks, taker) = (values(&world), pushing(&world, "taker"));
        let refused = world.run(taker.adopt(&record));
        assert!(matches!(refused, Err(AdoptError::Lost(_))), "{refused:?}");
        world.run(taker.release(&other)).unwrap();
        assert_eq!(values(&world), marks);
        world.run(taker.release(&record)).unwrap();
        assert_eq!((world.keys_left(), taker.leases().len()), (0, 0));
        let gone = world.run(taker.release(&record)).unwrap_err();
        assert!(gone.is_lost() && gone.to_string().contains("the keys are gone"), "{gone}");
    }
}

/// A node that compares for a release looks for a mark only where one can be: not in the undo of a round that was lost.
#[test]
fn v9_a_node_is_told_whether_its_key_may_have_a_mark() {
    let world = World::new(1);
    let told = Arc::<Mutex<Vec<bool>>>::default();
    let seen = Arc::clone(&told);
    let locks = world.over([Begins::new(&world.nodes[0], move |node, call, runtime| {
        if let backend::Operation::Release(_, options) = call.operation() {
            seen.lock().unwrap().push(options.was_held);
        }
        begin(node, call, runtime)
    })]);
    let held = || world.run(locks.lock("r")).unwrap();
    let releases: [&dyn Fn(); 4] = [
        &|| world.run(held().release()).unwrap(),
        &|| drop(held()),
        &|| world.run(locks.release(&held().detach().unwrap())).unwrap(),
        &|| {
            let other = world.lock(&world.manager());
            world.run(locks.lock("r").no_wait()).unwrap_err();
            drop(other);
        },
    ];
    for (release, was_held) in releases.into_iter().zip([true, true, true, false]) {
        release();
        world.catch_up();
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), [was_held]);
    }
}

#[test]
fn v10_after_an_effective_revoke_the_end_of_the_lease_does_not_move() {
    for reached in 2..=3 {
        let (world, guard) = held();
        guard.auto_renew();
        world.advance(3 * SECOND);
        world.nodes[reached..].iter().for_each(cut_off);
        let (end, revocation) = (guard.valid_until(), revoke_by_admin(&world));
        assert!(revocation.is_effective(), "{revocation}");
        let free_at = world.sim.now() + revocation.free_in();
        by(&guard, &world);
        for _ in 0..20 {
            world.run(guard.extend()).unwrap_err();
            world.advance(100 * MS);
            assert_eq!(guard.valid_until(), end);
        }
        world.run(guard.lost());
        assert_eq!(world.sim.now(), end);
        assert!(end + MARGIN <= free_at && world.holders("r") >= 2);
    }
}

/// Rule V2. Two of three nodes were down. Beside a reader that stays, another one may have come.
#[test]
fn a_revoke_without_effect_does_not_say_that_the_holder_has_left() {
    for is_reader in [false, true] {
        let (world, manager) = World::complete(3).and_manager();
        let request = if is_reader { manager.read("r") } else { manager.lock("r") };
        let guard = world.run(request.auto_renew()).unwrap();
        let admin = world.manager();
        world.inject(1.., Fault::Down);
        let revocation = world.run(admin.revoke("r")).unwrap();
        world.heal();
        let joins = is_reader.then(|| world.run(world.manager().read("r")).unwrap());
        let leaving = world.run(revocation.until_free(&admin));
        drop(joins);
        assert!(!revocation.is_effective() && guard.is_valid(), "reader: {is_reader}");
        assert!(!matches!(leaving, Leaving::Left { .. }), "reader: {is_reader}: {leaving:?}");
    }
}

/// Its last extension has reached one node, so its keys end one after the other.
#[test]
fn a_holder_that_is_dead_has_not_left_when_its_ttl_has_passed() {
    for others in [0..2, 1..3] {
        let world = World::complete(3);
        let client = world.sim.client(0);
        let guard = world.lock(&seen_by(&world, &client, "holder"));
        world.advance(3 * SECOND);
        world.inject(others.clone(), Fault::Down);
        world.run(guard.extend()).unwrap_err();
        client.pause(HOUR);
        world.heal();
        let admin = pushing(&world, "admin");
        let revocation = world.run(admin.revoke("r")).unwrap();
        assert!(revocation.is_effective(), "{revocation}");
        let leaving = world.run(revocation.until_free(&admin));
        assert_eq!(leaving, Leaving::Expired, "{others:?}");
    }
}

#[test]
fn a_holder_that_releases_after_a_revoke_has_left() {
    for reached in 2..=3 {
        let (world, guard) = held();
        world.nodes[reached..].iter().for_each(cut_off);
        let admin = pushing(&world, "admin");
        let revocation = world.run(admin.revoke("r")).unwrap();
        world.advance(SECOND);
        let _ = world.run(guard.release());
        let leaving = world.run(revocation.until_free(&admin));
        let Leaving::Left { after } = leaving else { panic!("{reached}: {leaving:?}") };
        assert!(after >= SECOND && after < 2 * SECOND, "{reached}: {after:?}");
    }
}

/// Its record could not be adopted, and the lock would stay until its ttl has passed.
#[test]
fn a_holder_that_was_asked_to_leave_has_nothing_to_detach_and_releases() {
    let (world, guard) = held();
    revoke_by_admin(&world);
    by(&guard, &world);
    let failed = guard.detach();
    assert!(matches!(failed, Err(LeaseEnd::Revoked { .. })), "{failed:?}");
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}
