//! O1–O5: work that is done once per period. O6, O7 and O9 are in `marks.rs`.

use std::convert::Infallible;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join;
use quorate_core::{
    ExtendError, LeaseEnd, LockError, LockGuard, LockManager, Period, Runtime, Stopped, WithError,
};
use quorate_memory::{Fault, MemoryNode};

use crate::telling::{of, told};
use crate::world::{Client, MS, SECOND, World, failing};

mod marks;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn left(world: &World, key: &str) -> Vec<Option<Duration>> {
    world.nodes.iter().map(|node| node.time_left(key)).collect()
}

/// A quorum of three nodes loses all keys.
fn lose(world: &World) {
    world.nodes[..2].iter().for_each(MemoryNode::flush);
}

/// Three calls in one period: whether each of them runs its body.
fn later_calls_run(world: &World, period: Duration) -> bool {
    let manager = world.manager();
    world.run(manager.once_per("job", period, async |_| Ok::<_, ()>(7))).unwrap().is_some()
}

#[test]
fn o1_a_success_is_the_last_run_of_its_period_and_a_second_call_meanwhile_finds_it() {
    for (world, manager) in World::kinds(3).map(World::and_manager) {
        let done = world.run(manager.once_per("job", DAY, async |lease| {
            assert!(!later_calls_run(&world, DAY), "it is being run");
            assert!(lease.is_valid());
            Ok::<_, ()>(7)
        }));
        assert_eq!(done.unwrap(), Some(Ok(7)));
        assert!(!later_calls_run(&world, DAY), "it was run");
        let key = world.nodes[0].keys().remove(0);
        assert_eq!(key, format!("job@{}", world.sim.unix_micros() / 86_400_000_000).as_bytes());
        assert_eq!(world.nodes[0].time_left(key), Some(2 * DAY));
    }
}

/// The sweep over all futures is for futures that leave nothing: a mark stays.
#[test]
fn o1_a_run_that_is_dropped_at_any_poll_leaves_a_mark_or_nothing() {
    let (mut marks, mut nothing) = (0, 0);
    for polls in 0.. {
        let (world, ended) = (World::complete(3), AtomicBool::new(false));
        world.inject(.., Fault::Slow(100 * MS));
        let manager = world.manager();
        let runs = manager.once_per("job", DAY, async |_| {
            for _ in 0..5 {
                world.sim.sleep(SECOND).await;
            }
            ended.store(true, Ordering::Relaxed);
            Ok::<_, ()>(())
        });
        let is_done = world.sim.block_on_for(runs, polls).is_some();
        world.advance(5 * SECOND);
        let is_marked = world.keys_left() == 3;
        assert!(is_marked || world.keys_left() == 0, "{polls} polls");
        assert!(!is_marked || ended.load(Ordering::Relaxed), "{polls} polls");
        assert_eq!(later_calls_run(&world, DAY), !is_marked, "{polls} polls");
        (marks, nothing) = (marks + u32::from(is_marked), nothing + u32::from(!is_marked));
        if is_done {
            assert!(is_marked);
            break;
        }
    }
    assert!(marks > 0 && nothing > 5, "{marks} marks, {nothing} times nothing");
}

#[test]
fn o2_a_body_that_fails_or_panics_or_loses_its_lease_runs_again_in_the_same_period() {
    type Body = fn(&World, &LockManager);
    let bodies: [Body; 5] = [
        |world, manager| {
            let failed = manager.once_per("job", DAY, async |_| Err::<(), _>("no paper"));
            assert_eq!(world.run(failed).unwrap(), Some(Err("no paper")));
        },
        |world, manager| {
            let panics = manager.once_per("job", DAY, async |_| -> Result<(), ()> { panic!("!") });
            catch_unwind(AssertUnwindSafe(|| world.run(panics))).unwrap_err();
        },
        // The body is dropped at the end of the lease.
        |world, manager| {
            let lost = world.run(manager.once_per("job", DAY, async |_| {
                lose(world);
                pending::<Result<(), ()>>().await
            }));
            let Err(WithError::Lost(Stopped { .. })) = lost else { panic!("{lost:?}") };
        },
        // The mark finds that the keys are gone.
        |world, manager| {
            let lost = world.run(manager.once_per("job", DAY, async |_| {
                lose(world);
                Ok::<_, ()>(7)
            }));
            let Err(WithError::Lost(Stopped { reason })) = lost else { panic!("{lost:?}") };
            assert!(matches!(reason, LeaseEnd::NotHeld(_)), "{reason}");
        },
        // The future is dropped.
        |world, manager| {
            let runs = manager.once_per("job", DAY, async |_| pending::<Result<(), ()>>().await);
            assert!(world.sim.block_on_for(runs, 3).is_none());
        },
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let world = World::complete(3);
        body(&world, &world.manager());
        world.catch_up();
        assert!(later_calls_run(&world, DAY), "body {number}");
        assert!(!later_calls_run(&world, DAY), "body {number}");
    }
}

/// The process dies behind the work, before its mark. Then the ttl passes.
/// Rule O2.
#[test]
fn o3_a_crash_between_the_work_and_the_mark_runs_the_work_again() {
    let (world, runs) = (World::complete(3), Arc::<AtomicU32>::default());
    let client = world.sim.client(0);
    let nodes = world.nodes.iter().map(|node| node.seen_by(&client));
    let manager = LockManager::builder(nodes).runtime(client.clone()).build().unwrap();
    let counted = Arc::clone(&runs);
    client.spawn(Box::pin(async move {
        let body = async |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            pending::<Result<(), Infallible>>().await
        };
        drop(manager.once_per("job", DAY, body).await);
    }));
    world.advance(30 * SECOND);
    assert!(!later_calls_run(&world, DAY), "it is being run");
    client.kill();
    world.advance(SECOND);
    assert!(!later_calls_run(&world, DAY), "the nodes still have the lock");
    world.advance(9 * SECOND);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert!(later_calls_run(&world, DAY), "without a mark it is not known");
}

/// The value is there, so it is returned. The lock is free, also where nodes set the mark late.
#[test]
fn o3_a_mark_that_no_quorum_sets_is_released() {
    let told = told(|| {
        for fault in [Fault::Down, Fault::Hung, Fault::Late(20 * SECOND)] {
            let world = World::complete(3);
            let (manager, nodes) = (world.manager(), world.nodes.clone());
            let name = format!("job@{}", world.sim.client(0).unix_micros() / 86_400_000_000);
            let done = world.run(manager.once_per("job", DAY, async |_| {
                nodes[..2].iter().for_each(|node| node.inject(fault.clone()));
                Ok::<_, ()>(7)
            }));
            assert_eq!(done.unwrap(), Some(Ok(7)));
            world.heal();
            world.advance(41 * SECOND);
            assert_eq!(left(&world, &name), [None; 3], "{fault:?}");
            assert!(later_calls_run(&world, DAY));
        }
    });
    assert_eq!(of("not kept", &told).len(), 3);
}

/// Whatever becomes of the process then: no node has a key for longer than its ttl.
#[test]
fn o3_a_keep_that_no_quorum_answers_tells_no_node_of_the_mark() {
    let (world, guard) = World::new(3).held();
    world.inject(1.., Fault::Hung);
    assert!(world.sim.block_on_for(guard.keep(MINUTE), 1).is_none());
    for _ in 0..100 {
        world.advance(10 * MS);
        assert!(left(&world, "r").into_iter().flatten().all(|left| left <= 10 * SECOND));
    }
}

/// A process that ends sooner than the mark does not try for days.
#[test]
fn o3_a_mark_that_is_not_set_is_released_for_a_minute_longer_than_the_ttl() {
    let world = World::complete(3);
    let guard = world.lock(&world.manager());
    // A quorum extends for the ttl, and fails then.
    world.inject(.., Fault::Late(100 * MS));
    let failing = async {
        world.sim.sleep(50 * MS).await;
        world.inject(..2, failing("LOADING"));
    };
    let (kept, ()) = world.run(join(guard.keep(DAY), failing));
    assert!(matches!(kept, Err(ExtendError::NoQuorum(_))));
    world.advance(60 * SECOND);
    let calls = world.log.calls().len();
    world.advance(12 * SECOND);
    assert!(world.log.calls().len() > calls);
    let calls = world.log.calls().len();
    world.advance(DAY);
    assert_eq!(world.log.calls().len(), calls);
}

#[test]
fn o4_a_period_is_named_by_the_wall_clock_of_each_machine() {
    let world = World::complete(3);
    let runs = |ahead: i64| {
        let sim = world.sim.clone();
        let micros = move || sim.unix_micros().saturating_add_signed(ahead * 1_000_000);
        let wall = Client::showing(&world.sim, micros);
        let name = format!("job@{}", wall.unix_micros() / 86_400_000_000);
        let manager = world.builder().runtime(wall).build().unwrap();
        let ran = manager.once_per("job", DAY, async |lease| {
            assert_eq!(lease.keys()[0].to_string(), name);
            Ok::<_, ()>(())
        });
        world.run(ran).unwrap().is_some()
    };
    let day = 24 * 60 * 60;
    // The world begins at midnight.
    for [first, again] in [[0, day - 1], [-1, -day], [day, 2 * day - 1], [-day - 1, -2 * day]] {
        assert!(runs(first) && !runs(again), "{first} s ahead, then {again} s");
    }
    // At the beginning of the Unix clock, and of another length.
    assert!(runs(-1_000 * 365 * day));
}

/// Its number is that of the periods since 1970, whatever their length.
#[test]
fn o4_a_period_need_not_be_whole_seconds() {
    let tick = Duration::from_micros(1);
    for period in [SECOND, 1_500 * MS, 2 * SECOND - MS, SECOND + tick, 60 * MINUTE + MS] {
        let world = World::complete(3);
        let (manager, mut last) = (world.manager(), None);
        for _ in 0..20 {
            let number = u128::from(world.sim.unix_micros()) * 1_000 / period.as_nanos();
            let ran = world.run(manager.once_per("job", period, async |lease| {
                assert_eq!(lease.keys()[0].to_string(), format!("job@{number}"));
                Ok::<_, ()>(())
            }));
            let is_new = last.replace(number) != Some(number);
            assert_eq!(ran.unwrap().is_some(), is_new, "{period:?}, {number}");
            world.advance(period * 3 / 10);
        }
    }
}

/// The work is asked for on each noon of five months, from Wednesday 2025-01-01 on, and once more on that day.
#[test]
fn o4_a_week_begins_on_monday_and_a_month_on_the_first() {
    let mondays: Vec<u32> = [0].into_iter().chain((5..150).step_by(7)).collect();
    for (period, expected, last, mark) in [
        (Period::Week, mondays, "job@2025-W22Z", 14 * DAY),
        (Period::Month, vec![0, 31, 59, 90, 120], "job@2025-05Z", 62 * DAY),
    ] {
        let world = World::complete(3);
        let (manager, mut ran_on, mut name) = (world.manager(), Vec::new(), String::new());
        world.advance(DAY / 2);
        for day in 0..150 {
            for _ in 0..2 {
                let ran = world.run(manager.once_per("job", period, async |lease| {
                    name = lease.keys()[0].to_string();
                    Ok::<_, ()>(())
                }));
                ran_on.extend(ran.unwrap().map(|_| day));
                let left = left(&world, &name);
                assert!(!ran_on.ends_with(&[day]) || left == [Some(mark); 3], "{name}: {left:?}");
            }
            world.advance(DAY);
        }
        assert_eq!((ran_on, &*name), (expected, last));
    }
}

#[test]
fn o5_nodes_that_lose_their_data_forget_the_mark() {
    for (lost, guard, expected) in
        [(1, false, false), (2, false, true), (1, true, false), (2, true, true)]
    {
        let world = World::complete(3);
        let builder = world.builder();
        let builder = if guard { builder.restart_guard(10 * SECOND) } else { builder };
        let manager = builder.build().unwrap();
        // A new cluster is quarantined at first.
        let _ = world.run(manager.lock("new").no_wait());
        world.advance(20 * SECOND);
        let run = async || manager.once_per("job", DAY, async |_| Ok::<_, ()>(())).await;
        assert!(world.run(run()).unwrap().is_some());
        world.nodes[..lost].iter().for_each(MemoryNode::restart);
        if guard && lost == 2 {
            let refused = world.run(run());
            assert!(matches!(refused, Err(WithError::Lock(LockError::NoQuorum(_)))), "{refused:?}");
        }
        // The guard does not cover a mark, which outlives its `max_ttl`.
        world.advance(20 * SECOND);
        let ran = world.run(run()).unwrap().is_some();
        assert_eq!(ran, expected, "{lost} nodes, guard: {guard}");
    }
}

/// An error of the nodes is no *done*.
#[test]
fn o1_without_a_quorum_nothing_is_run_and_it_is_an_error() {
    let (world, manager) = World::new(3).and_manager();
    world.inject(..2, Fault::Hung);
    let runs = async |_| -> Result<(), ()> { panic!("it runs") };
    let ran = world.run(manager.once_per("job", DAY, runs));
    assert!(matches!(ran, Err(WithError::Lock(LockError::NoQuorum(_)))), "{ran:?}");
}

/// Its names, its label, its ttl and its fencing. Readers share a lock, so both would run the body.
#[test]
fn a_request_that_is_done_once_per_period_keeps_its_settings() {
    let (world, manager) = World::complete(3).and_manager();
    let settings = || manager.lock(["b", "a"]).ttl(5 * SECOND).label("web-3").fenced();
    let number = world.sim.client(0).unix_micros() / 60_000_000;
    let seen = world.run(settings().once_per(MINUTE, async |lease| {
        assert!(lease.remaining() < 5 * SECOND);
        assert!(lease.fencing_token().is_some());
        let names: Vec<_> = lease.keys().iter().map(ToString::to_string).collect();
        assert_eq!(names, [format!("a@{number}"), format!("b@{number}")]);
        let held = manager.inspect(format!("a@{number}")).await.unwrap();
        Ok::<_, Infallible>(held.label().map(str::to_owned))
    }));
    assert_eq!(seen.unwrap(), Some(Ok(Some("web-3".to_owned()))));
    let again = settings().once_per(MINUTE, async |_| Err::<(), _>("not run"));
    assert_eq!(world.run(again).unwrap(), None);
    let read = manager.read("a").once_per(MINUTE, async |_| Err::<(), _>("not run"));
    let error = world.run(read).unwrap_err();
    assert!(error.to_string().contains("cannot be done once per period"), "{error}");
}
