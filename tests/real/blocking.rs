//! Locks without async: on threads of every kind, and in async tasks, which must not block.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use quorate::error::{InvalidRequest, LeaseEnd};
use quorate::runtime::{SmolRuntime, TokioRuntime};
use quorate::{LockError, LockManager, LockManagerBuilder, ReleaseError, WithError};
use quorate_tests::wait::{LIMIT, eventually};
use quorate_tests::{Nodes, RedisServer};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, block_in_place, spawn_blocking};

use crate::client::{Client, current_thread, multi_thread};
use crate::working::share;

/// Everything that a thread can do without async.
fn everything(manager: LockManager) {
    let guard = manager.lock("r").auto_renew().lock_blocking().unwrap();
    assert!(guard.is_valid() && manager.try_lock_blocking("r").unwrap().is_none());
    guard.release_blocking().unwrap();
    let locked = manager.try_lock_blocking(["r", "s"]).unwrap().unwrap();
    locked.release_blocking().unwrap();
    let inner = manager.lock("r").with_blocking(|lease| {
        assert!(lease.is_valid());
        manager.lock("s").with_blocking(|_| 7)
    });
    assert_eq!(inner.unwrap().unwrap(), 7);
    assert!(manager.close_blocking(LIMIT).unwrap().is_clean());
    assert!(manager.lock("r").lock_blocking().unwrap_err().is_closed());
}

/// The threads of processes take turns.
#[test]
fn threads_that_block_hold_a_lock_one_at_a_time() {
    share("blocking");
}

/// Runs `check` with a manager of its own.
fn with_each(
    nodes: &Nodes,
    runtime: impl Fn(LockManagerBuilder) -> LockManagerBuilder,
    check: impl Fn(LockManager),
) {
    for client in Client::WITH_POOL {
        check(runtime(client.builder(nodes)).build().unwrap());
        assert_eq!(nodes.keys_left(), [], "{client:?}");
    }
}

#[test]
fn a_thread_without_a_runtime_locks_on_each_runtime() {
    let (nodes, tokio) = (&Nodes::start(3), multi_thread());
    with_each(nodes, |builder| builder.runtime(TokioRuntime::new()), everything);
    with_each(nodes, |builder| builder.runtime(SmolRuntime::new()), everything);
    let given = || TokioRuntime::of(tokio.handle().clone());
    with_each(nodes, |builder| builder.runtime(given()), everything);
}

#[test]
fn a_thread_of_tokio_that_may_block_locks() {
    let nodes = &Nodes::start(3);
    let here = |builder: LockManagerBuilder| builder.runtime(TokioRuntime::new());
    let ends = async |task: JoinHandle<()>| task.await.unwrap();
    for tokio in [multi_thread(), current_thread()] {
        with_each(nodes, here, |manager| {
            tokio.block_on(async { ends(spawn_blocking(move || everything(manager))).await });
        });
        // A thread of the program that has entered the runtime.
        let driven = multi_thread();
        let _entered = driven.enter();
        with_each(nodes, here, everything);
    }
    let tokio = multi_thread();
    with_each(nodes, here, |manager| {
        let task = async move { block_in_place(|| everything(manager)) };
        tokio.block_on(async { ends(tokio::spawn(task)).await });
    });
}

/// In a task nothing blocks and nothing panics.
fn is_refused(manager: &LockManager, nodes: &Nodes, is_spent: bool) {
    let is_invalid =
        |error: &LockError| matches!(error, LockError::Invalid(InvalidRequest::Blocking));
    let body = Cell::new(false);
    let with = manager.lock("r").with_blocking(|_| body.set(true));
    assert!(matches!(&with, Err(WithError::Lock(error)) if is_invalid(error)) && !body.get());
    let error = manager.lock("r").lock_blocking().unwrap_err();
    assert!(is_invalid(&error) && error.is_permanent(), "{error}");
    assert!(is_invalid(&manager.try_lock_blocking("r").unwrap_err()));
    assert!(is_invalid(&manager.close_blocking(LIMIT).unwrap_err()));
    assert_eq!(nodes.keys_left(), []);
    assert_eq!(tokio::task::coop::has_budget_remaining(), !is_spent, "the budget is as it was");
}

#[test]
fn a_task_of_tokio_is_refused() {
    let nodes = &Nodes::start(3);
    for tokio in [multi_thread(), current_thread()] {
        tokio.block_on(async {
            let manager = Client::Redis.manager(nodes);
            is_refused(&manager, nodes, false);
            // A task that has used up its budget, which the next poll restores.
            std::future::poll_fn(|context| {
                while let std::task::Poll::Ready(unit) = tokio::task::coop::poll_proceed(context) {
                    unit.made_progress();
                }
                std::task::Poll::Ready(())
            })
            .await;
            is_refused(&manager, nodes, true);
            tokio::task::yield_now().await;

            let guard = manager.lock("r").await.unwrap();
            let released = guard.release_blocking();
            assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))), "{released:?}");
            // It goes on in the background.
            manager.lock("r").await.unwrap().release().await.unwrap();
            let moved = manager.clone();
            let spawned = Handle::current().spawn(async move {
                moved.lock("r").lock_blocking().map(drop).unwrap_err().to_string()
            });
            let text = "a blocking call in an async task: await the request instead";
            assert_eq!(spawned.await.unwrap(), text);
            assert!(manager.close(LIMIT).await.is_clean());
        });
    }
}

/// Nothing stops the body of `with_blocking` but itself.
#[test]
fn a_body_that_blocks_sees_the_end_of_its_lease_and_its_value_is_in_the_error() {
    let nodes = &Nodes::start(3);
    for client in Client::ALL {
        let ttl = Duration::from_secs(3);
        let manager = client.builder(nodes).ttl(ttl).node_timeout(ttl / 3).build().unwrap();
        let lost = manager.lock("r").with_blocking(|lease| {
            nodes.iter().for_each(RedisServer::flushall);
            eventually("the end of the lease", || !lease.is_valid());
            7
        });
        match lost {
            Err(WithError::Lost(stopped)) => {
                let (LeaseEnd::NotHeld(_) | LeaseEnd::Expired { .. }) = stopped.reason else {
                    panic!("{}", stopped.reason)
                };
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_body_that_panics_releases() {
    let nodes = &Nodes::start(3);
    let manager = Client::Redis.manager(nodes);
    let locks = manager.clone();
    let panics = move || locks.lock("r").with_blocking(|_| panic!("on purpose")).map_err(drop);
    assert!(thread::spawn(panics).join().is_err());
    eventually("no key is left", || nodes.keys_left().is_empty());
    assert!(manager.close_blocking(LIMIT).unwrap().is_clean());
}
