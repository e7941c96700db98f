//! A soak: locks under churn on three nodes, one of which restarts again and again. After it memory, descriptors, tasks
//! and keys are where they began. In a program of its own, since it counts what the whole process has.
//!
//! `QUORATE_SOAK_ROUNDS` is how many rounds each client makes; the default is 4, and an hour's worth in the scheduled job.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "figures for the log of the scheduled job")]

#[path = "client.rs"]
#[allow(dead_code, unused_imports, reason = "this program needs a part of it")]
mod client;

use std::time::Duration;
use std::{env, fs};

use futures_util::future::join_all;
use quorate::{LockGuard, LockManager};
use quorate_tests::Nodes;
use quorate_tests::dice::Dice;
use quorate_tests::wait::{LIMIT, for_turns, until, within_limit};
use tokio::runtime::Handle;

use crate::client::{Client, assert_clean, on_tokio};

/// Those to wait are made when a task has to wait, at each of the three nodes.
const CONNECTIONS: usize = 3;
const TASKS: u64 = 12;
const LOCKS: u64 = 10;
const NAMES: usize = 5;

#[test]
fn after_a_soak_memory_descriptors_tasks_and_keys_are_where_they_began() {
    let rounds = env::var("QUORATE_SOAK_ROUNDS").ok().map(|rounds| rounds.parse().unwrap());
    let rounds = rounds.unwrap_or(4);
    for client in Client::WITH_POOL {
        on_tokio(async {
            let nodes = Nodes::start(3);
            let soak = Soak { client, manager: manager(client, &nodes), nodes };
            for round in 0..rounds / 4 {
                soak.round(round).await;
            }
            let before = soak.rest().await;
            for round in rounds / 4..rounds {
                soak.round(round).await;
            }
            let after = soak.rest().await;
            println!("{client:?}, {rounds} rounds: {before:?}, then {after:?}");
            let most = before.memory + before.memory / 10 + 4 * 1024 * 1024;
            assert!(after.memory <= most, "{client:?}: {before:?}, then {after:?}");
            until("as many descriptors", || descriptors() <= before.descriptors + CONNECTIONS)
                .await;
            until("as many tasks", || tasks() <= before.tasks + 4 * CONNECTIONS).await;
            assert_clean(&soak.manager).await;
        });
    }
}

/// What the process has. Memory in bytes.
#[derive(Debug)]
struct Usage {
    memory: u64,
    descriptors: usize,
    tasks: usize,
}

struct Soak {
    client: Client,
    manager: LockManager,
    nodes: Nodes,
}

fn manager(client: Client, nodes: &Nodes) -> LockManager {
    // A lock whose release a killed node did not answer is free after its ttl.
    let builder = client.builder(nodes).node_timeout(Duration::from_millis(500));
    builder.ttl(Duration::from_secs(2)).build().unwrap()
}

impl Soak {
    async fn round(&self, round: u64) {
        let node = &self.nodes[(round / 5) as usize % self.nodes.len()];
        let is_down = round.is_multiple_of(5);
        if is_down {
            node.kill();
        }
        let tasks = (0..TASKS).map(|task| {
            let (manager, dice) = (self.manager.clone(), Dice::new(round * TASKS + task));
            tokio::spawn(churn(manager, dice))
        });
        for task in join_all(tasks).await {
            task.unwrap();
        }
        if is_down {
            node.restart();
        }
        if round.is_multiple_of(10) {
            let other = manager(self.client, &self.nodes);
            churn(other.clone(), Dice::new(round)).await;
            assert_clean(&other).await;
        }
    }

    /// Waits until nothing of the rounds is left on the nodes, and counts.
    async fn rest(&self) -> Usage {
        // Connections to all nodes are there again.
        for name in 0..NAMES {
            self.manager
                .lock(format!("r{name}"))
                .timeout(LIMIT)
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        until("no key on any node", || self.nodes.keys_left().is_empty()).await;
        Usage { memory: memory(), descriptors: descriptors(), tasks: tasks() }
    }
}

/// Locks, waits, gives up, extends, hands over and drops.
async fn churn(manager: LockManager, dice: Dice) {
    for _ in 0..LOCKS {
        let first = dice.below(NAMES);
        let second = (first + 1) % NAMES;
        let names = [format!("r{first}"), format!("r{second}")];
        let names = &names[..1 + usize::from(dice.below(4) == 0)];
        let mut request = manager.lock(names.to_vec()).timeout(LIMIT);
        if dice.below(2) == 0 {
            request = request.auto_renew();
        }
        if dice.below(8) == 0 {
            request = request.no_wait();
        }
        let patience = (dice.below(3) == 0).then(|| dice.below(200));
        let acquired = within_limit("a lock", for_turns(patience, request)).await;
        if let Some(Ok(guard)) = acquired {
            end(&manager, guard, &dice).await;
        }
    }
}

async fn end(manager: &LockManager, guard: LockGuard, dice: &Dice) {
    match dice.below(5) {
        0 => drop(guard),
        // The release goes on when its future is dropped.
        1 => drop(for_turns(Some(1), guard.release()).await),
        2 => {
            let _ = guard.extend().await;
            let _ = guard.release().await;
        }
        3 => {
            let Ok(record) = guard.detach() else { return };
            drop(manager.adopt(&record).await);
        }
        _ => drop(guard.release().await),
    }
}

fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}
