//! Backends that answer, drop, look or panic inside `begin`: the attempt takes all of it.

use std::sync::{Arc, Mutex};
use std::thread;

use futures_util::FutureExt;
use quorate_core::backend::{Call, CallResult, Capabilities, NotSent, Operation, ask};
use quorate_core::{ExtendError, Lease, LockError, LockManager, Runtime};
use quorate_memory::MemoryNode;

use crate::backends::{Begins, begin};
use crate::world::{MS, SECOND, World};

/// What the node answers, at once.
fn result(node: &MemoryNode, operation: &Operation, runtime: &dyn Runtime) -> CallResult {
    let (call, asked) = ask(operation.clone(), runtime.now());
    begin(node, call, runtime).map_err(|not_sent| not_sent.error().clone())?;
    asked.now_or_never().expect("without a delay it is answered inside")
}

/// A manager of three nodes, of which the first ones are odd.
fn manager<B>(world: &World, odd: usize, oddly: B) -> LockManager
where
    B: Fn(&MemoryNode, Call, &dyn Runtime) -> Result<(), NotSent> + Send + Sync + 'static,
{
    let oddly = Arc::new(oddly);
    let nodes = world.nodes.iter().enumerate().map(|(place, node)| {
        let oddly = Arc::clone(&oddly);
        let begins = Begins::new(node, move |node, call, runtime| match place < odd {
            true => oddly(node, call, runtime),
            false => begin(node, call, runtime),
        });
        begins.named("").able(Capabilities::ORDERED)
    });
    LockManager::builder(nodes).runtime(world.sim.clone()).build().unwrap()
}

/// Locks, extends and releases, also by a drop and by a lost round.
fn use_it(world: &World, manager: &LockManager) {
    let guard = world.sim.block_on(manager.lock(["r", "s"])).unwrap();
    world.sim.block_on(guard.extend()).unwrap();
    let refused = world.sim.block_on(manager.lock("r").no_wait());
    assert!(refused.unwrap_err().is_held());
    world.sim.block_on(guard.release()).unwrap();
    drop(world.sim.block_on(manager.lock("r")).unwrap());
    world.catch_up();
    assert_eq!(world.keys_left(), 0);
}

#[test]
fn a_backend_may_answer_inside_begin() {
    let world = World::new(3);
    let manager = manager(&world, 3, |node, call, runtime| {
        let result = result(node, call.operation(), runtime);
        call.answer(result);
        Ok(())
    });
    use_it(&world, &manager);
}

#[test]
fn a_backend_may_answer_from_a_destructor_inside_begin() {
    struct AnswersLast(Option<(Call, CallResult)>);

    impl Drop for AnswersLast {
        fn drop(&mut self) {
            let (call, result) = self.0.take().unwrap();
            call.answer(result);
        }
    }

    let world = World::new(3);
    let manager = manager(&world, 3, |node, call, runtime| {
        let result = result(node, call.operation(), runtime);
        drop(AnswersLast(Some((call, result))));
        Ok(())
    });
    use_it(&world, &manager);
}

#[test]
fn a_backend_may_answer_from_another_thread_before_begin_returns() {
    let world = World::new(3);
    let manager = manager(&world, 3, |node, call, runtime| {
        let result = result(node, call.operation(), runtime);
        thread::spawn(move || call.answer(result)).join().unwrap();
        Ok(())
    });
    use_it(&world, &manager);
}

/// C6: the node may have executed it, so it is released there, and asked again until it answers.
#[test]
fn a_call_that_a_backend_drops_is_lost() {
    let dropped: Arc<Mutex<Vec<&str>>> = Arc::default();
    let (seen, world) = (Arc::clone(&dropped), World::new(3));
    let begin = move |node: &MemoryNode, call: Call, runtime: &dyn Runtime| {
        // It is executed, and its first release is not.
        match call.operation() {
            Operation::Acquire(..) => drop(result(node, call.operation(), runtime)),
            Operation::Release(..) if !seen.lock().unwrap().contains(&"release") => {
                seen.lock().unwrap().push("release");
            }
            _ => {
                let result = result(node, call.operation(), runtime);
                call.answer(result);
                return Ok(());
            }
        }
        drop(call);
        Ok(())
    };
    let two = manager(&world, 2, begin);
    let lost = world.sim.block_on(two.lock("r").no_wait()).unwrap_err();
    assert!(matches!(lost, LockError::NoQuorum(_)), "{lost}");
    assert_eq!(lost.to_string().matches("the backend dropped the call").count(), 2, "{lost}");
    world.sim.advance(500 * MS);
    assert_eq!(world.keys_left(), 0, "asked again after a node timeout");
    assert_eq!(dropped.lock().unwrap().len(), 1);
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
        }
        let result = result(node, call.operation(), runtime);
        call.answer(result);
        Ok(())
    });
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    *lease.lock().unwrap() = Some(guard.lease());
    world.sim.block_on(guard.extend()).unwrap();
    assert_eq!(*looks.lock().unwrap(), [true; 3]);
    looks.lock().unwrap().clear();
    world.sim.block_on(guard.release()).unwrap();
    assert_eq!(*looks.lock().unwrap(), [false; 3], "it has ended when its releases begin");
    // It ends by time.
    let guard = world.sim.block_on(manager.lock("r")).unwrap();
    *lease.lock().unwrap() = Some(guard.lease());
    looks.lock().unwrap().clear();
    world.sim.advance(20 * SECOND);
    assert_eq!(*looks.lock().unwrap(), [false; 3]);
    assert_eq!(world.keys_left(), 0);
    *lease.lock().unwrap() = None;
}

#[test]
fn a_backend_that_panics_in_begin_loses_its_call_and_poisons_nothing() {
    for answers in [false, true] {
        let panics: Arc<Mutex<bool>> = Arc::new(Mutex::new(true));
        let (world, on) = (World::new(3), Arc::clone(&panics));
        let begin = move |node: &MemoryNode, call: Call, runtime: &dyn Runtime| {
            let is_on = *on.lock().unwrap();
            if answers || !is_on {
                let result = result(node, call.operation(), runtime);
                call.answer(result);
            }
            assert!(!is_on, "on purpose");
            Ok(())
        };
        let one = manager(&world, 1, begin.clone());
        let guard = world.sim.block_on(one.lock("r")).unwrap();
        world.sim.block_on(guard.extend()).unwrap();
        world.sim.block_on(guard.release()).unwrap();
        let two = manager(&world, 2, begin);
        let locked = world.sim.block_on(two.lock("s").no_wait());
        match locked {
            Ok(guard) => {
                assert!(answers);
                world.sim.block_on(guard.extend()).unwrap();
                drop(guard);
            }
            Err(error) => {
                assert!(!answers);
                let text = error.to_string();
                assert_eq!(text.matches("the backend dropped the call").count(), 2, "{text}");
            }
        }
        *panics.lock().unwrap() = false;
        world.sim.advance(SECOND);
        assert_eq!(world.keys_left(), 0);
        use_it(&world, &two);
        let guard = world.sim.block_on(two.lock("r")).unwrap();
        *panics.lock().unwrap() = true;
        let extended = world.sim.block_on(guard.extend());
        assert_eq!(matches!(extended, Err(ExtendError::NoQuorum(_))), !answers, "{extended:?}");
        assert!(guard.is_valid(), "H1");
    }
}
