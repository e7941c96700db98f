//! S6: of two requests for several permits never both hold a part.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use quorate_core::{LeaseEnd, LockError, LockGuard, LockRequest, Permits, Runtime};
use quorate_memory::Fault;

use super::name_of;
use crate::waiting::processes::{Process, ROUND_TRIP, Scene};
use crate::world::{Ended, HOUR, MS, SECOND, spawned};

impl Process {
    /// A request for some of two permits, or of more.
    fn of(&self, permits: usize) -> LockRequest {
        self.locks.permit("p", permits).timeout(600 * SECOND)
    }

    /// The same in the background, until it has what it wants.
    fn wants(&self, request: LockRequest, count: usize) -> Ended<Permits> {
        spawned(&self.client, async move { request.several(count).await.unwrap() })
    }
}

/// Two of three permits: two requests that hold one each and want the same third one would wait for ever.
#[test]
fn s6_eight_tasks_with_two_of_three_permits_hold_them_for_1000_rounds() {
    for processes in [1, 2, 8] {
        let (scene, rounds) = (Scene::new(3), Arc::<Mutex<usize>>::default());
        let held = Arc::<Mutex<Vec<String>>>::default();
        let members: Vec<_> = (0..processes).map(|_| scene.process()).collect();
        for task in 0..8_usize {
            let process = members[task % processes].clone();
            let (rounds, held) = (Arc::clone(&rounds), Arc::clone(&held));
            process.clone().spawn(async move {
                for round in 0..125 {
                    let permits = process.of(3).several(2).await.unwrap();
                    let names: Vec<_> = permits.parts().iter().map(name_of).collect();
                    {
                        let mut taken = held.lock().unwrap();
                        let is_free = |name| !taken.contains(name);
                        assert!(names.iter().all(is_free), "{names:?} {taken:?}");
                        taken.extend(names.clone());
                    }
                    process.client.sleep(MS * ((task + round) % 3) as u32).await;
                    held.lock().unwrap().retain(|name| !names.contains(name));
                    permits.release().await.unwrap();
                    *rounds.lock().unwrap() += 1;
                }
            });
        }
        // Each round is at most 2 ms of work and, one after the other, four round trips for each permit.
        scene.advance(1000 * (2 * MS + 12 * ROUND_TRIP));
        assert_eq!(*rounds.lock().unwrap(), 1000, "{processes} processes");
        scene.advance(10 * SECOND);
        assert!(scene.keys().is_empty(), "{processes}: {:?}", scene.keys());
    }
}

/// A part is held by the first request alone, for as long as another part is missing.
#[test]
fn s6_a_request_that_waits_for_its_last_permit_is_the_only_one_with_a_part() {
    let (scene, [holder, one, other]) = Scene::new(3).and_processes();
    let single = scene.run(holder.of(3).auto_renew()).unwrap();
    let also = scene.run(holder.of(3).auto_renew()).unwrap();
    let first = one.wants(one.of(3), 2);
    scene.advance(5 * MS);
    let second = other.wants(other.of(3), 2);
    // Longer than the ttl of a part: it is renewed.
    scene.advance(60 * SECOND);
    let is_there = |wanted: &Mutex<Option<Permits>>| wanted.lock().unwrap().is_some();
    scene.run(single.release()).unwrap();
    scene.advance(SECOND);
    assert!(is_there(&first) && !is_there(&second));
    scene.run(also.release()).unwrap();
    scene.advance(SECOND);
    assert!(!is_there(&second), "it has one of two, and waits for the other");
    let permits = first.lock().unwrap().take().unwrap();
    assert!(permits.is_valid() && permits.remaining() > SECOND);
    scene.run(permits.release()).unwrap();
    scene.advance(SECOND);
    assert!(is_there(&second));
}

/// The parts come one by one. One that is lost before the last one is there is acquired anew.
#[test]
fn s6_a_part_that_is_lost_while_others_are_awaited_is_none_of_the_permits() {
    let (scene, [holder, one, admin]) = Scene::new(3).and_processes();
    let single = scene.run(holder.of(3).auto_renew()).unwrap();
    let also = scene.run(holder.of(3).auto_renew()).unwrap();
    let taken = [name_of(&single), name_of(&also)];
    let wanted = one.wants(one.of(3), 2);
    scene.advance(SECOND);
    let names = ["p#1", "p#2", "p#3"];
    let part = *names.iter().find(|name| !taken.iter().any(|other| other == *name)).unwrap();
    assert!(scene.keys().iter().any(|key| key == part), "{:?}", scene.keys());
    assert!(scene.run(admin.locks.delete(part)).unwrap().is_effective());
    // The next renewal hears of it.
    scene.advance(10 * SECOND);
    scene.run(single.release()).unwrap();
    scene.advance(10 * SECOND);
    let permits = wanted.lock().unwrap().take().expect("two permits are free");
    assert!(permits.is_valid() && permits.parts().iter().all(|part| part.is_valid()));
    let has = |guard: &LockGuard| scene.keys().iter().filter(|key| **key == name_of(guard)).count();
    assert!(permits.parts().iter().all(|part| has(part) >= 2), "{:?}", scene.keys());
}

/// The timeout is that of all parts, and parts acquired by then are released before the error (C8).
#[test]
fn s6_nothing_is_left_of_a_request_that_fails() {
    let (scene, [holder, process]) = Scene::new(3).and_processes();
    let single = scene.run(holder.of(2)).unwrap();
    let kept = scene.keys();
    for (request, limit) in [
        (process.of(2).no_wait(), 20 * ROUND_TRIP),
        (process.of(2).timeout(SECOND), SECOND + 20 * ROUND_TRIP),
    ] {
        let from = scene.sim.now();
        let error = scene.run(request.several(2)).unwrap_err();
        assert!(error.is_held(), "{error}");
        assert!(scene.sim.now() - from <= limit);
        assert_eq!(scene.keys(), kept);
    }
    let other = scene.run(process.of(2)).unwrap();
    assert_ne!(name_of(&other), name_of(&single));
}

#[test]
fn s6_none_more_than_there_are_and_readers_are_refused_and_nothing_is_sent() {
    let (scene, text) = (Scene::new(3), |error: LockError| error.to_string());
    let locks = scene.process().locks;
    for (request, count, why) in [
        (locks.permit("p", 3), 0, "0 of 3 permits cannot be held"),
        (locks.permit("p", 3), 4, "4 of 3 permits cannot be held"),
        (locks.permit("p", 0), 1, "0 permits leave nothing to hold"),
        (locks.read("p"), 1, "a lock for reading cannot be several permits"),
    ] {
        let error = text(scene.run(request.several(count)).unwrap_err());
        assert!(error.starts_with(why), "{error}");
    }
    assert!(scene.sent().is_empty());
    // Any names will do, and all of them.
    let permits = scene.run(locks.lock_any(["gpu:0", "gpu:1"]).several(2)).unwrap();
    assert_eq!(permits.into_parts().len(), 2);
}

/// The first lease that ends is the end of all. What is dropped is released.
#[test]
fn s6_one_guard_stands_for_all_parts() {
    let (scene, [process]) = Scene::new(3).and_processes();
    let permits = scene.run(process.of(5).several(3)).unwrap();
    scene.run(permits.extend()).unwrap();
    assert_eq!(scene.run(permits.run(async { 7 })).unwrap(), 7);
    assert!(permits.lost().now_or_never().is_none());
    let gone = permits.parts()[1].keys()[0].clone();
    let by = scene.process().locks;
    scene.run(by.delete(gone.as_bytes())).unwrap();
    let lost = permits.lost();
    assert!(scene.run(permits.extend()).is_err());
    assert!(matches!(scene.run(lost), LeaseEnd::NotHeld(_)));
    assert!(!permits.is_valid() && permits.remaining().is_zero());
    assert!(scene.run(permits.run(async { 7 })).is_err());
    drop(permits);
    scene.advance(SECOND);
    assert!(scene.keys().is_empty(), "{:?}", scene.keys());
}

/// Of names that are no permits, each has a lock of its own around it: also two requests whose names overlap and differ take
/// no parts beside each other.
#[test]
fn s6_two_requests_for_names_that_overlap_and_differ_never_both_hold_a_part() {
    for (ours, theirs) in [
        (["a", "b", "c"], ["b", "c", "d"]),
        (["c", "b", "a"], ["d", "c", "b"]),
        (["a", "b", "c"], ["c", "x", "y"]),
        (["x#1", "a", "b"], ["b", "y#1", "z"]),
    ] {
        let (scene, [holder, one, other]) = Scene::new(3).and_processes();
        // All of each but one is free. Both want all.
        let mut held = vec![scene.run(holder.locks.lock(ours[0]).auto_renew()).unwrap()];
        held.push(scene.run(holder.locks.lock(theirs[2]).auto_renew()).unwrap());
        let first = one.wants(one.locks.lock_any(ours).timeout(HOUR), 3);
        scene.advance(5 * SECOND);
        let second = other.wants(other.locks.lock_any(theirs).timeout(HOUR), 3);
        scene.advance(5 * SECOND);
        let has = |name: &str| scene.keys().iter().any(|key| key == name);
        let shared = ours.iter().filter(|name| theirs.contains(name)).count();
        assert!(shared > 0 && has(ours[1]) && has(ours[2]), "{:?}", scene.keys());
        // What only the second one wants is free, and it takes none of it before the first one has all.
        let own = theirs.iter().filter(|name| !ours.contains(name) && **name != theirs[2]);
        assert!(own.clone().all(|name| !has(name)), "{theirs:?}: {:?}", scene.keys());
        held.into_iter().for_each(|guard| scene.run(guard.release()).unwrap());
        scene.advance(5 * SECOND);
        let permits = first.lock().unwrap().take().expect("its last part is free");
        assert!(second.lock().unwrap().is_none());
        scene.run(permits.release()).unwrap();
        scene.advance(5 * SECOND);
        assert!(second.lock().unwrap().is_some(), "{theirs:?}");
    }
}

/// Wherever the request is dropped, it leaves nothing.
#[test]
fn s6_a_request_that_is_dropped_leaves_nothing() {
    for moment in 0..60 {
        let scene = Scene::new(3);
        let (process, client) = (scene.process(), scene.sim.client(0));
        let request = process.of(3).several(2);
        let left = moment * ROUND_TRIP / 8;
        scene.run(async {
            let mut request = Box::pin(request);
            let timer = std::pin::pin!(client.sleep(left));
            drop(futures_util::future::select(request.as_mut(), timer).await);
        });
        scene.advance(SECOND);
        assert!(scene.keys().is_empty(), "{left:?}: {:?}", scene.keys());
    }
}

/// Whichever part it is.
#[test]
fn s6_permits_end_with_the_first_of_their_leases() {
    for first in 0..3 {
        let scene = Scene::new(3);
        let permits = scene.run(scene.process().of(5).several(3)).unwrap();
        scene.advance(100 * MS);
        for (_, part) in permits.parts().iter().enumerate().filter(|(at, _)| *at != first) {
            scene.run(part.extend()).unwrap();
        }
        let part = &permits.parts()[first];
        assert!(permits.parts().iter().all(|one| part.valid_until() <= one.valid_until()));
        let ends = (permits.valid_until(), permits.remaining());
        assert_eq!(ends, (Some(part.valid_until()), part.remaining()), "{first}");
    }
}

/// Whichever part it is: that the releases of the others are unconfirmed hides no loss.
#[test]
fn s6_a_release_tells_the_loss_of_one_part() {
    for gone in 0..3 {
        let scene = Scene::new(3);
        let permits = scene.run(scene.process().of(5).several(3)).unwrap();
        let key = permits.parts()[gone].keys()[0].clone();
        scene.run(scene.process().locks.delete(key.as_bytes())).unwrap();
        scene.run(permits.lost());
        scene.inject(.., Fault::Hung);
        let error = scene.run(permits.release()).unwrap_err();
        assert!(error.is_lost(), "{gone}: {error}");
    }
}
