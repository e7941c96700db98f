//! O1–O7: locks that stay on the nodes after the work, and work that is done once per period.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use quorate_core::error::{InvalidRequest, OnceError};
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{
    ExtendError, Lease, LeaseEnd, LockError, LockGuard, LockManager, Runtime, Stopped, WithError,
};
use quorate_memory::{Fault, MemoryNode, SimClient};

use crate::telling::{of, told};
use crate::world::{MS, Paused, SECOND, World};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Over pools, over ordered connections, and with wait queues.
const WORLDS: [fn(usize) -> World; 3] = [World::new, World::in_order, World::complete];

fn left(world: &World, key: &str) -> Vec<Option<Duration>> {
    world.nodes.iter().map(|node| node.time_left(key)).collect()
}

#[test]
fn a_lock_that_is_kept_is_free_after_its_duration_and_not_earlier() {
    for world in WORLDS.map(|world| world(3)) {
        let (manager, sim) = (world.manager(), &world.sim);
        let guard = sim.block_on(manager.lock("r")).unwrap();
        guard.auto_renew();
        let (lease, start) = (guard.lease(), sim.elapsed());
        sim.advance(4 * SECOND);
        sim.block_on(guard.keep(MINUTE)).unwrap();
        assert!(!lease.is_valid(), "it is no lease any more");
        assert!(matches!(sim.block_on(lease.lost()), LeaseEnd::Detached));
        assert_eq!(left(&world, "r"), [Some(MINUTE); 3]);
        // Neither the manager nor the drop of what is left of the lease frees it.
        assert!(sim.block_on(manager.lock("r").no_wait()).unwrap_err().is_held());
        assert!(sim.block_on(manager.close(SECOND)).is_clean());
        drop(lease);
        let next = sim.block_on(world.manager().lock("r").timeout(2 * MINUTE)).unwrap();
        let waited = sim.elapsed() - start;
        assert!((64 * SECOND..66 * SECOND).contains(&waited), "{waited:?}");
        drop(next);
    }
}

/// The nodes of a slow network extend while the close runs.
#[test]
fn a_close_does_not_free_a_lock_that_is_being_kept() {
    for world in WORLDS.map(|world| world(3)) {
        let (manager, sim) = (world.manager(), &world.sim);
        let guard = sim.block_on(manager.lock("r")).unwrap();
        world.inject(.., Fault::Slow(100 * MS));
        let (kept, closed) = sim.block_on(join(guard.keep(MINUTE), manager.close(5 * SECOND)));
        kept.unwrap();
        assert!(closed.is_clean(), "{closed}");
        sim.advance(20 * SECOND);
        assert_eq!(world.holders("r"), 3);
    }
}

#[test]
fn a_keep_that_is_dropped_goes_on_from_its_first_poll_on() {
    for polls in 0.. {
        let world = World::new(3);
        let (manager, sim) = (world.manager(), &world.sim);
        let guard = sim.block_on(manager.lock("r")).unwrap();
        world.inject(.., Fault::Slow(100 * MS));
        let is_done = sim.block_on_for(guard.keep(MINUTE), polls).is_some();
        sim.advance(20 * SECOND);
        assert_eq!(world.holders("r"), if polls == 0 { 0 } else { 3 }, "{polls} polls");
        // The tasks of this manager are not kept waiting.
        assert_eq!(sim.block_on(manager.lock("r").no_wait()).is_ok(), polls == 0);
        if is_done {
            assert!(polls > 1);
            break;
        }
    }
}

#[test]
fn a_keep_during_a_renewal_counts_for_its_own_duration() {
    for after in [2 * SECOND, 3 * SECOND, 3 * SECOND + 50 * MS, 3 * SECOND + 100 * MS] {
        let world = World::new(3);
        let manager = world.builder().renew_interval(3 * SECOND).build().unwrap();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        guard.auto_renew();
        world.inject(.., Fault::Slow(200 * MS));
        world.sim.advance(after);
        world.sim.block_on(guard.keep(MINUTE)).unwrap();
        world.heal();
        world.sim.advance(20 * SECOND);
        assert_eq!(world.holders("r"), 3, "after {after:?}");
    }
}

#[test]
fn a_keep_without_a_quorum_releases_nothing_and_is_a_warning() {
    for fault in [Fault::Hung, Fault::Dead, Fault::Down] {
        let told = told(|| {
            let (world, guard) = World::new(3).held();
            world.inject(1.., fault.clone());
            let failed = world.sim.block_on(guard.keep(MINUTE));
            let Err(ExtendError::NoQuorum(failure)) = failed else { panic!("{failed:?}") };
            assert_eq!(failure.granted(), 1);
            world.sim.advance(5 * SECOND);
            assert!(!world.log.operations().contains(&"release"));
            assert!(world.nodes[0].time_left("r") > Some(50 * SECOND), "{fault:?}");
        });
        let warned = of("not kept", &told);
        assert_eq!(warned.len(), 1, "{told:#?}");
        assert!(warned[0].field("error").contains("no quorum"), "{warned:?}");
    }
}

#[test]
fn o6_a_lock_is_kept_for_any_duration_and_no_limit_of_leases_bounds_it() {
    let century = 36_500 * DAY;
    for (duration, expected) in [
        // The ttl is longer.
        (Duration::ZERO, 10 * SECOND),
        (Duration::from_nanos(1), 10 * SECOND),
        (10 * SECOND + Duration::from_nanos(1), 10 * SECOND + MS),
        (730 * DAY, 730 * DAY),
        (century, century),
        (Duration::MAX, century),
    ] {
        let world = World::new(3);
        let builder = world.builder().restart_guard(10 * SECOND).hold_limit(5 * SECOND);
        let manager = builder.build().unwrap();
        world.sim.block_on(manager.lock("new").no_wait()).map(drop).unwrap_err();
        world.sim.advance(20 * SECOND);
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        world.sim.block_on(guard.keep(duration)).unwrap();
        assert_eq!(left(&world, "r"), [Some(expected); 3], "{duration:?}");
    }
}

#[test]
fn o7_a_lease_that_has_ended_keeps_nothing() {
    type End = fn(&World, &LockManager, &Paused, &LockGuard);
    let ends: [(&str, End); 5] = [
        ("the lease expired", |_, _, client, _| client.pause(9_600 * MS)),
        ("the lease expired", |world, _, _, guard| drop(world.sim.block_on(guard.lost()))),
        ("the keys are gone", |world, _, _, guard| {
            world.nodes[..2].iter().for_each(MemoryNode::flush);
            world.sim.block_on(guard.extend()).unwrap_err();
        }),
        // It is the extension that finds it.
        ("the keys are gone", |world, _, _, _| world.nodes[..2].iter().for_each(MemoryNode::flush)),
        ("the lock manager is closed", |world, manager, _, _| {
            world.sim.block_on_for(manager.close(SECOND), 1);
        }),
    ];
    for (why, end) in ends {
        let world = World::new(3);
        let client = Paused::new(&world.sim);
        let manager = LockManager::builder(world.spies()).runtime(client.clone()).build().unwrap();
        let guard = world.sim.block_on(manager.lock("r")).unwrap();
        end(&world, &manager, &client, &guard);
        let failed = world.sim.block_on(guard.keep(MINUTE));
        let Err(ExtendError::Lost(lost)) = &failed else { panic!("{failed:?}") };
        assert!(lost.to_string().starts_with(why), "{lost}");
        world.catch_up();
        assert_eq!(world.keys_left(), 0, "{why}");
    }
}

/// A process with a wall clock of its own.
#[derive(Clone, Debug)]
struct Machine {
    client: SimClient,
    ahead: i64,
}

impl Runtime for Machine {
    fn now(&self) -> Instant {
        self.client.now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.client.sleep_until(deadline)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.client.spawn(task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.client.fill_random(bytes)
    }

    fn unix_micros(&self) -> u64 {
        self.client.unix_micros().saturating_add_signed(self.ahead)
    }
}

/// A machine whose wall clock is so many seconds ahead of the right time.
fn machine(world: &World, ahead: i64) -> (LockManager, Machine) {
    let client = world.sim.client(0);
    let nodes: Vec<_> = world.nodes.iter().map(|node| node.seen_by(&client)).collect();
    let machine = Machine { client, ahead: ahead * 1_000_000 };
    (LockManager::builder(nodes).runtime(machine.clone()).build().unwrap(), machine)
}

/// When a body began and ended, and whether it succeeded.
type Run = (Duration, Duration, bool);

/// The runs of each period.
#[derive(Clone, Debug, Default)]
struct Runs(Arc<Mutex<BTreeMap<String, Vec<Run>>>>);

impl Runs {
    /// Runs for `time`, and fails if so.
    async fn run(
        &self,
        world: &World,
        lease: Lease,
        time: Duration,
        fails: bool,
    ) -> Result<(), ()> {
        let start = world.sim.elapsed();
        world.sim.sleep(time).await;
        let name = lease.keys()[0].to_string();
        let run = (start, world.sim.elapsed(), !fails);
        self.0.lock().unwrap().entry(name).or_default().push(run);
        if fails { Err(()) } else { Ok(()) }
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().values().map(Vec::len).sum()
    }
}

/// Five machines, 200 periods of a minute. Each machine asks by its own clock, several times in each of its periods.
#[test]
fn o1_five_machines_with_skewed_clocks_run_each_of_200_periods_once() {
    // Each within 20 s, as machines are; and one that is almost a period behind the others.
    for (clocks, failing) in [
        ([-20, -7, 0, 11, 20], 0),
        ([-59, 0, 0, 0, 0], 0),
        ([0, 59, 59, 59, 59], 0),
        ([-20, -7, 0, 11, 20], 3),
    ] {
        let (world, runs) = (&World::complete(3), &Runs::default());
        let machines = clocks.map(|ahead| async move {
            let (manager, _) = machine(world, ahead);
            while world.sim.elapsed() < 201 * MINUTE {
                world.sim.sleep(Duration::from_micros(world.sim.random_below(30_000_000))).await;
                let body = async |lease: Lease| {
                    let time = Duration::from_micros(world.sim.random_below(5_000_000));
                    let fails = failing > 0 && world.sim.random_below(failing) == 0;
                    runs.run(world, lease, time, fails).await
                };
                let _ = manager.once_per("job", MINUTE, body).await.unwrap();
            }
        });
        world.sim.block_on(join_all(machines));
        let runs = runs.0.lock().unwrap();
        assert!(runs.len() > 200, "only {} periods", runs.len());
        for (at, (name, runs)) in runs.iter().enumerate() {
            let done = runs.iter().filter(|(.., is_done)| *is_done).count();
            // The last periods are cut short.
            let is_right = done == 1 || done == 0 && at >= 200;
            assert!(is_right, "{clocks:?}: {name}: {runs:?}");
            let overlap = runs.windows(2).any(|two| two[1].0 < two[0].1);
            assert!(!overlap, "{clocks:?}: {name}: {runs:?}");
        }
        let number = |name: &String| name[4..].parse::<u64>().unwrap();
        let numbers: Vec<u64> = runs.keys().map(number).collect();
        assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "a period was missed");
        world.sim.end();
    }
}

/// Three calls in one period: whether each of them runs its body.
fn later_calls_run(world: &World, period: Duration) -> bool {
    let manager = world.manager();
    let ran = world.sim.block_on(manager.once_per("job", period, async |_| Ok::<_, ()>(7)));
    ran.unwrap().is_some()
}

#[test]
fn o1_a_success_is_the_last_run_of_its_period_and_a_second_call_meanwhile_finds_it() {
    for world in WORLDS.map(|world| world(3)) {
        let manager = world.manager();
        let done = world.sim.block_on(manager.once_per("job", DAY, async |lease| {
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

/// The sweep over all futures is for those that leave nothing: a mark stays.
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
        world.sim.advance(5 * SECOND);
        let has_ended = ended.load(Ordering::Relaxed);
        assert_eq!(world.keys_left(), if has_ended { 3 } else { 0 }, "{polls} polls");
        assert_eq!(later_calls_run(&world, DAY), !has_ended, "{polls} polls");
        if has_ended {
            marks += 1
        } else {
            nothing += 1
        }
        if is_done {
            break;
        }
    }
    assert!(marks > 1 && nothing > 5, "{marks} marks, {nothing} times nothing");
}

#[test]
fn o2_a_body_that_fails_or_panics_or_loses_its_lease_runs_again_in_the_same_period() {
    type Body = fn(&World, &LockManager);
    let bodies: [Body; 5] = [
        |world, manager| {
            let failed = manager.once_per("job", DAY, async |_| Err::<(), _>("no paper"));
            assert_eq!(world.sim.block_on(failed).unwrap(), Some(Err("no paper")));
        },
        |world, manager| {
            let panics = manager.once_per("job", DAY, async |_| -> Result<(), ()> { panic!("!") });
            catch_unwind(AssertUnwindSafe(|| world.sim.block_on(panics))).unwrap_err();
        },
        // The body is dropped at the end of the lease.
        |world, manager| {
            let lost = world.sim.block_on(manager.once_per("job", DAY, async |_| {
                world.nodes[..2].iter().for_each(MemoryNode::flush);
                pending::<Result<(), ()>>().await
            }));
            let Err(WithError::Lost(Stopped { value: None, .. })) = lost else {
                panic!("{lost:?}")
            };
        },
        // The mark finds that the keys are gone.
        |world, manager| {
            let lost: Result<_, OnceError<_, ()>> =
                world.sim.block_on(manager.once_per("job", DAY, async |_| {
                    world.nodes[..2].iter().for_each(MemoryNode::flush);
                    Ok(7)
                }));
            let Err(WithError::Lost(Stopped { reason, value: Some(Ok(7)) })) = lost else {
                panic!("{lost:?}")
            };
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

#[test]
fn o2_after_a_crash_the_ttl_passes_and_then_the_period_is_run() {
    let world = World::complete(3);
    let (manager, machine) = machine(&world, 0);
    machine.client.spawn(Box::pin(async move {
        let body = async |_| pending::<Result<(), Infallible>>().await;
        drop(manager.once_per("job", DAY, body).await);
    }));
    world.sim.advance(30 * SECOND);
    assert!(!later_calls_run(&world, DAY), "it is being run");
    machine.client.kill();
    world.sim.advance(SECOND);
    assert!(!later_calls_run(&world, DAY), "the nodes still have the lock");
    world.sim.advance(9 * SECOND);
    assert!(later_calls_run(&world, DAY));
}

/// The same by hand, with a wait: the waiter takes over after a crash, and gives up while the mark stays.
#[test]
fn o2_a_waiter_takes_over_after_a_crash_and_ends_as_done_while_the_mark_stays() {
    for crashes in [true, false] {
        let world = World::complete(3);
        let (first, second) = (world.manager(), world.manager());
        let guard = world.sim.block_on(first.lock("job@7")).unwrap();
        let waits = second.lock("job@7").timeout(MINUTE);
        let ends = async {
            world.sim.sleep(SECOND).await;
            if crashes { forget(guard) } else { guard.keep(DAY).await.unwrap() }
        };
        let (waited, ()) = world.sim.block_on(join(waits.into_future(), ends));
        match waited {
            Ok(_) => assert!(crashes),
            Err(error) => assert!(error.is_held() && !crashes, "{error}"),
        }
    }
}

/// At most once, even if it crashed: the mark comes first.
#[test]
fn o2_a_mark_that_is_set_before_the_work_survives_a_crash() {
    let world = World::complete(3);
    let guard = world.sim.block_on(world.manager().lock("job@7")).unwrap();
    world.sim.block_on(guard.keep(DAY)).unwrap();
    world.sim.advance(DAY - SECOND);
    assert!(world.sim.block_on(world.manager().lock("job@7").no_wait()).unwrap_err().is_held());
}

#[test]
fn o3_a_crash_between_the_work_and_the_mark_runs_the_work_again() {
    let (world, runs) = (World::complete(3), Runs::default());
    let (manager, machine) = machine(&world, 0);
    let (done, client) = (runs.clone(), machine.client.clone());
    machine.client.spawn(Box::pin(async move {
        let body = async |lease: Lease| {
            let run = (Duration::ZERO, Duration::ZERO, true);
            done.0.lock().unwrap().entry(lease.keys()[0].to_string()).or_default().push(run);
            client.kill();
            pending::<Result<(), Infallible>>().await
        };
        drop(manager.once_per("job", DAY, body).await);
    }));
    world.sim.advance(11 * SECOND);
    assert_eq!(runs.count(), 1);
    assert!(later_calls_run(&world, DAY), "without a mark it is not known");
}

/// The value is there, so it is returned. The nodes keep the lock for its ttl.
#[test]
fn o3_a_mark_that_no_quorum_sets_leaves_the_lock_to_its_ttl() {
    let told = told(|| {
        let world = World::complete(3);
        let (manager, nodes) = (world.manager(), world.nodes.clone());
        let done = world.sim.block_on(manager.once_per("job", DAY, async |_| {
            nodes[..2].iter().for_each(|node| node.inject(Fault::Down));
            Ok::<_, ()>(7)
        }));
        assert_eq!(done.unwrap(), Some(Ok(7)));
        world.heal();
        world.catch_up();
        assert!(!later_calls_run(&world, DAY), "the nodes still have the lock");
        world.sim.advance(10 * SECOND);
        assert!(later_calls_run(&world, DAY));
    });
    assert_eq!(of("not kept", &told).len(), 1);
}

#[test]
fn o4_a_period_is_named_by_the_wall_clock_of_each_machine() {
    let world = World::complete(3);
    let runs = |ahead: i64| {
        let (manager, machine) = machine(&world, ahead);
        let name = format!("job@{}", machine.unix_micros() / 86_400_000_000);
        let ran = manager.once_per("job", DAY, async |lease| {
            assert_eq!(lease.keys()[0].to_string(), name);
            Ok::<_, ()>(())
        });
        world.sim.block_on(ran).unwrap().is_some()
    };
    let day = 24 * 60 * 60;
    // The world begins at midnight.
    for (ahead, expected) in [
        (0, true),
        (day - 1, false),
        (-1, true),
        (-day, false),
        (day, true),
        (2 * day - 1, false),
        (-day - 1, true),
    ] {
        assert_eq!(runs(ahead), expected, "{ahead} s ahead");
    }
    // At the beginning of the Unix clock, and of another length.
    assert!(runs(-1_000 * 365 * day));
}

#[test]
fn o5_nodes_that_lose_their_data_forget_the_mark() {
    for (lost, guard, expected) in
        [(1, false, false), (2, false, true), (1, true, false), (2, true, true)]
    {
        let world = World::complete(3);
        let builder = || match guard {
            true => world.builder().restart_guard(10 * SECOND),
            false => world.builder(),
        };
        let manager = builder().build().unwrap();
        // A new cluster is quarantined at first.
        let _ = world.sim.block_on(manager.lock("new").no_wait());
        world.sim.advance(20 * SECOND);
        let run = async || manager.once_per("job", DAY, async |_| Ok::<_, ()>(())).await;
        assert!(world.sim.block_on(run()).unwrap().is_some());
        world.nodes[..lost].iter().for_each(MemoryNode::restart);
        if guard && lost == 2 {
            let refused = world.sim.block_on(run());
            assert!(matches!(refused, Err(WithError::Lock(LockError::NoQuorum(_)))), "{refused:?}");
        }
        // The guard does not cover a mark, which outlives its `max_ttl`.
        world.sim.advance(20 * SECOND);
        let ran = world.sim.block_on(run()).unwrap().is_some();
        assert_eq!(ran, expected, "{lost} nodes, guard: {guard}");
    }
}

#[test]
fn o6_a_period_under_a_second_or_over_a_year_is_refused() {
    let world = World::new(3);
    let manager = world.manager();
    let year = 365 * DAY;
    let tick = Duration::from_nanos(1);
    for (period, is_valid) in [
        (Duration::ZERO, false),
        (SECOND - tick, false),
        (SECOND, true),
        (year, true),
        (year + tick, false),
        (Duration::MAX, false),
    ] {
        let before = world.log.calls().len();
        let ran = world.sim.block_on(manager.once_per("job", period, async |_| Ok::<_, ()>(())));
        match ran {
            Ok(ran) => assert!(is_valid && ran.is_some(), "{period:?}"),
            Err(WithError::Lock(error @ LockError::Invalid(InvalidRequest::Period { .. }))) => {
                assert!(!is_valid && error.is_permanent(), "{period:?}: {error}");
                assert_eq!(world.log.calls().len(), before, "nothing was sent");
            }
            Err(error) => panic!("{error}"),
        }
    }
    let ran = world.sim.block_on(manager.once_per("", SECOND, async |_| Ok::<_, ()>(())));
    assert!(matches!(ran, Err(WithError::Lock(LockError::Invalid(_)))), "{ran:?}");
}

/// An error of the nodes is no *done*.
#[test]
fn o1_without_a_quorum_nothing_is_run_and_it_is_an_error() {
    let world = World::new(3);
    let manager = world.manager();
    world.inject(..2, Fault::Hung);
    let ran = manager.once_per("job", DAY, async |_| -> Result<(), ()> { panic!("it runs") });
    let ran = world.sim.block_on(ran);
    assert!(matches!(ran, Err(WithError::Lock(LockError::NoQuorum(_)))), "{ran:?}");
}
