//! Counts of a lock and its release on in-memory nodes: no times, the same in every run.
//!
//! Allocations include those of the simulated runtime. The rows *the calls alone* make the same calls
//! to the same nodes without quorate; *difference* is the share of quorate. The other columns count the
//! calls of quorate to its runtime. The nodes use another one.
//!
//! With `RUSTFLAGS="--cfg quorate_count"` it also counts the mutexes that quorate locks.

#![allow(clippy::print_stdout, reason = "figures for a terminal")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use quorate_core::backend::{
    AcquireOptions, Claim, LockBackend as _, Operation, ReleaseOptions, ask,
};
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{Key, LockManager, Resource, Runtime, Token, Ttl};
use quorate_memory::{MemoryNode, Sim};

const CYCLES: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:34} {}", "per operation", COLUMNS.map(|column| format!("{column:>9}")).join(""));
    for nodes in [1, 3, 5, 7] {
        let bench = Bench::new(nodes)?;
        let cycle = bench.count(|| bench.cycle());
        let calls = bench.count(|| bench.calls()).less_allocations(2 * nodes);
        let nodes = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
        show(&format!("lock and release, {nodes}"), &cycle);
        show("  the calls alone", &calls);
        show("  difference", &cycle.minus(&calls));
    }
    let bench = Bench::new(5)?;
    let [manager, other] = &bench.managers;
    let three_keys = bench.count(|| {
        if let Ok(guard) = bench.sim.block_on(manager.lock(["a", "b", "c"]).no_wait()) {
            let _ = bench.sim.block_on(guard.release());
        }
    });
    show("lock and release 3 keys, 5 nodes", &three_keys);
    let guard = bench.sim.block_on(manager.lock("held").no_wait())?;
    let refused = bench.count(|| {
        let _ = bench.sim.block_on(other.lock("held").no_wait());
        bench.sim.settle();
    });
    show("a refused try, 5 nodes", &refused);
    let extended = bench.count(|| {
        let _ = bench.sim.block_on(guard.extend());
    });
    show("extend, 5 nodes", &extended);
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
        let bench = Self { sim, begun, managers, asked, claim };
        for _ in 0..3 {
            bench.cycle();
            bench.calls();
        }
        Ok(bench)
    }

    fn cycle(&self) {
        if let Ok(guard) = self.sim.block_on(self.managers[0].lock("r").no_wait()) {
            let _ = self.sim.block_on(guard.release());
        }
    }

    /// Makes the calls of a cycle: an acquire and a release on each node. Each allocates once more than a call of
    /// quorate, for the place of its answer.
    fn calls(&self) {
        let acquire = Operation::Acquire(self.claim.clone(), AcquireOptions::default());
        let release = Operation::Release(self.claim.clone(), ReleaseOptions::default());
        for operation in [acquire, release] {
            for node in &self.begun {
                let (call, asked) = ask(operation.clone(), self.sim.now());
                let _ = Arc::clone(node).begin(call, &self.sim);
                drop(asked);
            }
        }
    }

    /// Repeats `operation` and counts.
    fn count(&self, operation: impl Fn()) -> Counts {
        let before = self.asked.read();
        let locks = mutex_locks();
        let memory = measure(|| (0..CYCLES).for_each(|_| operation()));
        let after = self.asked.read();
        let each = |total: u64| total as f64 / CYCLES as f64;
        let asked = |place: usize| each(after[place] - before[place]);
        Counts([
            Some(each(memory.count_total)),
            Some(each(memory.bytes_total)),
            Some(memory.bytes_max as f64),
            Some(asked(0)),
            Some(asked(1)),
            Some(asked(2)),
            Some(asked(3)),
            mutex_locks().zip(locks).map(|(after, before)| each(after - before)),
        ])
    }
}

const COLUMNS: [&str; 8] =
    ["allocs", "bytes", "peak", "spawns", "timers", "clock", "random", "mutexes"];

/// Counts per operation, in the order of [`COLUMNS`]; `None` if unknown.
struct Counts([Option<f64>; 8]);

impl Counts {
    fn less_allocations(mut self, allocations: usize) -> Self {
        self.0[0] = self.0[0].map(|all| all - allocations as f64);
        self
    }

    /// The peak is a maximum, not a sum: it has no difference.
    fn minus(&self, other: &Self) -> Self {
        let mut difference = self.0;
        for (value, less) in difference.iter_mut().zip(other.0) {
            *value = value.zip(less).map(|(value, less)| value - less);
        }
        difference[2] = None;
        Self(difference)
    }
}

fn show(what: &str, counts: &Counts) {
    let cell = |count: &Option<f64>| count.map_or_else(|| "–".to_owned(), |it| format!("{it:.1}"));
    let cells = counts.0.iter().map(|count| format!("{:>9}", cell(count)));
    println!("{what:34} {}", cells.collect::<String>());
}

/// The number of mutexes that quorate has locked; `None` if it was built without counters.
#[cfg(quorate_count)]
fn mutex_locks() -> Option<u64> {
    Some(quorate_core::runtime::counters().mutex_locks)
}

/// The number of mutexes that quorate has locked; `None` if it was built without counters.
#[cfg(not(quorate_count))]
const fn mutex_locks() -> Option<u64> {
    None
}

/// The calls to a runtime.
#[derive(Debug, Default)]
struct Asked {
    spawns: AtomicU64,
    timers: AtomicU64,
    clock: AtomicU64,
    random: AtomicU64,
}

impl Asked {
    /// Reads the counts in the order of [`COLUMNS`].
    fn read(&self) -> [u64; 4] {
        [&self.spawns, &self.timers, &self.clock, &self.random]
            .map(|count| count.load(Ordering::Relaxed))
    }
}

/// The simulated runtime, with a count of each call.
#[derive(Debug)]
struct Counted {
    sim: Sim,
    asked: Arc<Asked>,
}

fn add_one(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Runtime for Counted {
    fn now(&self) -> Instant {
        add_one(&self.asked.clock);
        self.sim.now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        add_one(&self.asked.timers);
        self.sim.sleep_until(deadline)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        add_one(&self.asked.spawns);
        self.sim.spawn(task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        add_one(&self.asked.random);
        self.sim.fill_random(bytes)
    }

    fn unix_micros(&self) -> u64 {
        add_one(&self.asked.clock);
        self.sim.unix_micros()
    }
}
