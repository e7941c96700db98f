//! Real runtimes: the contract of each, and what happens at their edges (A1).

use std::fmt::Display;
use std::future::Future;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use quorate_core::runtime::{SmolRuntime, TokioRuntime};
use quorate_core::{DetachedLock, Lease, LockError, LockGuard, LockManager, Runtime, WithError};
use quorate_examples::{StdRuntime, block_on};
use quorate_memory::{Fault, MemoryNode, conformance};
use quorate_tests::Nodes;
use quorate_tests::wait::{LIMIT, LONG_TTL, eventually, receive};
use tokio::runtime::{Builder, Runtime as Tokio};

use crate::client::{current_thread, multi_thread};

/// Runs `check` on every runtime there is, on all at once.
pub(crate) fn on_every_runtime<F>(check: impl Fn(Arc<dyn Runtime>) -> F + Sync)
where
    F: Future<Output = ()>,
{
    thread::scope(|scope| {
        for tokio in [current_thread(), multi_thread()] {
            let check = &check;
            scope.spawn(move || {
                tokio.block_on(async { check(Arc::new(TokioRuntime::new())).await });
            });
        }
        // Tokio's value where there is no tokio.
        scope.spawn(|| block_on(check(Arc::new(TokioRuntime::new()))));
        scope.spawn(|| block_on(check(Arc::new(SmolRuntime::new()))));
        scope.spawn(|| block_on(check(Arc::new(StdRuntime::new()))));
    });
}

#[test]
fn every_runtime_keeps_the_contract() {
    on_every_runtime(|runtime| async move {
        assert_eq!(conformance::runtime(&runtime).await.unwrap().len(), 5);
    });
}

struct Locks {
    manager: LockManager,
    nodes: Vec<MemoryNode>,
}

impl Locks {
    /// No lease ends, and no node is given up, because the machine is slow.
    fn new(runtime: &Arc<dyn Runtime>) -> Self {
        let nodes = MemoryNode::cluster(3, Arc::clone(runtime));
        let builder = LockManager::builder(nodes.clone()).runtime(Arc::clone(runtime));
        let builder = builder.ttl(LONG_TTL).node_timeout(LIMIT).wait_timeout(LIMIT);
        let manager = builder.renew_interval(Duration::from_millis(2)).build().unwrap();
        Self { manager, nodes }
    }

    /// A guard, which a task renews if `is_renewed`.
    async fn lock(&self, is_renewed: bool) -> LockGuard {
        let guard = self.manager.lock("r").await.unwrap();
        if is_renewed {
            guard.auto_renew();
        }
        guard
    }

    /// Waits in this thread: the release needs none of it.
    fn are_released(&self, place: impl Display) {
        eventually(place, || self.nodes.iter().all(|node| node.keys().is_empty()));
    }
}

/// The runtime of locks that are made in `tokio`.
fn runtime_of(tokio: &Tokio) -> Arc<dyn Runtime> {
    tokio.block_on(async { Arc::new(TokioRuntime::new()) as _ })
}

/// Where a guard is dropped. The lock is released by its runtime, or by a helper thread if that has gone.
#[test]
fn a1_a_guard_can_be_dropped_without_its_runtime_and_while_unwinding() {
    type Drops = fn(LockGuard, Tokio) -> Option<Tokio>;
    const WAYS: [(&str, Drops); 4] = [
        ("in a thread without a runtime", |guard, tokio| {
            thread::spawn(move || drop(guard)).join().expect("no panic");
            Some(tokio)
        }),
        ("after its runtime", |guard, tokio| {
            drop(tokio);
            drop(guard);
            None
        }),
        ("in a passing runtime without timers", |guard, tokio| {
            Builder::new_current_thread().build().unwrap().block_on(async { drop(guard) });
            Some(tokio)
        }),
        ("while unwinding", |guard, tokio| {
            let caught = catch_unwind(AssertUnwindSafe(move || {
                let _guard = guard;
                panic!("on purpose");
            }));
            assert!(caught.is_err());
            Some(tokio)
        }),
    ];
    for ((way, drops), is_renewed) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let tokio = multi_thread();
        let locks = Locks::new(&runtime_of(&tokio));
        let guard = tokio.block_on(locks.lock(is_renewed));
        let _tokio = drops(guard, tokio);
        locks.are_released(format_args!("{way}, renewed: {is_renewed}"));
    }
}

/// A runtime that is there, but that no thread drives: it runs no task and rings no timer.
#[test]
fn a1_nothing_waits_for_a_runtime_that_nobody_drives() {
    let idle = current_thread();
    let locks = Locks::new(&runtime_of(&idle));
    drop(block_on(locks.manager.lock("r")).unwrap());
    locks.are_released("nobody drives the runtime");

    let locks = Locks::new(&runtime_of(&idle));
    for node in &locks.nodes {
        node.inject(Fault::Hung);
    }
    // A round listens to a node for half of the validity at the most.
    let request = locks.manager.lock("r").timeout(Duration::from_millis(1));
    let request = request.ttl(Duration::from_millis(100));
    assert!(block_on(request).is_err(), "the deadline rings");
}

/// Dropped by the shutdown, in the middle of it. Tokio hides a panic in a task that it shuts down.
#[test]
fn a1_a_guard_can_be_dropped_while_its_runtime_shuts_down() {
    struct Drops(Option<LockGuard>, Sender<bool>);

    impl Drop for Drops {
        fn drop(&mut self) {
            let guard = self.0.take();
            let dropped = catch_unwind(AssertUnwindSafe(move || drop(guard)));
            let _ = self.1.send(dropped.is_ok());
        }
    }

    for is_renewed in [false, true] {
        for tokio in [current_thread(), multi_thread()] {
            let (tells, told) = channel();
            let locks = Locks::new(&runtime_of(&tokio));
            tokio.block_on(async {
                let drops = Drops(Some(locks.lock(is_renewed).await), tells);
                tokio::spawn(async move {
                    let _drops = drops;
                    std::future::pending::<()>().await;
                });
                tokio::task::yield_now().await;
            });
            drop(tokio);
            assert_eq!(told.try_recv(), Ok(true), "it panicked, or was not dropped");
        }
    }
}

const fn send_sync<T: Send + Sync>() {}

/// What users put in structs and share between threads.
const _: () = send_sync::<(LockGuard, LockManager, LockError, Lease, DetachedLock, WithError)>();
const _: () = send_sync::<TokioRuntime>();

/// What happens to the runtime that the manager was made in, while a holder waits elsewhere: in no runtime, or in
/// another one than that in which it began to wait. Where the runtime stands, no thread drives it.
#[derive(Clone, Copy, Debug)]
enum Home {
    Ends,
    EndsMeanwhile,
    Stands,
}

/// The next ttl is for a machine that was too slow: the lease was over before the test waited for that.
fn is_lost_elsewhere(home: Home) {
    for ttl in [300, 3_000, 30_000].map(Duration::from_millis) {
        let first = current_thread();
        let locks = Locks::new(&runtime_of(&first));
        let request = locks.manager.lock("r").ttl(ttl);
        let begins = async {
            let guard = request.await.unwrap();
            let mut lost = Box::pin(guard.lost());
            let is_lost = (&mut lost).now_or_never();
            (guard, is_lost.is_none().then_some(lost))
        };
        let is_there = !matches!(home, Home::Ends);
        let (_guard, lost) = if is_there { first.block_on(begins) } else { block_on(begins) };
        let Some(lost) = lost else { continue };
        let _first = Some(first).filter(|_| matches!(home, Home::Stands));
        drop(if is_there { current_thread().block_on(lost) } else { block_on(lost) });
        return;
    }
    panic!("it is always lost at once");
}

/// The holder waits outside of the runtime that the manager was made in, or in another than it began to wait in.
#[test]
fn h4_a_lease_is_told_as_lost_though_the_runtime_has_ended() {
    for home in [Home::Ends, Home::EndsMeanwhile, Home::Stands] {
        // What would hang, or panic, does so in a thread of its own.
        let (done, waited) = channel();
        thread::spawn(move || {
            is_lost_elsewhere(home);
            done.send(())
        });
        assert!(receive(&waited).is_some(), "{home:?}");
    }
}

/// The task by which it finds out that its home shuts down.
#[test]
fn a_runtime_leaves_no_task_in_its_home() {
    let home = multi_thread();
    let tasks = || home.metrics().num_alive_tasks();
    let runtime = TokioRuntime::of(home.handle().clone());
    assert_eq!(tasks(), 1);
    drop(runtime);
    eventually("its task has ended", || tasks() == 0);
}

/// Two guards, one of them renewed, are dropped at the end of `main`.
#[test]
fn a1_a_program_whose_runtime_has_gone_ends_at_once() {
    for client in ["redis", "fred", "memory"] {
        for runtime in ["current-thread", "multi-thread", "smol"] {
            let nodes = Nodes::start(3);
            let mut program = Command::new(env!("CARGO_BIN_EXE_program"))
                .args(["last-guard", runtime, client, &LONG_TTL.as_secs().to_string()])
                .args(nodes.addresses())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stderr = program.stderr.take().unwrap();
            let (tell, ended) = channel();
            thread::spawn(move || {
                let mut said = String::new();
                tell.send(stderr.read_to_string(&mut said).map(|_| said))
            });
            // The pipe ends with the program: long before a ttl has passed.
            assert_eq!(receive(&ended).unwrap().unwrap(), "", "{runtime} and {client}");
            assert!(program.wait().unwrap().success(), "{runtime} and {client}");
        }
    }
}
