//! What a lock, a renewal and a waiter cost the nodes and the client: the figures of the guide's
//! page *capacity*.
//!
//! `cargo xtask race sizing`. On three nodes, and in one thread of this process. Commands are those
//! that one node executes: a script counts, and each command in it. Memory of the client is what is
//! allocated and not freed.

use std::future::IntoFuture as _;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use futures_util::future::join_all;
use quorate::{LockBackend, LockGuard, LockManager};
use quorate_tests::{Nodes, RedisServer};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::Outcome;
use crate::arena::commands;
use crate::usage::own_cpu;

const MANY: usize = 10_000;
const WAITERS: usize = 1_000;
const RENEWALS: usize = 1_000;

/// Leases that are renewed, and the ttl of these.
const LEASES: usize = 100_000;
const LEASE: Duration = Duration::from_secs(30);

/// So that nothing is renewed while memory and commands are counted.
const TTL: Duration = Duration::from_secs(3_600);

type Rows = Vec<(&'static str, f64)>;

pub(crate) fn main() -> Outcome {
    let redis = Bench::new(|at| Ok(quorate::redis::connect(at)?))?.rows()?;
    let fred = Bench::new(|at| Ok(quorate::fred::connect(at)?))?.rows()?;
    println!("{:42} {:>10} {:>10}", "", "redis-rs", "fred");
    for ((name, redis), (_, fred)) in redis.into_iter().zip(fred) {
        println!("{name:42} {redis:10.1} {fred:10.1}");
    }
    Ok(())
}

/// Two processes, as far as the nodes can see.
struct Bench {
    runtime: Runtime,
    nodes: Nodes,
    one: LockManager,
    other: LockManager,
    renewing: LockManager,
}

impl Bench {
    fn new<B: LockBackend>(connect: impl Fn(Vec<String>) -> Outcome<Vec<B>>) -> Outcome<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let nodes = Nodes::start(3);
        let manager = |ttl| -> Outcome<LockManager> {
            let builder = LockManager::builder(connect(nodes.addresses())?);
            Ok(builder.ttl(ttl).wait_timeout(TTL).build()?)
        };
        let context = runtime.enter();
        let (one, other, renewing) = (manager(TTL)?, manager(TTL)?, manager(LEASE)?);
        for manager in [&one, &other] {
            runtime.block_on(cycles(manager, 100))?;
        }
        drop(context);
        Ok(Self { runtime, nodes, one, other, renewing })
    }

    fn rows(&self) -> Outcome<Rows> {
        let (node, many) = (&self.nodes[0], MANY as f64);
        let idle = clients(node);
        let mut rows = vec![("connections of a process to a node", idle / 2.0)];

        let before = commands(node);
        self.runtime.block_on(cycles(&self.one, MANY))?;
        rows.push(("commands of a lock and its release", (commands(node) - before) / many));

        let before = commands(node);
        self.runtime.block_on(renewals(&self.one))?;
        rows.push(("commands of a renewal", (commands(node) - before) / RENEWALS as f64));

        let before = used(node);
        let (guards, bytes) = self.allocated(guards(&self.one, MANY));
        let guards = guards?;
        rows.push(("bytes of a lease, client", bytes / many));
        rows.push(("bytes of a lock, node", (used(node) - before) / many));

        let names = (0..MANY).map(|_| 0);
        let (tasks, bytes) = self.allocated(waits(&self.one, names, Duration::from_secs(2)));
        rows.push(("bytes of a task that waits in its process", bytes / many));
        self.runtime.block_on(cancel(tasks));

        let (before, waiters) = (used(node), WAITERS as f64);
        let (tasks, bytes) = self.allocated(waits(&self.other, 0..WAITERS, Duration::from_secs(5)));
        rows.push(("bytes of a waiting process, client", bytes / waiters));
        let now: f64 = self.nodes.iter().map(used).sum();
        rows.push(("bytes of a waiting process, all nodes", (now - 3.0 * before) / waiters));
        rows.push(("connections of a process that waits", clients(node) - idle / 2.0));
        let all = || self.nodes.iter().map(commands).sum::<f64>();
        let before = all();
        self.runtime.block_on(async { sleep(Duration::from_secs(20)).await });
        rows.push(("commands a second of a wait, all nodes", (all() - before) / waiters / 20.0));
        self.runtime.block_on(cancel(tasks));
        drop(guards);
        rows.extend(self.runtime.block_on(self.leases())?);
        for manager in [&self.one, &self.other, &self.renewing] {
            let report = self.runtime.block_on(manager.close(TTL));
            if !report.is_clean() {
                return Err(report.to_string().into());
            }
        }
        Ok(rows)
    }

    /// Many leases for two ttls.
    async fn leases(&self) -> Outcome<Rows> {
        let guards = guards(&self.renewing, LEASES).await?;
        let (cpu, before, start) = (own_cpu(), commands(&self.nodes[0]), Instant::now());
        sleep(2 * LEASE).await;
        let (cpu, time) = (own_cpu() - cpu, start.elapsed().as_secs_f64());
        let commands = commands(&self.nodes[0]) - before;
        if guards.iter().any(|guard| !guard.is_valid()) {
            return Err("a lease was lost".into());
        }
        Ok(vec![
            ("% of a core for 100,000 renewed leases", cpu.as_secs_f64() / time * 100.0),
            ("commands a second at a node for these", commands / time),
        ])
    }

    /// What `future` returns, and the bytes that it has allocated and not freed. The runtime has
    /// one thread.
    fn allocated<T>(&self, future: impl Future<Output = T>) -> (T, f64) {
        let mut output = None;
        let counted = measure(|| output = Some(self.runtime.block_on(future)));
        let Some(output) = output else { unreachable!("a future that is done has an output") };
        (output, counted.bytes_current as f64)
    }
}

async fn cycles(manager: &LockManager, count: usize) -> Outcome {
    for number in 0..count {
        manager.lock(format!("c:{number}")).await?.release().await?;
    }
    Ok(())
}

async fn renewals(manager: &LockManager) -> Outcome {
    let guard = manager.lock("renewed").await?;
    for _ in 0..RENEWALS {
        guard.extend().await?;
        // A node that has not answered the last one is not asked again.
        sleep(Duration::from_millis(5)).await;
    }
    Ok(guard.release().await?)
}

async fn guards(manager: &LockManager, count: usize) -> Outcome<Vec<LockGuard>> {
    let mut guards = Vec::with_capacity(count);
    for hundred in 0..count / 100 {
        let names = (0..100).map(|number| (100 * hundred + number).to_string());
        let locks = names.map(|name| manager.lock(name).auto_renew().into_future());
        for guard in join_all(locks).await {
            guards.push(guard?);
        }
    }
    Ok(guards)
}

/// Tasks that wait for locks of others, and have done so for `time`.
async fn waits(
    manager: &LockManager,
    names: impl Iterator<Item = usize>,
    time: Duration,
) -> Vec<JoinHandle<()>> {
    let wait = |name: usize| {
        let request = manager.lock(name.to_string()).into_future();
        tokio::spawn(async { drop(request.await) })
    };
    let tasks = names.map(wait).collect();
    sleep(time).await;
    tasks
}

async fn cancel(tasks: Vec<JoinHandle<()>>) {
    tasks.iter().for_each(JoinHandle::abort);
    join_all(tasks).await;
}

fn used(node: &RedisServer) -> f64 {
    node.info("used_memory").parse().unwrap_or_default()
}

/// The connections of others than the reader.
fn clients(node: &RedisServer) -> f64 {
    node.cli(&["CLIENT", "LIST"]).text().lines().count() as f64 - 1.0
}
