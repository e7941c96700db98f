//! Calls of many tasks that travel together mean what they mean alone.

use std::time::Duration;

use futures_util::future::join_all;
use quorate::error::{Answer, NodeAnswer};
use quorate::{BackendErrorKind, LockError, LockGuard, LockManager, ReleaseError};
use quorate_tests::wait::{LIMIT, within_limit};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, assert_clean, on_tokio, unhurried, with_each_client};

/// Enough that they share pipelines.
const TASKS: usize = 64;

/// What is at a key before a task tries to lock it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    Taken,
    List,
}

impl Kind {
    fn of(task: usize) -> Self {
        [Self::Free, Self::Taken, Self::Free, Self::List][task % 4]
    }
}

fn key(task: usize) -> String {
    format!("r:{task}")
}

async fn all_at_once(manager: &LockManager) -> Vec<Result<LockGuard, LockError>> {
    let locks = (0..TASKS).map(|task| {
        let manager = manager.clone();
        tokio::spawn(async move { manager.lock(key(task)).no_wait().await })
    });
    join_all(locks).await.into_iter().map(Result::unwrap).collect()
}

async fn released(guards: impl Iterator<Item = LockGuard>) -> Vec<Result<(), ReleaseError>> {
    let releases = guards.map(|guard| tokio::spawn(guard.release()));
    join_all(releases).await.into_iter().map(Result::unwrap).collect()
}

/// What the only node answered.
fn answer(error: LockError) -> Answer {
    let [NodeAnswer { answer, .. }] = error.failure().expect("a node was asked").nodes() else {
        panic!("{error}")
    };
    answer.clone()
}

#[test]
fn each_of_many_hears_what_it_would_hear_alone() {
    let nodes = &Nodes::start(1);
    let node = nodes.iter().next().unwrap();
    with_each_client(|client| async move {
        for round in 0..4 {
            let manager = client.builder(nodes).build().unwrap();
            for task in 0..TASKS {
                match Kind::of(task) {
                    Kind::Free => {}
                    Kind::Taken => node.set(key(task), "somebody else's"),
                    Kind::List => node.lpush(key(task), "x"),
                }
            }
            if round == 2 {
                // Each script is sent again, with its text.
                node.cli(&["SCRIPT", "FLUSH"]);
            }
            let mut guards = Vec::new();
            for (task, locked) in all_at_once(&manager).await.into_iter().enumerate() {
                match (Kind::of(task), locked) {
                    (Kind::Free, Ok(guard)) => guards.push(guard),
                    // The plain acquire of one key cannot see what is there.
                    (Kind::Taken | Kind::List, Err(error)) => {
                        let answer = answer(error);
                        assert!(matches!(answer, Answer::Refused), "{client:?}: {answer}");
                    }
                    (kind, locked) => panic!("{client:?}: {task}, {kind:?}: {locked:?}"),
                }
            }
            // One lock is lost, and one has something else in its place.
            node.set(key(0), "somebody else's");
            node.cli(&["DEL", "r:2"]);
            node.lpush("r:2", "x");
            let outcomes = released(guards.into_iter()).await;
            assert!(outcomes[..2].iter().all(Result::is_err), "{client:?}: {outcomes:?}");
            assert!(outcomes[2..].iter().all(Result::is_ok), "{client:?}: {outcomes:?}");
            assert_clean(&manager).await;
            let left = node.keys().len();
            assert_eq!(left, TASKS / 2 + 2, "{client:?}: what is not ours stays");
            node.flushall();
        }
    });
}

#[test]
fn one_forbidden_key_costs_no_other_call() {
    let server = RedisServer::builder().user("app", "on >pw ~allowed:* +@all").start();
    on_tokio(async {
        for client in Client::ALL {
            let backends = client.connect(&[server.address_as("app", "pw")]);
            // A release that failed is sent again after a node timeout.
            let builder = unhurried(backends).node_timeout(Duration::from_secs(2));
            let manager = builder.build().unwrap();
            for _ in 0..3 {
                let locks = (0..TASKS).map(|task| {
                    let manager = manager.clone();
                    let may = task % 8 != 0;
                    let name = if may { format!("allowed:{task}") } else { key(task) };
                    tokio::spawn(async move { (may, manager.lock(name).no_wait().await) })
                });
                let mut guards = Vec::new();
                for locked in join_all(locks).await {
                    match locked.unwrap() {
                        (true, locked) => guards.push(locked.unwrap()),
                        (false, locked) => {
                            let answer = answer(locked.unwrap_err());
                            let Answer::Failed(error) = answer else { panic!("{answer}") };
                            assert_eq!(error.kind(), BackendErrorKind::Permission, "{client:?}");
                        }
                    }
                }
                let outcomes = released(guards.into_iter()).await;
                assert!(outcomes.iter().all(Result::is_ok), "{client:?}: {outcomes:?}");
            }
            let report = within_limit("the end of close", manager.close(100 * LIMIT)).await;
            assert!(report.to_string().contains("failed: NOPERM"), "{client:?}: {report}");
            assert_eq!(server.keys(), Vec::<String>::new(), "{client:?}");
        }
    });
}
