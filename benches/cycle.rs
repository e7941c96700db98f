//! What a lock and its release cost on in-memory nodes: counts, the same in every run, and a time.
//!
//! Allocations include those of the simulated runtime. The rows *the calls alone* make the same calls to the same
//! nodes without quorate; *difference* is the share of quorate. The other columns count the calls of quorate to
//! its runtime. The nodes use another one. The time is that of the fastest of ten batches.

#![allow(clippy::print_stdout, reason = "figures for a terminal")]

use std::array;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use futures_util::future::join_all;
use quorate_core::backend::{
    AcquireOptions, Claim, LockBackend as _, Operation, ReleaseOptions, Ttl, ask,
};
use quorate_core::resource::{Key, Resource, Token};
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{LockManager, Runtime};
use quorate_memory::{MemoryNode, Sim};
use quorate_pure::core_source::algorithm::attempt::{Action, AttemptMachine, Outcome, Settings};
use quorate_pure::core_source::algorithm::lease::Ttl as PureTtl;
use quorate_pure::core_source::algorithm::quorum::NodeCount;

const CYCLES: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:34} {}", "per operation", COLUMNS.map(|column| format!("{column:>9}")).join(""));
    for nodes in [1, 3, 5, 7] {
        let bench = Bench::new(nodes)?;
        let cycle = bench.count(|| bench.cycle("r"));
        let mut calls = bench.count(|| bench.calls());
        // Each of these calls allocates once more than a call of quorate, for the place of its answer.
        calls[0] -= 2.0 * nodes as f64;
        show(&format!("lock and release, nodes: {nodes}"), &cycle);
        show("  the calls alone", &calls);
        show("  difference", &array::from_fn(|column| cycle[column] - calls[column]));
    }
    let bench = Bench::new(5)?;
    let Bench { sim, managers: [manager, other], .. } = &bench;
    show("lock and release 3 keys, nodes: 5", &bench.count(|| bench.cycle(["a", "b", "c"])));
    let longest = Duration::from_secs(100_000);
    let guard = sim.block_on(manager.lock("held").ttl(longest).no_wait())?;
    let refused = bench.count(|| {
        assert!(sim.block_on(other.lock("held").no_wait()).is_err());
        sim.advance(Duration::from_millis(1));
    });
    show("a refused try, nodes: 5", &refused);
    let extend = bench.count(|| assert!(sim.block_on(guard.extend()).is_ok()));
    show("extend, nodes: 5", &extend);
    let eight = bench.count(|| {
        let once = async |manager: &LockManager| manager.lock("c").await.ok()?.release().await.ok();
        sim.block_on(join_all((0..8).map(|number| once([manager, other][number % 2]))));
    });
    show("eight contenders, once each", &eight);
    show("the pure attempt alone, nodes: 5", &bench.count(attempt));
    Ok(())
}

/// Two processes that share nodes, with connections made and caches filled.
struct Bench {
    sim: Sim,
    begun: Vec<Arc<MemoryNode>>,
    managers: [LockManager; 2],
    asked: Arc<Asked>,
    claim: Claim,
}

impl Bench {
    fn new(nodes: usize) -> Result<Self, Box<dyn Error>> {
        let (sim, asked) = (Sim::new(1), Arc::<Asked>::default());
        let nodes = MemoryNode::cluster(nodes, sim.clone());
        let manager = || {
            let runtime = Counted { sim: sim.clone(), asked: Arc::clone(&asked) };
            LockManager::builder(nodes.iter().cloned()).runtime(runtime).build()
        };
        let managers = [manager()?, manager()?];
        let token = Token::draw(|bytes| sim.fill_random(bytes))?;
        let key = Key::new(b"", &Resource::new("alone")?);
        let claim = Claim::new([key], token, Ttl::try_from(Duration::from_secs(10))?);
        let begun = nodes.into_iter().map(Arc::new).collect();
        Ok(Self { sim, begun, managers, asked, claim })
    }

    fn cycle(&self, names: impl quorate_core::IntoResources) {
        if let Ok(guard) = self.sim.block_on(self.managers[0].lock(names).no_wait()) {
            let _ = self.sim.block_on(guard.release());
        }
    }

    /// Makes the calls of a cycle: an acquire and a release on each node.
    fn calls(&self) {
        let acquire = Operation::Acquire(self.claim.clone(), AcquireOptions::default());
        let release = Operation::Release(self.claim.clone(), ReleaseOptions::default());
        for operation in [acquire, release] {
            for node in &self.begun {
                drop(ask(operation.clone(), self.sim.now(), |call| {
                    Arc::clone(node).begin(call, &self.sim)
                }));
            }
        }
    }

    /// Repeats `operation`, counts, and takes the time.
    fn count(&self, operation: impl Fn()) -> Counts {
        (0..3).for_each(|_| operation());
        let read = || self.asked.0.each_ref().map(|count| count.load(Ordering::Relaxed));
        let before = read();
        let memory = measure(|| (0..CYCLES).for_each(|_| operation()));
        let after = read();
        let batch = || {
            let start = Instant::now();
            (0..CYCLES).for_each(|_| operation());
            start.elapsed().as_secs_f64()
        };
        let fastest = (0..10).map(|_| batch()).fold(f64::INFINITY, f64::min);
        let each = |total: u64| total as f64 / CYCLES as f64;
        let [spawns, timers, clock, random] = array::from_fn(|of| each(after[of] - before[of]));
        let (allocations, bytes) = (each(memory.count_total), each(memory.bytes_total));
        let micros = fastest * 1e6 / CYCLES as f64;
        [allocations, bytes, spawns, timers, clock, random, micros]
    }
}

fn attempt() {
    let ttl = PureTtl::try_from(Duration::from_secs(10));
    let (Some(nodes), Ok(ttl)) = (NodeCount::new(5), ttl) else { return };
    let mut settings = Settings::new(nodes, ttl, Duration::from_millis(500));
    settings.ordered = nodes.ids().collect();
    let now = Instant::now();
    let mut attempt = AttemptMachine::<()>::new(black_box(settings), now);
    for is_release in [false, true] {
        if is_release {
            attempt.release(now);
        }
        while let Some((_, action)) = attempt.poll_send() {
            if let Action::Send(call, _) = action {
                attempt.handle_reply(call, Outcome::Granted(None), now);
            }
        }
        black_box(attempt.results());
    }
}

/// Counts per operation, in the order of [`COLUMNS`].
type Counts = [f64; 7];

const COLUMNS: [&str; 7] = ["allocs", "bytes", "spawns", "timers", "clock", "random", "µs"];

fn show(what: &str, counts: &Counts) {
    let cells = counts.iter().map(|count| format!("{count:>9.1}"));
    println!("{what:34} {}", cells.collect::<String>());
}

/// The calls to a runtime: spawns, timers, clock readings, and random bytes.
#[derive(Debug, Default)]
struct Asked([AtomicU64; 4]);

#[derive(Debug)]
struct Counted {
    sim: Sim,
    asked: Arc<Asked>,
}

impl Counted {
    fn add(&self, what: usize) -> &Sim {
        self.asked.0[what].fetch_add(1, Ordering::Relaxed);
        &self.sim
    }
}

impl Runtime for Counted {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.add(0).spawn(task);
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.add(1).sleep_until(deadline)
    }

    fn now(&self) -> Instant {
        self.add(2).now()
    }

    fn unix_micros(&self) -> u64 {
        self.add(2).unix_micros()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.add(3).fill_random(bytes)
    }
}
