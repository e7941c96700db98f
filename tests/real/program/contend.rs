//! A client process: managers and tasks that contend for all locks, and report each hold.
//!
//! `restarts client redis|fred REFEREE-PORT TTL-MS on|off SEED ADDRESS…`

#![expect(clippy::disallowed_methods, reason = "it holds for a while")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use quorate::{FencedCell, LockError, LockGuard, LockManager, LockManagerBuilder};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;

use crate::clock::{Clock, now};
use crate::dice::Dice;
use crate::judge::Hold;
use crate::plan::{Guard, LOCKS};
use crate::resource::Resource;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// In each process. A lock that one releases does not go to its own waiters before those of others.
const MANAGERS: u64 = 2;

/// Of a manager, for each lock.
const TASKS: u64 = 2;

/// For what is left when all is over.
const CLOSE: Duration = Duration::from_secs(10);

/// The process. It ends when its input does.
///
/// # Errors
///
/// What the resource's connection says, or what is wrong with the words.
pub fn main(words: impl IntoIterator<Item = String>) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime?.block_on(run(words.into_iter().collect()))
}

async fn run(words: Vec<String>) -> Outcome {
    let [client, port, ttl, guard, seed, addresses @ ..] = &words[..] else {
        return Err("redis|fred REFEREE-PORT TTL-MS on|off SEED ADDRESS…".into());
    };
    let (port, seed): (u16, u64) = (port.parse()?, seed.parse()?);
    let ttl = Duration::from_millis(ttl.parse()?);
    let guard = Guard::parse(guard).ok_or("on|off")?;
    let shared = Arc::new(Shared::new(ttl));
    let (stop, stopped) = watch::channel(());
    let (mut managers, mut tasks) = (Vec::new(), Vec::new());
    for number in 0..MANAGERS {
        let manager = builder(client, addresses, ttl, guard)?.ttl(ttl).timeout(3 * ttl).build()?;
        for (lock, task) in (0..LOCKS).flat_map(|lock| (0..TASKS).map(move |task| (lock, task))) {
            let resource = Resource::open(port, lock, Arc::clone(&shared.cells[lock as usize]))?;
            let worker = Worker {
                shared: Arc::clone(&shared),
                manager: manager.clone(),
                lock,
                resource,
                dice: Dice::new(seed ^ (number << 32 | task << 16 | u64::from(lock) << 8)),
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
        // What it left is gone after the ttl, which `run` checks.
        let _ = manager.close(CLOSE).await;
    }
    shared.tell();
    Ok(())
}

fn builder(
    client: &str,
    addresses: &[String],
    ttl: Duration,
    guard: Guard,
) -> Outcome<LockManagerBuilder> {
    let addresses = addresses.iter().cloned();
    let builder = match client {
        "redis" => LockManager::builder(quorate::redis::connect(addresses)?),
        "fred" => LockManager::builder(quorate::fred::connect(addresses)?),
        other => return Err(format!("no client is called {other}").into()),
    };
    Ok(match guard {
        Guard::On => builder.restart_guard(ttl),
        Guard::Off => builder,
    })
}

/// What the tasks of a process share beside the locks.
struct Shared {
    ttl: Duration,
    clock: Clock,
    /// A counter for each lock.
    cells: Vec<Arc<FencedCell<u32>>>,
    /// Writes that the cells acknowledged.
    written: Vec<AtomicU32>,
    /// Requests that ended without a lock: by another hold, or for lack of nodes.
    held: AtomicU64,
    failed: AtomicU64,
}

impl Shared {
    fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            clock: Clock::start(),
            cells: (0..LOCKS).map(|_| Arc::default()).collect(),
            written: (0..LOCKS).map(|_| AtomicU32::new(0)).collect(),
            held: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    fn tell(&self) {
        for (cell, written) in self.cells.iter().zip(&self.written) {
            let counted =
                cell.highest().map_or(0, |highest| cell.write(highest, |c| *c).unwrap_or(0));
            say(&format!("cell {counted} {}", written.load(Ordering::SeqCst)));
        }
        let (held, failed) = (&self.held, &self.failed);
        say(&format!("missed {} {}", held.load(Ordering::SeqCst), failed.load(Ordering::SeqCst)));
    }
}

/// A line to the process that started this one.
#[expect(clippy::print_stdout, reason = "it is listened to")]
fn say(line: &str) {
    println!("{line}");
}

/// One task.
struct Worker {
    shared: Arc<Shared>,
    manager: LockManager,
    lock: u32,
    resource: Resource,
    dice: Dice,
}

impl Worker {
    async fn work(mut self, mut stopped: watch::Receiver<()>) -> Outcome {
        let name = format!("contended:{}", self.lock);
        loop {
            let request = self.manager.lock(&*name).fenced();
            let guard = tokio::select! {
                guard = request => guard,
                _ = stopped.changed() => return Ok(()),
            };
            match guard {
                Ok(guard) => {
                    let hold = self.hold(guard).await?;
                    say(&format!("hold {hold}"));
                    // Else it would be first again.
                    tokio::task::yield_now().await;
                }
                Err(LockError::Held(_)) => {
                    self.shared.held.fetch_add(1, Ordering::SeqCst);
                }
                Err(_) => {
                    self.shared.failed.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(self.shared.ttl / 20).await;
                }
            }
        }
    }

    /// Reads, holds, writes under the token if the lease still holds by then, and releases.
    async fn hold(&mut self, guard: LockGuard) -> Outcome<Hold> {
        let acquired = now();
        let token = guard.fencing_token().ok_or("a fenced lock without a token")?;
        let seen = self.resource.read(token)?;
        let length = self.length(&guard);
        let lost = tokio::time::timeout(length, guard.lost()).await.is_ok();
        let (mut refused, mut written) = (0, 0);
        if !lost && guard.is_valid() {
            let result = self.resource.write(token, seen)?;
            refused = u32::from(!result.store) + u32::from(!result.cell);
            written = u32::from(result.store);
            let acknowledged = &self.shared.written[self.lock as usize];
            acknowledged.fetch_add(u32::from(result.cell), Ordering::SeqCst);
        }
        let end = now().min(self.shared.clock.at(guard.valid_until()));
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
