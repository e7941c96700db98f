//! E1–E6: processes that lead whenever they can.

use std::collections::HashSet;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join;
use quorate_core::runtime::BoxFuture;
use quorate_core::{Lease, LockError, LockManager};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule};

use crate::telling::{Told, of, told};
use crate::waiting::processes::{Process, REFRESH, ROUND_TRIP, Scene};
use crate::world::{Client, HOUR, MS, SECOND, World, failing, spawned};

mod terms;

use terms::{Terms, two_candidates};

const TTL: Duration = Duration::from_secs(10);

fn cut_off(scene: &Scene, process: &Process) {
    scene.add_rule(.., Rule::new(Effect::DropRequest).client(&process.client));
}

fn fail_for_20_s(scene: &Scene, fault: Fault) {
    scene.inject(.., fault);
    scene.advance(20 * SECOND);
    scene.heal();
}

/// Rule E4.
#[test]
fn e1_two_bodies_never_run_at_once_however_a_term_ends() {
    type End = fn(&Scene, &Process);
    // The release and its push, a look since the lock was renewed, an acquire.
    let release = 3 * ROUND_TRIP;
    // How the term of the leader ends, and how long it takes until the other one leads at most.
    let ends: [(&str, End, Duration); 6] = [
        ("its process is stopped", |_, leader| leader.client.pause(30 * SECOND), TTL + SECOND),
        ("its process is killed", |_, leader| leader.client.kill(), TTL + SECOND),
        ("it is cut off", cut_off, TTL + SECOND),
        (
            "its manager is closed",
            |_, leader| {
                let locks = leader.locks.clone();
                leader.spawn(async move { assert!(locks.close(SECOND).await.is_clean()) });
            },
            release,
        ),
        // Both learn of it, and both wait for the nodes.
        ("all nodes hang", |scene, _| fail_for_20_s(scene, Fault::Hung), 36 * SECOND),
        ("all nodes lose their data", |scene, _| fail_for_20_s(scene, Fault::Dead), 36 * SECOND),
    ];
    for (name, end, most) in ends {
        let (scene, terms, [first, second]) = two_candidates();
        let at = scene.sim.elapsed();
        end(&scene, &first);
        if name.starts_with("its process") {
            terms.end(0, &scene.sim);
        }
        scene.advance(60 * SECOND);
        let after = terms.all()[1];
        let waited = after.from - at;
        assert!(waited <= most, "{name}: after {waited:?}");
        // E4: a process that lost its lease leads again when the other one has gone.
        let leader = if after.process == first.client.id() { &first } else { &second };
        leader.client.kill();
        terms.end(terms.all().len() - 1, &scene.sim);
        scene.nodes.iter().for_each(MemoryNode::clear_rules);
        scene.advance(60 * SECOND);
        let again = terms.all().len() > 2;
        let is_gone = name.contains("killed") || name.contains("closed");
        assert_eq!(again, !is_gone, "{name}: {:?}", terms.all());
    }
}

/// A hold limit ends a term. The same process may have the next one.
#[test]
fn e4_a_leader_whose_lease_reaches_its_hold_limit_competes_again() {
    let (scene, terms) = (Scene::new(3), Terms::default());
    let processes = [scene.process(), scene.process()];
    for process in &processes {
        terms.lead(&scene, process, process.locks.lock("r").fenced().hold_limit(5 * SECOND));
    }
    scene.advance(60 * SECOND);
    assert_eq!(terms.all().len(), 12, "{:?}", terms.all());
}

/// Keys that were deleted are found at the next renewal. Nothing else waits for the lock.
#[test]
fn e4_after_a_loss_it_competes_again_at_once() {
    let (scene, terms) = (Scene::new(3), Terms::default());
    let process = scene.process();
    terms.lead(&scene, &process, process.locks.lock("r").fenced());
    for losses in 1..20 {
        scene.advance(5 * SECOND);
        scene.nodes[..2].iter().for_each(|node| node.expire("r"));
        scene.advance(4 * SECOND);
        let terms = terms.all();
        let [.., last, next] = terms[..] else { panic!("{terms:?}") };
        assert_eq!(terms.len(), losses + 1, "{terms:?}");
        assert!(next.from - last.until.unwrap() <= 2 * ROUND_TRIP, "{terms:?}");
    }
}

/// The third term knows nothing of the first two: neither their leases, nor how long the pauses had become.
#[test]
fn e2_no_state_survives_a_term() {
    let told = told(|| {
        let (scene, leases) = (Scene::new(3), Arc::<Mutex<Vec<Lease>>>::default());
        let (process, seen) = (scene.process(), Arc::clone(&leases));
        let request = process.locks.lock("r").fenced();
        process.spawn(async move {
            let led = request.lead(async |lease| {
                seen.lock().unwrap().push(lease);
                pending::<()>().await
            });
            drop(led.await);
        });
        for terms in 1..=3 {
            scene.advance(SECOND);
            let leases = leases.lock().unwrap().clone();
            assert_eq!(leases.len(), terms);
            assert_eq!(leases.iter().position(Lease::is_valid), Some(terms - 1));
            assert!(leases.is_sorted_by_key(Lease::fencing_token));
            scene.inject(.., Fault::Dead);
            scene.advance(60 * SECOND);
            scene.heal();
            scene.advance(31 * SECOND);
        }
    });
    let pauses = pauses(&told);
    let begins = pauses.iter().filter(|pause| **pause <= SECOND).count();
    assert_eq!(begins, 3, "{pauses:?}");
}

/// The pauses of the events, in order.
fn pauses(told: &[Told]) -> Vec<Duration> {
    let pause = |told: &Told| {
        let number = told.field("pause").trim_end_matches(['m', 's']).parse::<f64>().unwrap();
        SECOND.mul_f64(number / if told.field("pause").ends_with("ms") { 1e3 } else { 1.0 })
    };
    of("not leading", told).iter().map(pause).collect()
}

#[test]
fn e3_an_error_of_acquiring_never_runs_the_body() {
    for (fault, is_permanent) in [
        (failing("WRONGPASS invalid username-password pair"), true),
        (failing("LOADING"), false),
        (Fault::Hung, false),
        (Fault::Dead, false),
    ] {
        let world = World::complete(3);
        world.inject(..2, fault.clone());
        let (manager, runs) = (world.manager(), AtomicU32::new(0));
        let leading = manager.lead("r", async |_| runs.fetch_add(1, Ordering::Relaxed));
        let heals = async {
            world.sim.sleep(HOUR).await;
            assert_eq!(runs.load(Ordering::Relaxed), 0, "{fault:?}");
            world.heal();
        };
        let (led, ()) = world.run(join(leading, heals));
        match led {
            Ok(_) => assert!(!is_permanent && runs.load(Ordering::Relaxed) == 1),
            Err(error) => assert!(is_permanent && error.is_permanent(), "{error}"),
        }
        // An hour without a quorum costs a round every half a minute or so.
        let rounds = world.log.tokens().into_iter().collect::<HashSet<_>>().len();
        assert!(rounds <= 3600 / 15 + 6, "{fault:?}: {rounds} rounds");
    }
}

#[test]
fn e3_no_request_that_is_invalid_and_no_closed_manager_runs_the_body() {
    let (world, manager) = World::new(3).and_manager();
    let runs = async |_| -> () { panic!("it runs") };
    let led = world.run(manager.lead("", runs));
    assert!(matches!(led, Err(LockError::Invalid(_))), "{led:?}");
    let _ = world.run(manager.close(SECOND));
    let led = world.run(manager.lead("r", runs));
    assert!(matches!(led, Ok(None)), "{led:?}");
}

/// A password that is being changed must not end leading everywhere.
#[test]
fn e3_after_the_first_term_every_error_is_retried_with_a_pause_and_an_event() {
    for reply in ["WRONGPASS invalid username-password pair", "LOADING", "READONLY"] {
        let told = told(|| {
            let (scene, terms) = (Scene::new(3), Terms::default());
            let process = scene.process();
            terms.lead(&scene, &process, process.locks.lock("r").fenced());
            scene.advance(SECOND);
            scene.inject(.., failing(reply));
            scene.advance(120 * SECOND);
            assert_eq!(terms.all().len(), 1);
            assert!(terms.all()[0].until.is_some());
            scene.heal();
            scene.advance(30 * SECOND + REFRESH);
            assert_eq!(terms.all().len(), 2, "{reply}");
        });
        let pauses = pauses(&told);
        assert!(pauses.len() >= 6, "{reply}: {pauses:?}");
        for (pause, most) in pauses.iter().zip([1, 2, 4, 8, 16, 30, 30, 30, 30, 30]) {
            let most = most * SECOND;
            assert!((most / 2..=most).contains(pause), "{reply}: {pauses:?}");
        }
    }
}

/// A candidate that waits behind the leader leads three round trips after the leader's body has returned: the release and
/// its push, a look since the lock was renewed, and an acquire.
#[test]
fn e5_a_body_that_returns_resigns() {
    let (scene, [first, second]) = Scene::new(3).and_processes();
    let (sim, locks) = (scene.sim.clone(), first.locks.clone());
    let first = spawned(&first.client, async move {
        let led = locks.lead("r", async |_| {
            sim.sleep(60 * SECOND).await;
            sim.elapsed()
        });
        let ended = led.await.unwrap().unwrap();
        assert!(sim.elapsed() - ended <= ROUND_TRIP, "the value is not delayed");
        ended
    });
    let (sim, locks) = (scene.sim.clone(), second.locks.clone());
    let led = async move { locks.lead("r", async |_| sim.elapsed()).await.unwrap() };
    let second = spawned(&second.client, led);
    scene.advance(70 * SECOND);
    let (ended, begun) = (*first.lock().unwrap(), second.lock().unwrap().flatten());
    let waited = begun.unwrap() - ended.unwrap();
    assert!(waited <= 3 * ROUND_TRIP, "{waited:?}");
    assert!(scene.keys().is_empty(), "{:?}", scene.keys());
}

#[test]
fn e5_a_body_that_panics_and_a_future_that_is_dropped_resign() {
    let (world, manager) = World::new(3).and_manager();
    let panics = manager.lead("r", async |_| -> () { panic!("on purpose") });
    catch_unwind(AssertUnwindSafe(|| world.run(panics))).unwrap_err();
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
    let leading = manager.lead("r", async |_| pending::<()>().await);
    assert!(world.sim.block_on_for(leading, 3).is_none());
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

/// The body has returned, so it is not called anew.
#[test]
fn e5_a_body_that_returns_after_its_lease_is_over_all_the_same() {
    let world = World::new(3);
    let client = Client::new(&world.sim);
    let manager = world.builder().runtime(client.clone()).build().unwrap();
    let led = manager.lead("r", async |_| {
        client.pause(20 * SECOND);
        7
    });
    assert_eq!(world.run(led).unwrap(), Some(7));
}

/// It leads, waits behind another leader, or waits for the nodes. A body that does not listen is dropped.
#[test]
fn e3_a_drain_and_a_close_end_leading_without_an_error_wherever_it_is() {
    let held = |world: &World| world.occupy(..);
    let dead = |world: &World| world.inject(.., Fault::Dead);
    for (prepare, waits) in [((|_: &World| {}) as fn(&World), false), (held, true), (dead, true)] {
        for drains in [true, false] {
            let (world, manager) = World::complete(3).and_manager();
            prepare(&world);
            let leading = manager.lead("r", async |_| pending::<()>().await);
            let leading = leading.map(|led| (led, world.sim.elapsed()));
            let closes = async {
                world.sim.sleep(20 * SECOND).await;
                let _ = match drains {
                    true => manager.drain(SECOND).await,
                    false => manager.close(SECOND).await,
                };
                world.sim.elapsed()
            };
            let ((led, at), closed) = world.run(join(leading, closes));
            assert!(matches!(led, Ok(None)), "{led:?}");
            assert!(at <= closed && (!waits || at == 20 * SECOND), "it ends with it: {at:?}");
        }
    }
}

/// A service that leads in a method of its own, as users write it, in each form. The method is spawned: it is compiled.
#[derive(Clone)]
struct Service {
    locks: LockManager,
    bodies: Arc<AtomicU32>,
}

impl Service {
    async fn work(&self, lease: Lease) {
        assert!(lease.is_valid());
        self.bodies.fetch_add(1, Ordering::Relaxed);
    }

    async fn leads_in_each_form(&self) {
        let locks = &self.locks;
        locks.lead("r", async move |lease| self.work(lease).await).await.unwrap();
        locks.lead("r", async |lease| self.work(lease).await).await.unwrap();
        locks.lock("r").lead(|lease| self.work(lease)).await.unwrap();
        let fenced = locks.lock("r").with_token();
        fenced.lead(async |lease, _number| self.work(lease).await).await.unwrap();
        locks.with("r", async |lease| self.work(lease).await).await.unwrap();
        let once = async move |lease| {
            self.work(lease).await;
            Ok::<_, ()>(())
        };
        locks.once_per("r", HOUR, once).await.unwrap();
    }
}

#[test]
fn a_service_that_leads_in_a_method_can_be_spawned() {
    let (scene, [process]) = Scene::new(3).and_processes();
    let service = Service { locks: process.locks.clone(), bodies: Arc::default() };
    let of = service.clone();
    process.spawn(async move {
        of.leads_in_each_form().await;
        // Of a service that a task owns, and with a boxed body.
        let locks = of.locks.clone();
        locks.lead("r", async |lease| of.work(lease).await).await.unwrap();
        type Boxed = Box<dyn FnMut(Lease) -> BoxFuture<'static, ()> + Send>;
        let boxed: Boxed = Box::new(move |lease| {
            let of = of.clone();
            Box::pin(async move { of.work(lease).await })
        });
        locks.lead("r", boxed).await.unwrap();
    });
    scene.advance(SECOND);
    assert_eq!(service.bodies.load(Ordering::Relaxed), 8);
}

/// LeaseDuration, RenewDeadline and RetryPeriod of Kubernetes: the ttl, the validity, the renewal interval.
#[test]
fn e6_the_times_of_a_leader_are_those_of_its_lease() {
    let ttl = 15 * SECOND;
    let (scene, terms) = (Scene::new(3), Terms::default());
    let process = |()| scene.process_with(|it| it.ttl(ttl).renew_interval(2 * SECOND));
    let [first, second] = [(); 2].map(process);
    for process in [&first, &second] {
        terms.lead(&scene, process, process.locks.lock("r").fenced());
        scene.advance(SECOND);
    }
    let before = scene.count(Operation::Extend);
    scene.advance(60 * SECOND);
    let renewals = (scene.count(Operation::Extend) - before) / 3;
    assert!((30..=44).contains(&renewals), "every 1.4 to 2 s: {renewals}");
    let at = scene.sim.elapsed();
    cut_off(&scene, &first);
    scene.advance(60 * SECOND);
    let [last, next] = terms.all()[..] else { panic!("{:?}", terms.all()) };
    let validity = ttl - ttl / 100 - 2 * MS - 500 * MS;
    let ended = last.until.unwrap() - at;
    assert!((validity - 2 * SECOND..=validity).contains(&ended), "{ended:?}");
    let led = next.from - at;
    assert!((ttl - 2 * SECOND..=ttl + SECOND).contains(&led), "{led:?}");
}
