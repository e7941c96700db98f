//! Backends that answer, drop, look or panic inside `begin`: the attempt takes all of it.

use std::sync::{Arc, Mutex};
use std::thread;

use quorate_core::backend::{Call, CallResult, Capabilities, NotSent, Operation};
use quorate_core::{ExtendError, Lease, LockManager, Runtime};
use quorate_memory::MemoryNode;

use crate::backends::{Odd, answer_of, begin};
use crate::world::{MS, SECOND, World, failure_of};

/// A manager of three nodes, of which the first ones are odd.
pub(super) fn manager<B>(world: &World, odd: usize, oddly: B) -> LockManager
where
    B: Fn(&MemoryNode, Call, &dyn Runtime) -> Result<(), NotSent> + Send + Sync + 'static,
{
    let nodes = world.begins(move |at, node, call, runtime| match at < odd {
        true => oddly(node, call, runtime),
        false => begin(node, call, runtime),
    });
    world.over(nodes.into_iter().map(|node| node.named("").able(Capabilities::ORDERED)))
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
            let result = answer_of(node, &call, runtime);
            answer(call, result);
            Ok(())
        });
        use_it(&world, &manager);
    }
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
            Operation::Acquire(..) => drop(answer_of(node, &call, runtime)),
            Operation::Release(..) if *seen == 0 => *seen += 1,
            _ => {
                drop(seen);
                let result = answer_of(node, &call, runtime);
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
        let result = answer_of(node, &call, runtime);
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
                let result = answer_of(node, &call, runtime);
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
            Odd::new(node).before(move |method| {
                assert!(method != on, "on purpose");
                Box::pin(async { Ok(()) })
            })
        }));
        let guard = world.run(manager.lock("r")).expect("two are enough");
        world.run(guard.extend()).expect("two are enough");
        drop(guard);
        world.advance(SECOND);
        let left: Vec<usize> = world.nodes.iter().map(|node| node.keys().len()).collect();
        assert_eq!(left, [usize::from(on == "release"), 0, 0], "{on}");
    }
}
