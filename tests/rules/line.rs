//! Who waits in the line of this process, and what is told where the turn does not come.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all, join3, join4};
use quorate_core::{LockError, Runtime};
use quorate_memory::{Effect, Fault, Rule};

use crate::world::{MS, SECOND, World};

fn all(world: &World, fault: &Fault) {
    for node in &world.nodes {
        node.inject(fault.clone());
    }
}

/// E: *held by somebody* and *could not reach the nodes* are never the same.
#[test]
fn who_waits_in_line_during_an_outage_is_told_of_the_outage() {
    for fault in [Fault::Down, Fault::Hung] {
        let world = World::new(3);
        all(&world, &fault);
        let manager = world.manager();
        let waits = [30, 5, 5, 1].map(|wait| manager.lock("r").wait(wait * SECOND).into_future());
        for error in world.sim.block_on(join_all(waits)) {
            let error = error.unwrap_err();
            assert!(matches!(error, LockError::NoQuorum { .. }), "{fault:?}: {error:?}");
            assert!(!error.is_held());
            let failures = error.votes().unwrap().failures();
            assert_eq!(failures.count(), 3, "each node has its reason: {error}");
        }
        let waits = (0..10).map(|_| manager.lock("s").wait(SECOND).into_future());
        for error in world.sim.block_on(join_all(waits)) {
            assert!(matches!(error, Err(LockError::NoQuorum { .. })), "{fault:?}: {error:?}");
        }
        let waits = (0..3).map(|_| manager.lock("t").wait(100 * MS).into_future());
        for error in world.sim.block_on(join_all(waits)) {
            assert!(matches!(error, Err(LockError::NoQuorum { .. })), "{fault:?}: {error:?}");
        }
    }
}

/// The errors of three who wait in one process, in line for 30, 2 and 1 s.
fn three_in_line(world: &World) -> Arc<Mutex<Vec<LockError>>> {
    let (manager, told) = (world.manager(), Arc::<Mutex<Vec<_>>>::default());
    for wait in [30, 2, 1] {
        let (wait, told) = (manager.lock("r").wait(wait * SECOND).into_future(), Arc::clone(&told));
        world.sim.spawn(Box::pin(async move {
            let error = wait.await.unwrap_err();
            told.lock().unwrap().push(error);
        }));
    }
    told
}

#[test]
fn who_waits_in_line_for_what_others_have_is_told_by_which_nodes_and_asks_nothing() {
    let world = World::new(3);
    let _held = world.sim.block_on(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
    let told = three_in_line(&world);
    for ended in [1, 2] {
        world.sim.advance(SECOND - MS);
        let before = world.log.operations().len();
        world.sim.advance(MS);
        assert_eq!(world.log.operations().len(), before);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), ended);
        let error = &told[ended - 1];
        let votes = error.votes().unwrap();
        assert!(error.is_held(), "{error}");
        assert_eq!((votes.iter().count(), votes.failures().count()), (3, 0), "{error}");
    }
}

/// Whoever wants both stands in line for one, or asks for both, while somebody elsewhere has one.
#[test]
fn a_lock_that_is_free_is_had_in_the_end_though_one_in_front_waits_for_more() {
    for in_front in [0, 1] {
        let world = World::new(3);
        let (here, elsewhere) = (world.manager(), world.manager());
        let _held = world.sim.block_on(elsewhere.lock("b").ttl(60 * SECOND)).unwrap();
        let front = (0..in_front).map(|_| here.lock("b").wait(30 * SECOND).into_future());
        let both = here.lock(["a", "b"]).wait(30 * SECOND).into_future();
        let sim = world.sim.clone();
        let one = async {
            sim.sleep_until(sim.now() + SECOND).await;
            here.lock("a").wait(5 * SECOND).await.map(|guard| (guard, sim.elapsed()))
        };
        let (_, _, locked) = world.sim.block_on(join3(join_all(front), both, one));
        let (_guard, at) = locked.unwrap();
        assert!(at > 4 * SECOND && at <= 6 * SECOND, "first come, first served, for long: {at:?}");
    }
}

/// The round for both is lost, and what it asked for is not asked for any more.
#[test]
fn a_lock_that_is_free_is_had_in_a_short_time_beside_one_who_waits_for_more() {
    let world = World::new(3);
    let (here, elsewhere) = (world.manager(), world.manager());
    let _held = world.sim.block_on(elsewhere.lock("b").ttl(60 * SECOND)).unwrap();
    let both = here.lock(["a", "b"]).wait(SECOND).into_future();
    let one = here.lock("a").wait(200 * MS).into_future();
    let (both, one) = world.sim.block_on(join(both, one));
    assert!(one.is_ok(), "{one:?}");
    assert!(both.is_err());
}

/// What kept the line from moving when the wait began is over.
#[test]
fn what_was_told_before_is_no_reason_when_the_time_is_over() {
    let world = World::new(3);
    let (here, elsewhere) = (world.manager(), world.manager());
    let _held = world.sim.block_on(elsewhere.lock("b").ttl(60 * SECOND)).unwrap();
    let other = world.sim.block_on(elsewhere.lock("c").ttl(60 * SECOND)).unwrap();
    let _more = world.sim.block_on(elsewhere.lock("d").ttl(60 * SECOND)).unwrap();
    let guard = world.sim.block_on(here.lock("a")).unwrap();
    let sim = world.sim.clone();
    let waits = |name: &'static str, at: u32, wait: u32| {
        let (sim, request) = (sim.clone(), here.lock(name).wait(wait * SECOND).into_future());
        async move {
            sim.sleep_until(sim.now() + at * SECOND / 10).await;
            request.await
        }
    };
    // Each of them stands behind another who waits for more.
    let both = here.lock(["a", "b"]).wait(30 * SECOND).into_future();
    let many = async {
        sim.sleep_until(sim.now() + SECOND / 10).await;
        here.lock(["c", "d"]).wait(30 * SECOND).await
    };
    let free = async {
        sim.sleep_until(sim.now() + SECOND).await;
        let _ = guard.release().await.unwrap();
        sim.sleep_until(sim.now() + SECOND).await;
        let _ = other.release().await.unwrap();
    };
    let locks = join_all([waits("a", 5, 5), waits("c", 0, 1), waits("c", 30, 5)]);
    let (_, _, _, locked) = world.sim.block_on(join4(both, many, free, locks));
    assert!(locked[0].is_ok(), "it was released here: {:?}", locked[0]);
    assert!(matches!(locked[1], Err(LockError::Held { .. })), "{:?}", locked[1]);
    assert!(locked[2].is_ok(), "it was released elsewhere: {:?}", locked[2]);
}

/// The turn comes when the lease in front runs out, and then there are no nodes.
#[test]
fn an_outage_is_told_to_one_whose_turn_comes_late() {
    let world = World::new(3);
    let manager = world.manager();
    let _guard = world.sim.block_on(manager.lock("r")).unwrap();
    let fails = async {
        world.sim.sleep_until(world.sim.now() + 5 * SECOND).await;
        all(&world, &Fault::Down);
    };
    let waits = manager.lock("r").wait(10 * SECOND).into_future();
    let (waited, ()) = world.sim.block_on(join(waits, fails));
    assert!(matches!(waited, Err(LockError::NoQuorum { .. })), "{waited:?}");
}

/// `LockRequest::wait`: the first round may take one node timeout, even if that is longer.
#[test]
fn the_first_round_is_made_in_any_case() {
    let world = World::new(5);
    let manager = world.manager();
    all(&world, &Fault::Slow(2 * MS));
    world.nodes[4].inject(Fault::Hung);
    for _ in 0..2 {
        let guard = world.sim.block_on(manager.lock("r").wait(Duration::ZERO)).unwrap();
        let _ = world.sim.block_on(guard.release()).unwrap();
        world.sim.advance(SECOND);
    }
}

#[test]
fn a_turn_that_comes_just_before_the_deadline_is_no_outage() {
    for (wait, at) in (80..105).flat_map(|at| [(100, at), (2_000, 1_900 + at)]) {
        let world = World::new(3);
        all(&world, &Fault::Slow(3 * MS));
        let manager = world.manager();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        let (sim, start) = (world.sim.clone(), world.sim.now());
        let releases = async {
            sim.sleep_until(start + at * MS).await;
            guard.release().await.unwrap()
        };
        let waits = async {
            let waited = manager.lock("r").wait(wait * MS).await;
            (waited, sim.now() - start)
        };
        let (_, (waited, took)) = world.sim.block_on(join(releases, waits));
        assert!(!matches!(waited, Err(LockError::NoQuorum { .. })), "{at}: {waited:?}");
        assert!(at + 12 > wait || waited.is_ok(), "{at}: {waited:?}");
        // A first round may take one node timeout.
        assert!(wait < 1_000 || took <= wait * MS, "{at}: {took:?} for {wait} ms");
    }
}

/// All have the same deadline, and the lock goes from one to the other as it comes: in each gap
/// between two holders nobody knows who has it, and everybody has little time left.
#[test]
fn many_whose_time_is_nearly_over_do_not_all_ask() {
    let world = World::in_order(3);
    all(&world, &Fault::Slow(MS));
    let manager = world.manager();
    let asked = |world: &World| {
        world.log.operations().iter().filter(|operation| **operation == "acquire").count()
    };
    let sim = &world.sim;
    let locks = (0..500).map(|_| async {
        let guard = manager.lock("r").wait(SECOND).await?;
        sim.sleep_until(sim.now() + MS).await;
        let _ = guard.release().await;
        Ok::<_, LockError>(())
    });
    let ended = world.sim.block_on(join_all(locks));
    let had = ended.iter().filter(|ended| ended.is_ok()).count();
    assert!(had > 100 && had < 480, "some had it, some had not: {had}");
    for error in ended.into_iter().filter_map(Result::err) {
        assert!(error.is_held(), "{error}");
    }
    let asked = asked(&world) / 3;
    assert!(asked <= had + had / 10 + 2, "{asked} rounds for {had} locks");
}

/// What the nodes said to the one in front is said to those behind, when their time is over.
#[test]
fn who_waits_in_line_behind_one_who_was_refused_asks_nothing() {
    let world = World { watches: true, ..World::new(3) };
    let _held = world.sim.block_on(world.manager().lock("r").ttl(60 * SECOND)).unwrap();
    let told = three_in_line(&world);
    world.sim.advance(100 * MS);
    let before = world.log.operations().len();
    world.sim.advance(3 * SECOND);
    assert_eq!(world.log.operations().len(), before);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|error| error.is_held() && error.votes().is_some()), "{told:?}");
}

/// Whether it was called in the meantime or not.
#[test]
fn one_who_gave_up_in_the_line_holds_nobody_up() {
    for called in [false, true] {
        let world = World::new(3);
        let manager = world.manager();
        let held = world.sim.block_on(manager.lock("r")).unwrap();
        let mut waiters: Vec<_> =
            (0..3).map(|_| Box::pin(manager.lock("r").into_future())).collect();
        for waiter in &mut waiters {
            assert!(world.sim.block_on_for(waiter.as_mut(), 1).is_none());
        }
        // The first has its turn, and with it gone it is that of the second.
        drop(waiters.remove(if called { 0 } else { 1 }));
        if called {
            drop(waiters.remove(0));
        }
        let _ = world.sim.block_on(held.release()).unwrap();
        world.catch_up();
        for waiter in waiters {
            let guard = world.sim.block_on(waiter).unwrap();
            let _ = world.sim.block_on(guard.release()).unwrap();
        }
        assert_eq!(world.sim.elapsed(), Duration::ZERO, "called: {called}");
    }
}

/// Who has just been refused is not told that nodes are silent, if there was no time to hear them again.
#[test]
fn q4_a_second_round_that_is_cut_short_hides_no_refusal() {
    let world = World::new(3);
    let manager = world.manager();
    let held = world.sim.block_on(manager.lock("r")).unwrap();
    // It is over, and the nodes still have it.
    world.sim.advance(held.remaining());
    for node in &world.nodes {
        node.add_rule(Rule::new(Effect::Delay { least: MS, most: MS }));
    }
    let refused = world.sim.block_on(manager.lock("r").wait(5 * MS));
    assert!(matches!(refused, Err(LockError::Held { .. })), "{refused:?}");
}
