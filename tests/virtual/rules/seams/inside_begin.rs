//! Backends that answer, drop, look or panic inside `begin`: the attempt takes all of it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Instant;

use futures_util::FutureExt;
use quorate_core::backend::{
    BackendErrorKind, Call, CallResult, Capabilities, NotSent, Operation, ask,
};
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{BackendError, ExtendError, Lease, LockBackend, LockManager, Runtime};
use quorate_memory::{MemoryNode, Sim};

use crate::backends::{Begins, Odd, begin};
use crate::world::{MS, SECOND, World, failure_of};

/// What the node answers, at once.
fn result(node: &MemoryNode, call: &Call, runtime: &dyn Runtime) -> CallResult {
    let asked = ask(call.operation().clone(), runtime.now(), |call| begin(node, call, runtime));
    asked.now_or_never().expect("without a delay it is answered inside")
}

/// A manager of three nodes, of which the first ones are odd.
pub(super) fn manager<B>(world: &World, odd: usize, oddly: B) -> LockManager
where
    B: Fn(&MemoryNode, Call, &dyn Runtime) -> Result<(), NotSent> + Send + Sync + 'static,
{
    let oddly = Arc::new(oddly);
    world.over(world.nodes.iter().enumerate().map(|(place, node)| {
        let oddly = Arc::clone(&oddly);
        let begins = Begins::new(node, move |node, call, runtime| match place < odd {
            true => oddly(node, call, runtime),
            false => begin(node, call, runtime),
        });
        begins.named("").able(Capabilities::ORDERED)
    }))
}

/// Locks, extends and releases, also by a drop and by a lost round.
fn use_it(world: &World, manager: &LockManager) {
    let guard = world.run(manager.lock(["r", "s"])).unwrap();
    world.run(guard.extend()).unwrap();
    assert!(world.try_lock(manager).unwrap_err().is_held());
    world.run(guard.release()).unwrap();
    drop(world.lock(manager));
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

/// Also from a destructor, and from another thread.
#[test]
fn a_backend_may_answer_inside_begin() {
    struct AnswersLast(Option<(Call, CallResult)>);

    impl Drop for AnswersLast {
        fn drop(&mut self) {
            let (call, result) = self.0.take().unwrap();
            call.answer(result);
        }
    }

    let ways: [fn(Call, CallResult); 4] = [
        Call::answer,
        |call, result| {
            let now = call.now().expect("the clock of its sender");
            call.answer_at(result, now);
        },
        |call, result| drop(AnswersLast(Some((call, result)))),
        |call, result| thread::spawn(move || call.answer(result)).join().unwrap(),
    ];
    for answer in ways {
        let world = World::new(3);
        let manager = manager(&world, 3, move |node, call, runtime| {
            let result = result(node, &call, runtime);
            answer(call, result);
            Ok(())
        });
        use_it(&world, &manager);
    }
}

/// A runtime that notes whether one of its tasks is woken while a backend answers.
#[derive(Clone, Debug)]
struct Notes {
    sim: Sim,
    answers: Arc<AtomicBool>,
    is_woken: Arc<AtomicBool>,
}

struct Noted(Notes, Waker);

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        let Self(notes, task) = &*self;
        notes.is_woken.fetch_or(notes.answers.load(Ordering::Relaxed), Ordering::Relaxed);
        task.wake_by_ref();
    }
}

impl Runtime for Notes {
    fn now(&self) -> Instant {
        self.sim.now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.sim.sleep_until(deadline)
    }

    fn spawn(&self, mut task: BoxFuture<'static, ()>) {
        let notes = self.clone();
        self.sim.spawn(Box::pin(poll_fn(move |context| {
            let noted = Noted(notes.clone(), context.waker().clone());
            task.poll_unpin(&mut Context::from_waker(&Waker::from(Arc::new(noted))))
        })));
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.sim.fill_random(bytes)
    }
}

/// The mutex of the attempt is held there, and to wake a task is foreign code. Here the timekeeper has to notify a
/// lock whose release failed that the node is back.
#[test]
fn an_answer_inside_begin_wakes_no_task_there() {
    let world = World::in_order(3);
    let [answers, is_woken, is_down]: [Arc<AtomicBool>; 3] = Default::default();
    let notes = Notes { sim: world.sim.clone(), answers, is_woken };
    let nodes = world.nodes.iter().enumerate().map(|(at, node)| {
        let (answers, is_down) = (Arc::clone(&notes.answers), Arc::clone(&is_down));
        Begins::new(node, move |node, call, runtime| {
            let is_lost = at == 0 && is_down.load(Ordering::Relaxed);
            let lost = || Err(BackendError::new(BackendErrorKind::Connection, "down"));
            let result = if is_lost { lost() } else { result(node, &call, runtime) };
            answers.store(true, Ordering::Relaxed);
            call.answer(result);
            answers.store(false, Ordering::Relaxed);
            Ok(())
        })
    });
    let manager = LockManager::builder(nodes).runtime(notes.clone()).build().unwrap();
    let guard = world.lock(&manager);
    is_down.store(true, Ordering::Relaxed);
    world.run(guard.release()).unwrap();
    world.catch_up();
    is_down.store(false, Ordering::Relaxed);
    assert_eq!(world.keys_left(), 1);
    drop(world.run(manager.lock("other")).unwrap());
    world.catch_up();
    assert_eq!(world.keys_left(), 0, "it was told");
    assert!(!notes.is_woken.load(Ordering::Relaxed));
}

/// C6: the node may have executed it, so it is released there, and asked again until it answers.
#[test]
fn a_call_that_a_backend_drops_is_lost() {
    let dropped: Arc<Mutex<usize>> = Arc::default();
    let (seen, world) = (Arc::clone(&dropped), World::new(3));
    let two = manager(&world, 2, move |node, call, runtime| {
        // It is executed, and its first release is not.
        let mut seen = seen.lock().unwrap();
        match call.operation() {
            Operation::Acquire(..) => drop(result(node, &call, runtime)),
            Operation::Release(..) if *seen == 0 => *seen += 1,
            _ => {
                drop(seen);
                let result = result(node, &call, runtime);
                call.answer(result);
            }
        }
        Ok(())
    });
    let lost = failure_of(world.try_lock(&two)).to_string();
    assert_eq!(lost.matches("the backend dropped the call").count(), 2, "{lost}");
    world.advance(500 * MS);
    assert_eq!(world.keys_left(), 0, "asked again after a node timeout");
    assert_eq!(*dropped.lock().unwrap(), 1);
}

/// Under the lock of the attempt whose lease it is.
#[test]
fn a_backend_may_look_at_the_lease() {
    let world = World::new(3);
    let lease: Arc<Mutex<Option<Lease>>> = Arc::default();
    let looks: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (looked_at, seen) = (Arc::clone(&lease), Arc::clone(&looks));
    let manager = manager(&world, 3, move |node, call, runtime| {
        if let Some(lease) = &*looked_at.lock().unwrap() {
            seen.lock().unwrap().push(lease.is_valid());
            assert_eq!(lease.is_valid(), !lease.remaining().is_zero());
            assert!(lease.valid_until() >= runtime.now() || !lease.is_valid());
            assert_eq!((lease.keys().len(), lease.fencing_token()), (1, None));
            assert!(format!("{lease:?}").contains("remaining"));
            assert_eq!(call.now(), Some(runtime.now()));
        }
        let result = result(node, &call, runtime);
        call.answer(result);
        Ok(())
    });
    let looks = || std::mem::take(&mut *looks.lock().unwrap());
    let guard = world.lock(&manager);
    *lease.lock().unwrap() = Some(guard.lease());
    world.run(guard.extend()).unwrap();
    assert_eq!(looks(), [true; 3]);
    world.run(guard.release()).unwrap();
    assert_eq!(looks(), [false; 3], "it has ended when its releases begin");
    *lease.lock().unwrap() = None;
    // It ends by time.
    let guard = world.lock(&manager);
    *lease.lock().unwrap() = Some(guard.lease());
    world.advance(20 * SECOND);
    assert_eq!(looks(), [false; 3]);
    assert_eq!(world.keys_left(), 0);
    *lease.lock().unwrap() = None;
}

/// Rule A1.
#[test]
fn a_backend_that_panics_in_begin_loses_its_call_and_poisons_nothing() {
    for answers in [false, true] {
        let panics: Arc<Mutex<bool>> = Arc::new(Mutex::new(true));
        let (world, on) = (World::new(3), Arc::clone(&panics));
        let begin = move |node: &MemoryNode, call: Call, runtime: &dyn Runtime| {
            let is_on = *on.lock().unwrap();
            if answers || !is_on {
                let result = result(node, &call, runtime);
                call.answer(result);
            }
            assert!(!is_on, "on purpose");
            Ok(())
        };
        let guard = world.lock(&manager(&world, 1, begin.clone()));
        world.run(guard.extend()).unwrap();
        world.run(guard.release()).unwrap();
        let two = manager(&world, 2, begin);
        match world.run(two.lock("s").no_wait()) {
            Ok(guard) => {
                assert!(answers);
                world.run(guard.extend()).unwrap();
            }
            Err(error) => {
                assert!(!answers);
                let text = error.to_string();
                assert_eq!(text.matches("the backend dropped the call").count(), 2, "{text}");
            }
        }
        *panics.lock().unwrap() = false;
        world.advance(SECOND);
        assert_eq!(world.keys_left(), 0);
        use_it(&world, &two);
        let guard = world.lock(&two);
        *panics.lock().unwrap() = true;
        let extended = world.run(guard.extend());
        assert_eq!(matches!(extended, Err(ExtendError::NoQuorum(_))), !answers, "{extended:?}");
        assert!(guard.is_valid(), "H1");
    }
}

/// In a method.
/// Rule A1.
#[test]
fn a_backend_that_panics_fails_alone() {
    for on in ["acquire", "extend", "release"] {
        let world = World::new(3);
        let nodes = world.nodes.iter().zip([on, "never", "never"]);
        let manager = world.over(nodes.map(|(node, on)| {
            Odd::new(node).noting(move |method| assert!(method != on, "on purpose"))
        }));
        let guard = world.run(manager.lock("r")).expect("two are enough");
        world.run(guard.extend()).expect("two are enough");
        drop(guard);
        world.advance(SECOND);
        let left: Vec<usize> = world.nodes.iter().map(|node| node.keys().len()).collect();
        assert_eq!(left, [usize::from(on == "release"), 0, 0], "{on}");
    }
}

/// What a node lacks, or fails at, is said of that node.
#[test]
fn a_backend_that_cannot_look_or_revoke_affects_no_other() {
    let world = World::complete(5);
    let panics = Odd::new(&world.nodes[1]).able(Capabilities::INSPECT | Capabilities::DESCRIBE);
    let panics = panics.noting(|method| {
        assert!(!["inspect", "describe"].contains(&method), "on purpose");
    });
    let mut nodes: Vec<Arc<dyn LockBackend>> =
        vec![Arc::new(Odd::new(&world.nodes[0])), Arc::new(panics)];
    nodes.extend(world.nodes[2..].iter().map(|node| Arc::new(node.clone()) as _));
    let manager = world.over(nodes);
    let _guard = world.lock(&manager);
    assert_eq!(
        world.run(manager.inspect("r")).unwrap().to_string(),
        "held on 3 of 5 nodes, 3 needed, 10.0s left; node 1: this node lacks the operation; \
         node 2: the backend panicked"
    );
    let told = world.run(manager.check());
    let told: Vec<_> = told.problems().map(|(node, it)| format!("{}: {it}", node.name)).collect();
    assert_eq!(told[0], "node 1: this node lacks the operation");
    assert!(told.contains(&"node 2: the backend panicked".to_owned()), "{told:?}");
    assert!(!told.iter().any(|problem| problem.starts_with("memory-")), "{told:?}");
    assert_eq!(
        world.run(manager.revoke("r")).unwrap().to_string(),
        "revoked: done on 3 of 5 nodes, 3 needed, free in 10.0s; \
         node 1: this node lacks the operation; node 2: this node lacks the operation"
    );
}

/// Whichever name is waited for.
#[test]
fn nodes_without_a_wait_queue_are_sent_no_call_of_one() {
    let world = World::complete(3);
    let asked: Arc<Mutex<[usize; 3]>> = Arc::default();
    let nodes = world.nodes.iter().enumerate().map(|(at, node)| {
        let (asked, queues) = (Arc::clone(&asked), at == 2);
        let able = if queues { node.capabilities() } else { node.without_queue().capabilities() };
        let spy = Begins::new(node, move |node, call, runtime| {
            let is_of_a_queue = match call.operation() {
                Operation::Leave { .. } | Operation::Refresh { .. } => true,
                Operation::Release(_, options) => options.asks.is_some(),
                _ => false,
            };
            asked.lock().unwrap()[at] += usize::from(is_of_a_queue);
            begin(node, call, runtime)
        });
        spy.able(able)
    });
    let nodes: Vec<Begins> = nodes.collect();
    let (holder, waiter) = (world.over(nodes.clone()), world.over(nodes));
    for name in ["a", "b", "c", "d", "e", "f"] {
        let _held = world.run(holder.lock(name)).unwrap();
        let failed = world.run(waiter.lock(name).timeout(SECOND)).unwrap_err();
        assert!(failed.is_held(), "{failed}");
    }
    let [first, second, third] = *asked.lock().unwrap();
    assert!(first + second == 0 && third > 6, "{first}, {second}, {third}");
}
