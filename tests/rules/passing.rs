//! Passing on: a released lease goes to the next task of the same manager, without a round trip.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_core::backend::Capabilities;
use quorate_core::error::ReleaseError;
use quorate_core::{LockGuard, LockRequest, Lost, Runtime, Waiting};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule};

use crate::waiting::processes::{Process, Scene};
use crate::world::{MS, SECOND};

/// A manager of which one task holds the lock, and another waits for it.
struct Pair {
    scene: Scene,
    process: Process,
    first: LockGuard,
    next: Waiter,
}

/// A request that is polled in the background.
#[derive(Clone, Default)]
struct Waiter(Arc<Mutex<Option<LockGuard>>>);

impl Waiter {
    fn spawn(process: &Process, request: LockRequest) -> Self {
        let waiter = Self::default();
        let slot = Arc::clone(&waiter.0);
        process.spawn(async move {
            let guard = request.await;
            *slot.lock().unwrap() = guard.ok();
        });
        waiter
    }

    fn take(&self) -> Option<LockGuard> {
        self.0.lock().unwrap().take()
    }
}

impl Pair {
    fn new() -> Self {
        Self::on(Scene::new(5), Scene::process, |first| first, |next| next)
    }

    fn on(
        scene: Scene,
        process: impl FnOnce(&Scene) -> Process,
        one: impl FnOnce(LockRequest) -> LockRequest,
        other: impl FnOnce(LockRequest) -> LockRequest,
    ) -> Self {
        let process = process(&scene);
        let first = scene.sim.block_on(one(process.lock("r"))).unwrap();
        scene.sim.advance(MS);
        let next = Waiter::spawn(&process, other(process.lock("r")));
        scene.sim.advance(MS);
        scene.forget_sent();
        Self { scene, process, first, next }
    }

    /// Whether the release was passed on: the next task had the lock at once, and nothing was acquired.
    fn passes(self) -> bool {
        let Self { scene, first, next, .. } = self;
        drop(first);
        scene.sim.advance(Duration::ZERO);
        let at_once = next.take();
        scene.sim.advance(SECOND);
        let guard = at_once.or_else(|| next.take()).expect("its turn has come");
        assert!(guard.is_valid());
        let passed = scene.count(Operation::Acquire) == 0;
        drop(guard);
        scene.sim.settle();
        assert!(scene.keys().is_empty(), "{:?}", scene.keys());
        passed
    }
}

#[test]
fn a_released_lease_goes_to_the_next_task_of_the_manager() {
    assert!(Pair::new().passes());
}

#[test]
fn a_lease_is_passed_on_in_the_order_in_which_the_tasks_came() {
    let scene = Scene::new(5);
    let process = scene.process();
    let held = scene.sim.block_on(process.lock("r")).unwrap();
    let served = Arc::<Mutex<Vec<u32>>>::default();
    for number in 0..20 {
        let (ours, served) = (process.clone(), Arc::clone(&served));
        process.spawn(async move {
            let guard = ours.lock("r").await.unwrap();
            served.lock().unwrap().push(number);
            ours.client.sleep(10 * MS).await;
            guard.release().await.unwrap();
        });
        scene.sim.advance(MS);
    }
    scene.forget_sent();
    scene.sim.advance(SECOND);
    assert!(scene.sent().is_empty(), "a task that waits for a guard of its manager sends nothing");
    scene.sim.block_on(held.release()).unwrap();
    scene.sim.advance(SECOND);
    assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
    // One acquire for each nine holds.
    assert_eq!(scene.count(Operation::Acquire), 5 * 2, "of 21 holds");
    scene.sim.settle();
    assert!(scene.keys().is_empty());
}

#[test]
fn a_lease_is_passed_on_eight_times_and_then_released() {
    let scene = Scene::new(5);
    let process = scene.process();
    let holds = Arc::<Mutex<Vec<u64>>>::default();
    for _ in 0..3 {
        let (ours, holds) = (process.clone(), Arc::clone(&holds));
        let sent = scene.nodes[0].clone();
        process.spawn(async move {
            for _ in 0..12 {
                let guard = ours.lock("r").await.unwrap();
                // The token in the key distinguishes the acquires.
                holds.lock().unwrap().push(token_of(&sent));
                ours.client.sleep(MS).await;
                drop(guard);
            }
        });
    }
    scene.sim.advance(SECOND);
    let holds = holds.lock().unwrap();
    let runs: Vec<usize> = holds.chunk_by(|one, next| one == next).map(<[_]>::len).collect();
    assert_eq!(runs, [9, 9, 9, 9]);
}

fn token_of(node: &MemoryNode) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    format!("{:?}", node.get("r")).hash(&mut hasher);
    hasher.finish()
}

#[test]
fn a_lease_with_another_ttl_is_not_passed_on() {
    let pair = Pair::on(
        Scene::new(5),
        Scene::process,
        |first| first.ttl(10 * SECOND),
        |next| next.ttl(11 * SECOND),
    );
    assert!(!pair.passes());
}

#[test]
fn a_fenced_lease_is_not_passed_on_and_none_is_passed_on_to_a_fenced_request() {
    for (one, other) in [(true, false), (false, true), (true, true)] {
        let fenced = |is_fenced: bool| {
            move |request: LockRequest| if is_fenced { request.fenced() } else { request }
        };
        let pair = Pair::on(Scene::new(5), Scene::process, fenced(one), fenced(other));
        assert!(!pair.scene_passes_fenced(), "{one}, {other}");
    }
}

impl Pair {
    /// As [`passes`](Self::passes), where fencing numbers are left on the nodes.
    fn scene_passes_fenced(self) -> bool {
        let Self { scene, first, next, .. } = self;
        let before = first.fencing_token();
        drop(first);
        scene.sim.advance(SECOND);
        let guard = next.take().expect("its turn has come");
        if let (Some(before), Some(after)) = (before, guard.fencing_token()) {
            assert!(after > before, "each holder has a token of its own");
        }
        scene.count(Operation::Acquire) == 0
    }
}

#[test]
fn a_lease_of_several_keys_is_not_passed_on() {
    for (one, other) in [(2, 2), (2, 1), (1, 2)] {
        let scene = Scene::new(5);
        let process = scene.process();
        let names =
            |count| process.locks.lock(["r", "s"].into_iter().take(count).collect::<Vec<_>>());
        let first = scene.sim.block_on(names(one)).unwrap();
        scene.sim.advance(MS);
        let next = Waiter::spawn(&process, names(other));
        scene.sim.advance(MS);
        scene.forget_sent();
        assert!(!Pair { scene, process, first, next }.passes(), "{one}, then {other}");
    }
}

#[test]
fn where_no_queue_is_kept_a_lease_is_not_passed_on() {
    type Make = fn(&Scene) -> Process;
    let makes: [(&str, Make); 4] = [
        ("notified", |scene| scene.process_with(|builder| builder.waiting(Waiting::Notified))),
        ("polling", |scene| scene.process_with(|builder| builder.waiting(Waiting::Polling))),
        ("no queue", |scene| scene.process_on(|node| node.without_queue(), |builder| builder)),
        ("nothing", |scene| {
            let all = Capabilities::QUEUE | Capabilities::WATCH | Capabilities::ORDERED;
            scene.process_on(move |node| node.without(all), |builder| builder)
        }),
    ];
    for (story, make) in makes {
        let pair = Pair::on(Scene::new(5), make, |first| first, |next| next);
        assert!(!pair.passes(), "{story}");
    }
}

#[test]
fn a_lease_is_not_passed_on_while_another_process_waits() {
    let Pair { scene, first, next, .. } = Pair::new();
    let other = scene.process();
    let elsewhere = Waiter::spawn(&other, other.lock("r"));
    scene.sim.advance(SECOND);
    // The holder learns of it with an extension, at the latest with its release.
    scene.sim.block_on(first.extend()).unwrap();
    drop(first);
    scene.sim.advance(10 * MS);
    assert!(next.take().is_none(), "the process that waits is first");
    let guard = elsewhere.take().expect("its turn has come");
    drop(guard);
    scene.sim.advance(10 * MS);
    assert!(next.take().is_some());
}

#[test]
fn what_is_not_known_of_other_processes_counts_as_one_that_waits() {
    let scene = Scene::new(5);
    // Which node is the gate is seen while a process waits.
    let (process, other) = (scene.process(), scene.process());
    let held = scene.sim.block_on(process.lock("r")).unwrap();
    let waits = Waiter::spawn(&other, other.lock("r").timeout(SECOND));
    scene.sim.advance(MS * 10);
    let gate = scene.gate("r");
    scene.sim.advance(2 * SECOND);
    assert!(waits.take().is_none());
    drop(held);
    scene.sim.advance(20 * SECOND);
    // The reply of the gate to the acquire is late.
    let late = Effect::Delay { least: 300 * MS, most: 300 * MS };
    scene.nodes[gate].add_rule(Rule::new(late));
    let first = scene.sim.block_on(process.lock("r")).unwrap();
    let next = Waiter::spawn(&process, process.lock("r"));
    scene.sim.advance(MS);
    scene.forget_sent();
    assert!(!Pair { scene, process, first, next }.passes());
}

#[test]
fn a_lease_is_passed_on_while_half_of_its_validity_is_left() {
    // The validity of 10 s is 9.398 s.
    for (held, passes) in [(4_600, true), (4_800, false)] {
        let pair = Pair::new();
        pair.scene.sim.advance(held * MS);
        assert_eq!(pair.passes(), passes, "held for {held} ms");
    }
}

#[test]
fn an_extension_in_the_background_restores_the_validity_of_a_lease_that_is_passed_on() {
    let Pair { scene, process, first, next } = Pair::new();
    let last = Waiter::spawn(&process, process.lock("r"));
    scene.sim.advance(4 * SECOND);
    drop(first);
    scene.sim.advance(10 * MS);
    let guard = next.take().unwrap();
    assert!(guard.remaining() > 9 * SECOND, "{:?}", guard.remaining());
    scene.sim.advance(4 * SECOND);
    drop(guard);
    scene.sim.advance(10 * MS);
    let guard = last.take().unwrap();
    assert!(guard.remaining() > 9 * SECOND, "{:?}", guard.remaining());
    assert_eq!(scene.count(Operation::Acquire), 0);
}

#[test]
fn an_adopted_lease_is_not_passed_on() {
    let scene = Scene::new(5);
    let record = scene.sim.block_on(scene.process().lock("r")).unwrap().detach().unwrap();
    let process = scene.process();
    let first = scene.sim.block_on(process.locks.adopt(&record)).unwrap();
    let next = Waiter::spawn(&process, process.lock("r"));
    scene.sim.advance(MS);
    scene.forget_sent();
    assert!(!Pair { scene, process, first, next }.passes());
}

#[test]
fn each_holder_has_a_lease_of_its_own() {
    let limit = |request: LockRequest| request.hold_limit(2 * SECOND);
    let Pair { scene, first, next, .. } = Pair::on(Scene::new(5), Scene::process, limit, limit);
    let old = first.lease();
    scene.sim.advance(1_500 * MS);
    drop(first);
    scene.sim.advance(MS);
    assert!(!old.is_valid() && old.remaining().is_zero(), "the lease of the passer has ended");
    assert!(matches!(scene.sim.block_on(old.lost()), Lost::Released));
    let guard = next.take().unwrap();
    scene.sim.advance(1_500 * MS);
    assert!(guard.is_valid(), "its hold limit counts from its own guard");
    assert!(matches!(scene.sim.block_on(guard.lost()), Lost::HoldLimit));
}

#[test]
fn the_renewal_of_a_passer_ends_and_the_receiver_renews_its_own() {
    let renewed = |request: LockRequest| request.auto_renew();
    let Pair { scene, first, next, .. } = Pair::on(Scene::new(5), Scene::process, renewed, renewed);
    scene.sim.advance(60 * SECOND);
    drop(first);
    scene.sim.advance(60 * SECOND);
    let guard = next.take().unwrap();
    assert!(guard.is_valid());
    scene.sim.block_on(guard.release()).unwrap();
    scene.sim.settle();
    assert!(scene.keys().is_empty());
}

/// A `release()` of which the result is awaited in the background.
fn released(scene: &Scene, guard: LockGuard) -> Arc<Mutex<Option<Result<(), ReleaseError>>>> {
    let result = Arc::<Mutex<Option<_>>>::default();
    let slot = Arc::clone(&result);
    scene.sim.spawn(Box::pin(async move {
        let released = guard.release().await;
        *slot.lock().unwrap() = Some(released);
    }));
    scene.sim.advance(Duration::ZERO);
    result
}

#[test]
fn a_passers_release_is_confirmed_by_an_extension_after_it() {
    let Pair { scene, first, next, .. } = Pair::new();
    let result = released(&scene, first);
    assert!(result.lock().unwrap().is_none(), "nothing has confirmed it yet");
    let _guard = next.take().unwrap();
    scene.sim.advance(MS);
    assert!(matches!(*result.lock().unwrap(), Some(Ok(()))));
    assert_eq!(scene.count(Operation::Extend), 5);
    assert_eq!(scene.count(Operation::Release), 0);
}

#[test]
fn a_passers_release_is_confirmed_by_the_release_of_the_lock() {
    let Pair { scene, first, next, .. } = Pair::new();
    for node in &scene.nodes {
        node.add_rule(Rule::new(Effect::DropReply).on(Operation::Extend));
    }
    let result = released(&scene, first);
    drop(next.take().unwrap());
    scene.sim.advance(MS);
    assert!(matches!(*result.lock().unwrap(), Some(Ok(()))), "{:?}", result.lock().unwrap());
}

#[test]
fn a_passers_release_is_unconfirmed_when_the_nodes_have_lost_the_key() {
    let Pair { scene, first, next, .. } = Pair::new();
    scene.nodes.iter().for_each(|node| node.expire("r"));
    let result = released(&scene, first);
    let guard = next.take().unwrap();
    scene.sim.advance(10 * MS);
    let result = result.lock().unwrap().take().expect("the extension has failed");
    let Err(error @ ReleaseError::Unconfirmed(_)) = result else { panic!("{result:?}") };
    assert!(!error.is_lost(), "it may have been lost after the pass: {error}");
    assert!(!guard.is_valid(), "the receiver has lost it");
    assert!(matches!(scene.sim.block_on(guard.release()), Err(ReleaseError::Lost(_))));
}

#[test]
fn a_passers_release_is_unconfirmed_when_the_nodes_are_silent() {
    let Pair { scene, first, next, .. } = Pair::new();
    scene.nodes.iter().for_each(|node| node.inject(Fault::Hung));
    let result = released(&scene, first);
    let guard = next.take().unwrap();
    scene.sim.advance(600 * MS);
    let result = result.lock().unwrap().take().expect("the extension has failed");
    assert!(matches!(result, Err(ReleaseError::Unconfirmed(_))), "{result:?}");
    assert!(guard.is_valid(), "a failed extension leaves the lease as it is");
}

#[test]
fn an_extension_that_began_before_the_pass_does_not_confirm_it() {
    let Pair { scene, process, first, next } = Pair::new();
    let last = Waiter::spawn(&process, process.lock("r"));
    scene.sim.advance(MS);
    drop(first);
    scene.sim.advance(Duration::ZERO);
    // The extension of that pass is in flight, and the nodes lose the key behind it.
    let result = released(&scene, next.take().unwrap());
    scene.sim.advance(MS * 3 / 10);
    scene.nodes.iter().for_each(|node| node.expire("r"));
    scene.sim.advance(10 * MS);
    let result = result.lock().unwrap().take().unwrap();
    assert!(matches!(result, Err(ReleaseError::Unconfirmed(_))), "{result:?}");
    drop(last);
}

#[test]
fn a_passers_release_says_lost_only_if_its_own_lease_had_ended() {
    let Pair { scene, first, next, .. } = Pair::new();
    scene.sim.advance(first.remaining());
    let result = scene.sim.block_on(first.release());
    assert!(matches!(result, Err(ReleaseError::Lost(Lost::Expired { .. }))), "{result:?}");
    scene.sim.advance(SECOND);
    assert!(next.take().unwrap().is_valid());
}

#[test]
fn a_detached_lease_confirms_no_passer() {
    let Pair { scene, first, next, .. } = Pair::new();
    let result = released(&scene, first);
    let record = next.take().unwrap().detach().unwrap();
    scene.sim.advance(10 * MS);
    let result = result.lock().unwrap().take().unwrap();
    assert!(matches!(result, Err(ReleaseError::Unconfirmed(_))), "{result:?}");
    assert!(scene.sim.block_on(scene.process().locks.adopt(&record)).is_ok());
}

#[test]
fn a_receiver_that_is_dropped_before_its_poll_gives_the_lease_to_the_next() {
    for others in [0, 1] {
        let scene = Scene::new(5);
        let process = scene.process();
        let first = scene.sim.block_on(process.lock("r")).unwrap();
        scene.sim.advance(MS);
        let mut receiver = Box::pin(process.lock("r").into_future());
        assert!(scene.sim.block_on_for(receiver.as_mut(), 1).is_none());
        let next: Vec<_> =
            (0..others).map(|_| Waiter::spawn(&process, process.lock("r"))).collect();
        scene.sim.advance(MS);
        scene.forget_sent();
        drop(first);
        // It is given the lease, and its future is not polled.
        drop(receiver);
        scene.sim.advance(MS);
        for waiter in &next {
            assert!(waiter.take().unwrap().is_valid());
        }
        assert_eq!(scene.count(Operation::Acquire), 0);
        scene.sim.settle();
        assert!(scene.keys().is_empty(), "{others}: {:?}", scene.keys());
    }
}

#[test]
fn a_receiver_whose_lease_ends_before_its_poll_stays_in_front() {
    let scene = Scene::new(5);
    let process = scene.process();
    let first = scene.sim.block_on(process.lock("r")).unwrap();
    scene.sim.advance(MS);
    let mut receiver = Box::pin(process.lock("r").into_future());
    assert!(scene.sim.block_on_for(receiver.as_mut(), 1).is_none());
    let behind = Waiter::spawn(&process, process.lock("r"));
    scene.sim.advance(MS);
    // Its task is not run for longer than the lease.
    for node in &scene.nodes {
        node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Extend));
    }
    drop(first);
    scene.sim.advance(20 * SECOND);
    assert!(behind.take().is_none(), "it is behind the receiver");
    let guard = scene.sim.block_on(receiver).unwrap();
    assert!(guard.is_valid());
    drop(guard);
    scene.sim.advance(SECOND);
    assert!(behind.take().is_some());
}

#[test]
fn a_receiver_that_is_dropped_at_any_poll_leaves_no_key_and_keeps_nobody_out() {
    for polls in 1..12 {
        let Pair { scene, process, first, next } = Pair::new();
        let mut late = Box::pin(process.lock("r").into_future());
        assert!(scene.sim.block_on_for(late.as_mut(), 1).is_none());
        let last = Waiter::spawn(&process, process.lock("r"));
        drop(first);
        scene.sim.advance(MS);
        drop(next.take());
        drop(scene.sim.block_on_for(late.as_mut(), polls));
        drop(late);
        scene.sim.advance(SECOND);
        assert!(last.take().is_some(), "after {polls} polls");
        scene.sim.settle();
        assert!(scene.keys().is_empty(), "after {polls} polls: {:?}", scene.keys());
    }
}

#[test]
fn a_lease_that_was_extended_to_another_ttl_is_not_passed_on() {
    let pair = Pair::new();
    pair.scene.sim.block_on(pair.first.extend_to(60 * SECOND)).unwrap();
    assert!(!pair.passes());
}

#[test]
fn a_lock_whose_hold_limit_has_passed_is_not_passed_on() {
    let limited = |request: LockRequest| request.hold_limit(2 * SECOND);
    let pair = Pair::on(Scene::new(5), Scene::process, limited, |next| next);
    pair.scene.sim.advance(3 * SECOND);
    assert!(!pair.passes());
}

/// The process stands still from before the limit until after the drop.
#[test]
fn a_guard_that_is_dropped_after_its_hold_limit_passes_nothing_on() {
    let limited = |request: LockRequest| request.hold_limit(2 * SECOND);
    let pair = Pair::on(Scene::new(5), Scene::process, limited, |next| next);
    pair.process.client.pause(2_500 * MS);
    pair.scene.sim.advance(2_200 * MS);
    assert!(!pair.passes());
}
