//! What happened is visible: events, spans and figures, with the right fields and without secrets.

use std::future::IntoFuture;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use futures_util::future::join;
use quorate_core::error::LeaseEnd;
use quorate_core::{Lease, LockGuard};
use quorate_memory::{Fault, MemoryNode};
use quorate_protocol::error_of_reply;
use quorate_tests::wait::receive;

use super::figures::{figures, recorder};
use crate::telling::{acting, story, told};
use crate::world::{MS, SECOND, World, failing};

/// Plays a scene on three nodes. Its story has each of these lines, of which `…` leaves something out, and no other
/// than these is more than debugging.
fn assert_told(scene: impl FnOnce(&World), expected: &str) {
    let told = told(|| {
        let world = World::new(3);
        scene(&world);
        world.sim.settle();
    });
    let story = story(&told);
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|it| !it.is_empty()).collect();
    for line in &expected {
        let is_it = |told: &String| line.split('…').all(|part| told.contains(part));
        assert!(story.iter().any(is_it), "missing: {line} in {story:#?}");
    }
    let is_loud = |line: &&str| !line.starts_with("DEBUG") && !line.starts_with("TRACE");
    let loud = expected.into_iter().filter(is_loud).count();
    assert_eq!(story.iter().map(String::as_str).filter(is_loud).count(), loud, "{story:#?}");
}

#[test]
fn the_life_of_a_lock_is_reported() {
    let acquired_and_released = |world: &World| {
        world.inject(.., Fault::Slow(3 * MS));
        let manager = world.builder().key_prefix("app:").build().unwrap();
        let guard = world.run(manager.lock(["a", "b\n"])).unwrap();
        world.advance(SECOND);
        world.run(guard.release()).unwrap();
    };
    assert_told(
        acquired_and_released,
        r#"
        TRACE call settled 6 times: latency=3.0ms, node=memory-1, operation=acquire, vote=granted
        DEBUG acquired: keys=app:a, app:b\n, left=9.4s, waited=3.0ms in lock {"keys": "app:a, app:b\\n"}
        DEBUG released: held=1.0s, keys=app:a, app:b\n, left=8.4s, outcome=released, took=3.0ms"#,
    );
    let lost_and_failed = |world: &World| {
        let _guard = world.lock(&world.manager());
        world.inject(.., Fault::Slow(3 * MS));
        world.run(world.manager().lock("r").timeout(SECOND)).unwrap_err();
    };
    assert_told(
        lost_and_failed,
        r#"
        DEBUG round lost 9 times: failure=0 of 3 nodes granted, 2 needed; memory-1: …keys=r, reason=held, took=3.0ms in lock {"keys": "r"}
        DEBUG not acquired: error=held by another client on 2 of 3 nodes…reason=held, waited=1.0s"#,
    );
    let extended = |world: &World| {
        let guard = world.lock(&world.manager());
        world.advance(SECOND);
        world.run(guard.extend()).unwrap();
        world.inject(..2, Fault::Hung);
        world.advance(SECOND);
        world.run(guard.extend()).unwrap_err();
    };
    assert_told(
        extended,
        r#"
        DEBUG extended: keys=r, left=9.4s, took=0.0ns
        DEBUG not extended: failure=1 of 3 nodes granted, 2 needed; memory-1: no reply within 500.0ms; memory-2: no reply within 500.0ms, keys=r, left=7.9s, took=500.0ms
        WARN node failing 2 times: error=no reply for 10.5s, kind=Silent, node=memory-1, operation=release
        DEBUG cleaned up: keys=r, took=10.5s, unanswered=2"#,
    );
    let cleaned_up = |world: &World| {
        world.inject(2.., Fault::Hung);
        world.run(world.lock(&world.manager()).release()).unwrap();
    };
    assert_told(
        cleaned_up,
        r#"
        DEBUG cleaned up: keys=r, took=10.…unanswered=1
        WARN node failing: …kind=Silent, node=memory-3"#,
    );
    // A lease that its holder ended is no warning.
    let ended = |world: &World| {
        let manager = world.manager();
        let record = world.lock(&manager).detach().unwrap();
        world.advance(SECOND);
        drop(world.run(manager.adopt(&record)).unwrap());
        world.sim.settle();
        world.run(manager.adopt(&record)).unwrap_err();
        let _held = world.run(manager.lock("s")).unwrap();
        world.advance(SECOND);
        let _ = world.run(manager.close(SECOND));
    };
    assert_told(
        ended,
        r#"
        DEBUG detached: held=0.0ns
        DEBUG adopted: keys=r
        DEBUG not adopted: error=r: the lock is gone
        DEBUG released 2 times: …outcome=dropped
        DEBUG closed: …held=1.0s"#,
    );
}

#[test]
fn a_lost_lease_is_a_warning_with_the_reason_once() {
    type Scene = fn(&World, LockGuard);
    let scenes: [(&str, Scene); 5] = [
        // The holder listens.
        ("error=r: the lease expired, held=9.4s, keys=r, reason=expired", |world, guard| {
            assert!(matches!(world.run(guard.lost()), LeaseEnd::Expired { .. }));
            world.run(guard.lost());
        }),
        // The holder does not notice before the release.
        ("error=r: the lease expired, held=9.4s, keys=r, reason=expired", |world, guard| {
            world.advance(11 * SECOND);
            assert!(world.run(guard.release()).unwrap_err().is_lost());
        }),
        ("error=r: the lease expired, held=9.4s, keys=r, reason=expired", |world, guard| {
            world.advance(11 * SECOND);
            drop(guard);
        }),
        // Only the nodes know.
        ("held=1.0s, keys=r, reason=not_held", |world, guard| {
            world.nodes.iter().for_each(|node| node.expire("r"));
            world.advance(SECOND);
            assert!(world.run(guard.release()).unwrap_err().is_lost());
        }),
        ("held=2.0s, keys=r, reason=hold_limit", |world, guard| {
            drop(guard);
            let request = world.manager().lock("r").hold_limit(2 * SECOND).auto_renew();
            world.run(world.run(request).unwrap().lost());
        }),
    ];
    for (line, scene) in scenes {
        let (snapshotter, recorder) = recorder();
        let play = |world: &World| scene(world, world.lock(&world.manager()));
        metrics::with_local_recorder(&recorder, || {
            assert_told(play, &format!("WARN lost: …{line}"));
        });
        // The last one has released another lease in time.
        let in_time = usize::from(line.contains("hold_limit"));
        let figures = figures(&snapshotter);
        let counted = |name: &str| figures.get(name).map_or(0, Vec::len);
        assert_eq!(counted("hold_seconds"), 1 + in_time, "{line}");
        assert_eq!(counted("validity_left_seconds"), in_time, "{line}");
    }
}

/// And a silent one, though rounds are won without it.
#[test]
fn a_failing_node_is_reported_once_until_it_has_recovered() {
    for (fault, failing, recovered) in [
        (failing("READONLY here"), "error=READONLY here, kind=ReadOnly", Some("10.0s")),
        (Fault::Dead, "error=connection refused, kind=Connection", Some("9.9s")),
        (Fault::Hung, "error=no reply for 500.0ms, kind=Silent", None),
    ] {
        let play = |world: &World| {
            let manager = world.manager();
            let rounds = |count| {
                for _ in 0..count {
                    world.run(world.lock(&manager).release()).unwrap();
                    world.advance(100 * MS);
                }
            };
            rounds(1);
            world.inject(1..2, fault.clone());
            rounds(50);
            if recovered.is_some() {
                world.heal();
                rounds(100);
            }
        };
        let failing = format!("WARN node failing: {failing}, node=memory-2, operation=acquire");
        let recovered =
            recovered.map(|it| format!("INFO node recovered: after={it}, node=memory-2"));
        assert_told(play, &format!("{failing}\n{}", recovered.unwrap_or_default()));
    }
}

/// All that can happen to a lock, on nodes that fail in all ways.
fn everything(world: &World) {
    let (manager, sim) = (world.manager(), &world.sim);
    let unknown = error_of_reply("ERR unknown command 'X', with args beginning with: 'y'");
    for fault in [Fault::Failing(unknown), Fault::Hung, Fault::Dead, Fault::Late(600 * MS)] {
        world.nodes[0].inject(fault);
        let guard = sim.block_on(manager.lock("r")).unwrap();
        sim.block_on(guard.extend()).unwrap();
        sim.block_on(world.manager().lock("r").timeout(MS)).unwrap_err();
        let record = guard.detach().unwrap();
        let guard = sim.block_on(manager.adopt(&record)).unwrap();
        sim.block_on(guard.release()).unwrap();
        sim.block_on(manager.adopt(&record)).unwrap_err();
        world.nodes[0].heal();
        sim.advance(20 * SECOND);
    }
    let guard = sim.block_on(manager.lock("r")).unwrap();
    let next = manager.lock("r").into_future();
    let (released, next) = sim.block_on(join(guard.release(), next));
    released.unwrap();
    sim.block_on(next.unwrap().lost());
    let guard = sim.block_on(manager.lock("r")).unwrap();
    world.inject(.., Fault::Hung);
    sim.block_on(guard.extend()).unwrap_err();
    sim.block_on(manager.lock("r").no_wait()).unwrap_err();
    let _ = sim.block_on(manager.close(SECOND));
    sim.settle();
}

#[test]
fn a6_no_event_and_no_metric_shows_a_token() {
    let world = World::complete(3);
    let (figures, recorder) = recorder();
    let told = told(|| metrics::with_local_recorder(&recorder, || everything(&world)));
    let mut kinds: Vec<_> = told.iter().map(|told| &*told.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), 16, "all but `node lacks operation`: {kinds:?}");
    let tokens = world.log.tokens();
    assert!(tokens.len() > 10);
    let shown = format!("{told:?} {:?}", figures.snapshot().into_vec());
    for token in tokens {
        assert!(!shown.contains(std::str::from_utf8(&token).unwrap()));
    }
}

#[test]
fn a6_no_token_is_printed_anywhere() {
    let (world, manager) = World::complete(5).and_manager();
    world.occupy(3..);
    let request = manager.lock("r");
    let mut printed = format!("{manager:?} {request:?} {:?}", manager.lock("r").no_wait());
    let guard = world.run(request).unwrap();
    printed += &format!("{guard:?} {:?}", guard.lease());
    world.nodes[..3].iter().for_each(MemoryNode::restart);
    let error = world.run(guard.extend()).unwrap_err();
    printed += &format!("{error} {error:?}");
    let error = world.run(manager.lock(vec![0_u8; 9]).no_wait()).map(drop);
    printed += &format!("{error:?}");
    let record = world.run(manager.lock("s")).unwrap().detach().unwrap();
    printed += &format!("{record:?}");
    let tokens = world.log.tokens();
    assert!(tokens.len() > 2);
    for token in tokens {
        let token = String::from_utf8(token).unwrap();
        assert!(!printed.contains(&token), "{printed}");
        assert!(!printed.contains(&token[..8]), "{printed}");
    }
}

/// Plays a scene in which the subscriber looks like this at a lease, from when the scene has noted it. In a thread of
/// its own: it would block for ever.
fn looking_at(looks: fn(&Lease), scene: impl FnOnce(&Mutex<Option<Lease>>) + Send + 'static) {
    let (ends, ended) = channel();
    std::thread::spawn(move || {
        let noted = Arc::<Mutex<Option<Lease>>>::default();
        let looked_at = Arc::clone(&noted);
        let look = move |_: &str| looked_at.lock().unwrap().clone().iter().for_each(looks);
        acting(look, || scene(&noted));
        ends.send(()).unwrap();
    });
    receive(&ended).unwrap();
}

/// As a log that only the leader writes.
/// Rule A1.
#[test]
fn a_subscriber_may_look_at_the_lease() {
    let looks = |lease: &Lease| assert!(lease.is_valid() || lease.remaining().is_zero());
    looking_at(looks, |noted| {
        let (world, guard) = World::new(3).held();
        *noted.lock().unwrap() = Some(guard.lease());
        world.inject(2.., failing("LOADING"));
        world.run(guard.extend()).unwrap();
        world.run(guard.release()).unwrap();
    });
}

/// A node is back, and owes a release of another lock.
/// Rule A1.
#[test]
fn a_subscriber_may_look_at_another_lease_when_a_node_is_back() {
    looking_at(
        |lease| assert!(!lease.is_at_risk()),
        |noted| {
            let (world, guard) = World::in_order(3).held();
            let manager = world.manager();
            let lock = |name| world.run(manager.lock(name)).unwrap();
            let (extended, released) = (lock("x"), lock("y"));
            world.inject(..1, Fault::Down);
            world.run(released.release()).unwrap();
            world.heal();
            *noted.lock().unwrap() = Some(extended.lease());
            world.run(extended.extend()).unwrap();
            drop(guard);
        },
    );
}
