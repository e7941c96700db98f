//! C7: what a release reports, and that it is sent again.

use std::sync::atomic::{AtomicUsize, Ordering};

use quorate_core::backend::Operation;
use quorate_core::{BackendError, BackendErrorKind};

use super::*;
use crate::backends::{Begins, begin};

/// What became of a node since the lock was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Well,
    Forgot,
    Dead,
    Hung,
}

use Fate::{Dead, Forgot, Hung, Well};

/// No release names other clients as holders: it only says what a quorum of the nodes does.
#[test]
fn c7_a_release_reports_what_a_quorum_says() {
    type IsRight = fn(&Result<(), ReleaseError>) -> bool;
    let released: IsRight = |released| released.is_ok();
    let gone: IsRight =
        |released| matches!(released, Err(ReleaseError::Lost(LeaseEnd::NotHeld(_))));
    let unconfirmed: IsRight = |released| matches!(released, Err(ReleaseError::Unconfirmed(_)));
    for (fates, is_right, took) in [
        (&[Forgot, Forgot, Well, Well, Well][..], released, Some(Duration::ZERO)),
        (&[Forgot, Forgot, Forgot, Well, Well], gone, Some(Duration::ZERO)),
        (&[Well, Well, Forgot, Forgot, Forgot], gone, Some(Duration::ZERO)),
        (&[Forgot, Well, Well, Hung, Hung], unconfirmed, Some(500 * MS)),
        (&[Dead, Dead, Well], unconfirmed, None),
    ] {
        let (world, guard) = World::new(fates.len()).held();
        for (node, fate) in world.nodes.iter().zip(fates) {
            match fate {
                Well => {}
                Forgot => node.restart(),
                Dead => node.inject(Fault::Dead),
                Hung => node.inject(Fault::Hung),
            }
        }
        // Where a quorum forgot, another client may hold it by now.
        let next = world.try_lock(&world.manager()).ok();
        let forgot = fates.iter().filter(|fate| **fate == Forgot).count();
        assert_eq!(next.is_some(), forgot > 2, "{fates:?}");
        let start = world.sim.elapsed();
        let result = world.run(guard.release());
        assert!(is_right(&result), "{fates:?}: {result:?}");
        let elapsed = world.sim.elapsed() - start;
        assert!(took.is_none_or(|took| took == elapsed), "{fates:?}: {elapsed:?}");
        if let Err(ReleaseError::Unconfirmed(failure)) = &result {
            let text = failure.to_string();
            for (number, _) in (1..).zip(fates).filter(|(_, fate)| **fate == Dead) {
                assert!(text.contains(&format!("memory-{number}: connection refused")), "{text}");
            }
        }
        next.into_iter().for_each(|next| world.run(next.release()).unwrap());
    }
}

/// For drift and safety margin the nodes still have it, but the lease has ended.
#[test]
fn c7_releasing_an_expired_lease_is_reported() {
    for (late, holders) in [(Duration::ZERO, 3), (SECOND, 0)] {
        let (world, guard) = World::new(3).held();
        world.advance(guard.remaining() + late);
        assert_eq!(world.holders("r"), holders);
        let released = world.run(guard.release());
        assert!(
            matches!(released, Err(ReleaseError::Lost(LeaseEnd::Expired { .. }))),
            "{released:?}"
        );
    }
}

/// After a blip, and beside a node that hangs.
#[test]
fn c7_a_release_that_failed_is_sent_again() {
    let fail = || failing("LOADING");
    for (faults, blip, most) in [
        (&[fail(), fail(), fail()][..], SECOND, 3 * SECOND),
        (&[Fault::Hung, fail()], 100 * MS, SECOND),
    ] {
        for awaited in [true, false] {
            let (world, manager) = World::new(3).and_manager();
            let guard = world.lock(&manager);
            world.catch_up();
            for (node, fault) in world.nodes.iter().zip(faults) {
                node.inject(fault.clone());
            }
            let start = world.sim.elapsed();
            match awaited {
                true => drop(world.run(guard.release())),
                false => drop(guard),
            }
            world.advance((start + blip).saturating_sub(world.sim.elapsed()));
            let hung = usize::from(matches!(faults[0], Fault::Hung));
            assert_eq!(world.keys_left(), faults.len());
            world.nodes[hung..].iter().for_each(MemoryNode::heal);
            world.advance(most);
            assert_eq!(world.keys_left(), hung, "{faults:?}, awaited: {awaited}");
            assert!(world.try_lock(&manager).is_ok());
        }
    }
}

/// As when thousands of calls are queued for one connection. A queue behind a node that answers nothing may never move.
#[test]
fn c7_a_release_that_is_queued_in_this_process_is_waited_for_while_the_node_answers_others() {
    for (is_noted, others_answered, is_late, reply_after, took) in [
        (true, true, false, 0, Ok(700)),
        (true, true, true, 400, Ok(1_100)),
        (true, true, false, 400, Err(1_000)),
        (true, false, false, 0, Err(500)),
        (false, true, false, 0, Err(500)),
    ] {
        let world = World::in_order(1);
        let sim = world.sim.clone();
        let queues = Begins::new(&world.nodes[0], move |node, call, runtime| {
            let (node, sim) = (node.clone(), sim.clone());
            match call.operation() {
                Operation::Release(..) => {}
                Operation::Extend(..) => {
                    runtime.spawn(Box::pin(async move {
                        sim.sleep(100 * MS).await;
                        begin(&node, call, &sim).unwrap();
                    }));
                    return Ok(());
                }
                _ => return begin(&node, call, runtime),
            }
            if is_noted {
                call.note_queued();
            }
            runtime.spawn(Box::pin(async move {
                sim.sleep(700 * MS).await;
                call.note_left(is_late);
                sim.sleep(reply_after * MS).await;
                begin(&node, call, &sim).unwrap();
            }));
            Ok(())
        });
        let manager = world.over([queues]);
        let guard = world.lock(&manager);
        if others_answered {
            // The node answers a call each 200 ms, for a second.
            for other in 1..6 {
                let (locks, pause) = (manager.clone(), world.sim.sleep(200 * other * MS));
                world.sim.spawn(Box::pin(async move {
                    pause.await;
                    std::mem::forget(locks.lock(format!("other {other}")).await);
                }));
            }
            // Its reply comes while the release is queued.
            assert!(world.sim.block_on_for(guard.extend(), 1).is_none());
        }
        let released = world.run(guard.release());
        let elapsed = world.sim.elapsed().as_millis();
        let told = released.map(|()| elapsed).map_err(|_| elapsed);
        assert_eq!(told, took, "{is_noted}, {others_answered}, {is_late}, {reply_after} ms");
    }
}

/// Each of several, as soon as the node has answered one call.
#[test]
fn c7_all_releases_that_found_no_answer_are_sent_again_when_the_node_answers() {
    let world = World::in_order(3);
    let (manager, names) = (world.manager(), ["r", "s", "t"]);
    let guards = names.map(|name| world.run(manager.lock(name)).unwrap());
    world.catch_up();
    world.inject(..1, Fault::Down);
    drop(guards);
    world.catch_up();
    world.heal();
    let left = || names.into_iter().filter(|name| world.nodes[0].get(name).is_some()).count();
    assert_eq!(left(), 3);
    let _other = world.run(manager.lock("other")).unwrap();
    world.catch_up();
    assert_eq!((world.sim.elapsed(), left()), (Duration::ZERO, 0));
}

/// An error is an answer. A release that was answered with one waits for its pause.
#[test]
fn c7_a_release_that_found_no_answer_is_sent_again_when_the_node_answers_another_call() {
    let error = |kind| Some(BackendError::new(kind, "on purpose"));
    let lost = || error(BackendErrorKind::Connection);
    let not_sent = || lost().map(BackendError::not_sent);
    let timed_out = || error(BackendErrorKind::TimedOut);
    let answered = || error(BackendErrorKind::Loading);
    for (release, other, is_sent) in [
        (lost(), None, true),
        (timed_out(), None, true),
        (not_sent(), None, true),
        (lost(), answered(), true),
        (answered(), None, false),
        (lost(), lost(), false),
        (lost(), timed_out(), false),
    ] {
        let (world, fails) = (World::new(3), Arc::<Mutex<Option<BackendError>>>::default());
        let releases = Arc::new(AtomicUsize::new(0));
        let nodes = world.nodes.iter().zip([true, false, false]).map(|(node, is_odd)| {
            let (fails, releases) = (Arc::clone(&fails), Arc::clone(&releases));
            Odd::new(node).before(move |method| {
                let is_release = is_odd && method == "release";
                releases.fetch_add(usize::from(is_release), Ordering::Relaxed);
                let error = fails.lock().unwrap().clone().filter(|_| is_odd);
                Box::pin(async { error.map_or(Ok(()), Err) })
            })
        });
        let manager = world.over(nodes);
        let guard = world.lock(&manager);
        world.catch_up();
        let story = format!("{release:?}, {other:?}");
        *fails.lock().unwrap() = release;
        world.run(guard.release()).unwrap();
        world.catch_up();
        *fails.lock().unwrap() = other;
        let _other = world.run(manager.lock("other")).unwrap();
        world.catch_up();
        assert_eq!(world.sim.elapsed(), Duration::ZERO);
        assert_eq!(releases.load(Ordering::Relaxed), 1 + usize::from(is_sent), "{story}");
    }
}
