//! Calls of many tasks that travel together mean what they mean alone.

use futures_util::future::join_all;
use quorate::error::{Answer, NodeAnswer};
use quorate::{LockError, LockGuard, LockManager, ReleaseError};
use quorate_tests::Nodes;

use crate::client::{assert_clean, with_each_client};

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
    let node = &nodes[0];
    with_each_client(|client| async move {
        for round in 0..4 {
            let manager = client.manager(nodes);
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
