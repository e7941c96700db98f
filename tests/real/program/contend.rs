//! A process whose managers and tasks contend for all locks, and report each hold.

#![expect(clippy::disallowed_methods, reason = "it holds for a while")]

use std::time::Duration;

use quorate::{LockGuard, LockManager};
use quorate_tests::clock::{Clock, now};
use quorate_tests::dice::Dice;
use quorate_tests::judge::{Hold, LOCKS};
use quorate_tests::resource::Resource;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;

use crate::{Outcome, connect};

/// In each process. A lock that one releases does not go to its own waiters before those of others.
const MANAGERS: u64 = 2;

/// Of a manager, for each lock.
const TASKS: u64 = 2;

/// For what is left when all is over.
const CLOSE: Duration = Duration::from_secs(10);

/// The process. It ends when its input does.
#[tokio::main(worker_threads = 2)]
pub(crate) async fn run(words: &[&str]) -> Outcome {
    let [client, port, ttl, guard, seed, addresses @ ..] = words else {
        return Err("contend redis|fred PORT TTL-MS on|off SEED ADDRESS…".into());
    };
    let (port, seed): (u16, u64) = (port.parse()?, seed.parse()?);
    let ttl = Duration::from_millis(ttl.parse()?);
    let clock = Clock::start();
    let (stop, stopped) = watch::channel(());
    let (mut managers, mut tasks) = (Vec::new(), Vec::new());
    for number in 0..MANAGERS {
        let builder =
            LockManager::builder(connect(client, addresses)?).ttl(ttl).wait_timeout(3 * ttl);
        let manager = if *guard == "on" { builder.restart_guard(ttl) } else { builder }.build()?;
        for (lock, task) in (0..LOCKS).flat_map(|lock| (0..TASKS).map(move |task| (lock, task))) {
            let worker = Worker {
                ttl,
                clock,
                manager: manager.clone(),
                lock,
                resource: Resource::open(port, &lock.to_string())?,
                dice: Dice::new(seed ^ (number << 32 | task << 16 | (lock as u64) << 8)),
            };
            tasks.push(tokio::spawn(worker.work(stopped.clone())));
        }
        managers.push(manager);
    }
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    drop(stop);
    for task in tasks {
        task.await??;
    }
    for manager in managers {
        // What it left is gone after the ttl, which the test checks.
        let _ = manager.close(CLOSE).await;
    }
    Ok(())
}

/// One task.
struct Worker {
    ttl: Duration,
    clock: Clock,
    manager: LockManager,
    lock: usize,
    resource: Resource,
    dice: Dice,
}

impl Worker {
    async fn work(mut self, mut stopped: watch::Receiver<()>) -> Outcome {
        let name = format!("contended:{}", self.lock);
        loop {
            let guard = tokio::select! {
                guard = self.manager.lock(&*name).fenced() => guard,
                _ = stopped.changed() => return Ok(()),
            };
            match guard {
                Ok(guard) => {
                    let hold = self.hold(guard).await?;
                    println!("{hold}");
                    // Else it would be first again.
                    tokio::task::yield_now().await;
                }
                Err(error) if error.is_held() => {}
                Err(_) => tokio::time::sleep(self.ttl / 20).await,
            }
        }
    }

    /// Reads, holds, writes under the token if the lease still holds by then, and releases.
    async fn hold(&mut self, guard: LockGuard) -> Outcome<Hold> {
        let acquired = now();
        let token = guard.fencing_token().ok_or("a fenced lock without a token")?;
        let seen = self.resource.read(token.get())?;
        let length = self.length(&guard);
        let lost = tokio::time::timeout(length, guard.lost()).await.is_ok();
        let (mut refused, mut written) = (0, 0);
        if !lost && guard.is_valid() {
            written = u32::from(self.resource.write(token.get(), seen)?);
            refused = 1 - written;
        }
        let end = now().min(self.clock.at(guard.valid_until()));
        // How it ends is the nodes' business: some have forgotten it.
        let _ = guard.release().await;
        Ok(Hold { lock: self.lock, acquired, end, token: token.get(), refused, written })
    }

    /// Many holds are short, some take most of the ttl, and some are renewed past it.
    fn length(&mut self, guard: &LockGuard) -> Duration {
        let left = guard.remaining();
        match self.dice.below(10) {
            0..4 => self.dice.part(left, 0, 5),
            4..8 => self.dice.part(left, 60, 95),
            _ => {
                guard.auto_renew();
                self.dice.part(left, 110, 250)
            }
        }
    }
}
