//! Calls of many tasks that travel together mean what they mean alone.

use futures_util::future::join_all;
use quorate::{BackendErrorKind, LockError, LockGuard, LockManager, NodeVote, Released, Said};
use quorate_tests::{Nodes, RedisServer};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::client::{Client, LIMIT, nothing_is_left, on_tokio, unhurried, with_each_client};

/// Enough that a connection is never without company once they have begun.
const TASKS: usize = 64;

/// What is at a key before somebody tries to lock it.
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
        tokio::spawn(async move { manager.try_lock(key(task)).await })
    });
    join_all(locks).await.into_iter().map(Result::unwrap).collect()
}

async fn given_back(guards: impl Iterator<Item = LockGuard>) -> Vec<Released> {
    let releases = guards.map(|guard| tokio::spawn(guard.release()));
    join_all(releases).await.into_iter().map(|released| released.unwrap().unwrap()).collect()
}

fn said(error: LockError) -> Vec<NodeVote> {
    match error {
        LockError::NoQuorum { votes } | LockError::Held { votes } => {
            votes.iter().cloned().collect()
        }
        other => panic!("{other:?}"),
    }
}

/// How many commands of one kind a node has had.
fn commands(node: &RedisServer, name: &str) -> u64 {
    let stats = node.cli(&["INFO", "commandstats"]).text();
    let line = format!("cmdstat_{name}:calls=");
    let calls = stats.lines().find_map(|stat| stat.strip_prefix(&line)?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[test]
fn each_of_many_hears_what_it_would_hear_alone() {
    let nodes = &Nodes::start(1);
    let node = nodes.iter().next().unwrap();
    with_each_client(|client| async move {
        let manager = client.builder(nodes).build().unwrap();
        node.cli(&["CONFIG", "RESETSTAT"]);
        for round in 0..4 {
            for task in 0..TASKS {
                match Kind::of(task) {
                    Kind::Free => {}
                    Kind::Taken => node.set(key(task), "somebody else's"),
                    Kind::List => node.lpush(key(task), "x"),
                }
            }
            if round == 2 {
                // What was together is sent again, with the script.
                node.cli(&["SCRIPT", "FLUSH"]);
            }
            let mut guards = Vec::new();
            for (task, locked) in all_at_once(&manager).await.into_iter().enumerate() {
                match (Kind::of(task), locked) {
                    (Kind::Free, Ok(guard)) => guards.push(guard),
                    (Kind::Taken, Err(error)) => {
                        let votes = said(error);
                        assert!(matches!(votes[0].said, Said::Refused), "{client:?}: {votes:?}");
                    }
                    (Kind::List, Err(error)) => {
                        let votes = said(error);
                        let Said::Failed(error) = &votes[0].said else {
                            panic!("{client:?}: {votes:?}")
                        };
                        assert_eq!(error.kind(), BackendErrorKind::WrongType, "{client:?}");
                        assert!(error.to_string().starts_with("WRONGTYPE"), "{client:?}: {error}");
                    }
                    (kind, locked) => panic!("{client:?}: {task}, {kind:?}: {locked:?}"),
                }
            }
            // One lock is lost, and one has something else in its place.
            node.set(key(0), "somebody else's");
            node.cli(&["DEL", "r:2"]);
            node.lpush("r:2", "x");
            let released = given_back(guards.into_iter()).await;
            assert!(released[..2].iter().all(|released| *released != Released::Held));
            assert!(released[2..].iter().all(|released| *released == Released::Held), "{client:?}");
            assert_eq!(manager.settle(LIMIT).await, 0);
            let left = node.keys().len();
            assert_eq!(left, TASKS / 2 + 2, "{client:?}: what is not ours stays");
            node.flushall();
        }
        let (scripts, deleted) = (commands(node, "evalsha"), commands(node, "del"));
        assert!(deleted >= 4 * (TASKS as u64 / 2 - 2));
        // A key that is taken costs one script by itself, where redis-rs takes keys by `SET`.
        let taken = 4 * TASKS as u64 / 2;
        // Several threads may let each call leave by itself.
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            assert!(scripts < taken + deleted / 2, "{client:?}: {scripts} for {deleted} released");
        }
        nothing_is_left(&manager, nodes).await;
    });
}

#[test]
fn what_a_node_will_not_have_together_goes_one_by_one() {
    let server = RedisServer::builder().user("app", "on >pw ~allowed:* +@all").start();
    on_tokio(async {
        for client in Client::ALL {
            let backends = client.connect(&[server.address_as("app", "pw")]);
            let manager = unhurried(backends).build().unwrap();
            for _ in 0..3 {
                let locks = (0..TASKS).map(|task| {
                    let manager = manager.clone();
                    let may = task % 8 != 0;
                    let name = if may { format!("allowed:{task}") } else { key(task) };
                    tokio::spawn(async move { (may, manager.try_lock(name).await) })
                });
                let mut guards = Vec::new();
                for locked in join_all(locks).await {
                    match locked.unwrap() {
                        (true, locked) => guards.push(locked.unwrap()),
                        (false, locked) => {
                            let votes = said(locked.unwrap_err());
                            let Said::Failed(error) = &votes[0].said else { panic!("{votes:?}") };
                            assert_eq!(error.kind(), BackendErrorKind::Permission, "{client:?}");
                        }
                    }
                }
                let released = given_back(guards.into_iter()).await;
                assert!(released.iter().all(|one| *one == Released::Held), "{client:?}");
                assert_eq!(manager.settle(LIMIT).await, 0);
                assert_eq!(server.keys(), Vec::<String>::new(), "{client:?}");
            }
        }
    });
}
