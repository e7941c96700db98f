//! A process whose tasks do what a row of [`WORKLOADS`] says until its input ends, and report each hold.

#![expect(clippy::disallowed_methods, reason = "it holds for a while")]

use std::time::Duration;

use quorate::runtime::SmolRuntime;
use quorate::{FencingToken, Lease, LockError, LockManager};
use quorate_tests::clock::{Clock, now};
use quorate_tests::dice::Dice;
use quorate_tests::judge::{Hold, LOCKS};
use quorate_tests::resource::Resource;
use tokio::io::AsyncReadExt as _;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_blocking};

use crate::workloads::{WORKLOADS, Way, Workload};
use crate::{Outcome, connect};

/// The longest that a round listens to a node.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// After an error. Also the longest hold where the ttl is long.
const PAUSE: Duration = Duration::from_millis(5);

/// Where the ttl is longer, no test waits for its end.
const LONG: Duration = Duration::from_secs(1);

/// For what is left when all is over.
const CLOSE: Duration = Duration::from_secs(10);

/// The process. On `PORT` is a node with what the locks protect, if it is not 0.
#[tokio::main(worker_threads = 2)]
pub(crate) async fn run(words: &[&str]) -> Outcome {
    let [name, client, ttl, port, guard, addresses @ ..] = words else {
        return Err("work WORKLOAD redis|fred|pool TTL-MS PORT on|off ADDRESS…".into());
    };
    let row = WORKLOADS.iter().find(|row| row.name == *name).ok_or("no such workload")?;
    let (ttl, port) = (Duration::from_millis(ttl.parse()?), port.parse::<u16>()?);
    let ((stop, stopped), local, clock) = (watch::channel(()), LocalSet::new(), Clock::start());
    let (mut managers, mut tasks) = (Vec::new(), Vec::new());
    // A lock that one manager releases does not go to its own waiters before those of others.
    for number in 0..2 {
        let builder = LockManager::builder(connect(client, addresses)?).ttl(ttl);
        let mut builder = builder.node_timeout(NODE_TIMEOUT.min(ttl / 4)).wait_timeout(3 * ttl);
        if *guard == "on" {
            builder = builder.restart_guard(ttl);
        }
        if row.way == Way::Block && number == 1 {
            builder = builder.runtime(SmolRuntime::new());
        }
        let manager = builder.build()?;
        for task in 0..row.tasks {
            let open = |port| Resource::open(port, &(task % LOCKS).to_string());
            let resource = (port > 0).then(|| open(port)).transpose()?;
            let dice = Dice::new((number << 32 | task) as u64);
            let (manager, stopped, here) = (manager.clone(), stopped.clone(), Handle::current());
            let mut worker = Worker { row, task, ttl, clock, manager, resource, dice, stopped };
            tasks.push(match row.way {
                Way::Block => spawn_blocking(move || worker.block(&here)),
                _ => local.spawn_local(async move { worker.work().await }),
            });
        }
        managers.push(manager);
    }
    local.run_until(tokio::io::stdin().read_to_end(&mut Vec::new())).await?;
    drop(stop);
    for task in tasks {
        local.run_until(task).await??;
    }
    for manager in managers {
        // The test looks for the keys that it left.
        let _ = manager.close(CLOSE).await;
    }
    Ok(())
}

/// One task.
struct Worker {
    row: &'static Workload,
    task: usize,
    ttl: Duration,
    clock: Clock,
    manager: LockManager,
    resource: Option<Resource>,
    dice: Dice,
    stopped: watch::Receiver<()>,
}

impl Worker {
    fn is_stopped(&self) -> bool {
        self.stopped.has_changed().is_err()
    }

    async fn work(&mut self) -> Outcome {
        while !self.is_stopped() {
            let (part, request) = (self.part(), (self.row.request)(&self.manager, self.task));
            let request = if part.0 > 100 { request.auto_renew() } else { request };
            // How a release ends is the nodes' business: some have forgotten it.
            if self.row.way == Way::Both {
                let Some(permits) = self.acquire(request.several(2)).await else { continue };
                self.hold(&permits.parts()[0].lease(), part).await?;
                let _ = permits.release().await;
            } else {
                let Some(guard) = self.acquire(request.into_future()).await else { continue };
                self.hold(&guard.lease(), part).await?;
                let _ = guard.release().await;
            }
            // Else it would be first again.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// The same on a thread. A wait is not cancelled: the others release after a short work.
    fn block(&mut self, here: &Handle) -> Outcome {
        while !self.is_stopped() {
            let (part, request) = (self.part(), (self.row.request)(&self.manager, self.task));
            let held = request.with_blocking(|lease| here.block_on(self.hold(&lease, part)));
            held.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    /// Waits for a lock until the process is asked to end.
    async fn acquire<T>(
        &mut self,
        request: impl Future<Output = Result<T, LockError>>,
    ) -> Option<T> {
        let acquired = tokio::select! {
            acquired = request => acquired,
            _ = self.stopped.changed() => return None,
        };
        if acquired.as_ref().is_err_and(|error| !error.is_held()) {
            tokio::time::sleep(PAUSE).await;
        }
        acquired.ok()
    }

    /// For how long to hold, in percent. Many holds are short, some take most of the ttl, and some are renewed past it.
    fn part(&self) -> (usize, usize) {
        match self.dice.below(10) {
            _ if self.ttl > LONG => (0, 100),
            0..4 => (0, 5),
            4..8 => (60, 95),
            _ => (110, 250),
        }
    }

    /// Reads, holds, writes under the token if the lease still holds by then, and reports.
    async fn hold(&mut self, lease: &Lease, (least, most): (usize, usize)) -> Outcome {
        let (name, acquired, way) = (lease.keys()[0].to_string(), now(), self.row.way);
        let number = name.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        let token = lease.fencing_token().map_or(0, FencingToken::get);
        let mut hold = Hold {
            // The number that ends the name. Several permits are one lock.
            lock: if way == Way::Both { 0 } else { number.parse().unwrap_or(0) },
            reads: way == Way::Read && self.task > 0,
            acquired,
            token,
            ..Hold::default()
        };
        let seen = self.resource.as_mut().map(|resource| resource.read(token)).transpose()?;
        let mut length = if self.ttl > LONG { PAUSE } else { lease.remaining() };
        length = self.dice.part(length, least, most);
        let lost = tokio::select! {
            _ = lease.lost() => true,
            () = tokio::time::sleep(length) => false,
        };
        let resource = self.resource.as_mut().filter(|_| !lost && lease.is_valid());
        if let (Some(resource), Some(seen)) = (resource, seen) {
            hold.written = u32::from(resource.write(token, seen)?);
            hold.refused = 1 - hold.written;
        }
        hold.end = now().min(self.clock.at(lease.valid_until()));
        println!("{hold}");
        Ok(())
    }
}
