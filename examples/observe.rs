//! A minute in which a node hangs, reported by `tracing` and `metrics`. In virtual time: it takes none.
//!
//! The events and metrics are listed in `quorate::telemetry`. With `debug` as an argument it prints more.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;
use std::{fmt, io};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshot};
use quorate::memory::{Effect, Fault, MemoryNode, Rule, Sim};
use quorate::{LockManager, Runtime};
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

const SECOND: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let sim = Sim::new(1);
    let debug = std::env::args().any(|argument| argument == "debug");
    tracing_subscriber::fmt()
        .with_max_level(if debug { Level::DEBUG } else { Level::INFO })
        .with_timer(VirtualTime(sim.clone()))
        .with_writer(io::stdout)
        .log_internal_errors(false)
        .init();
    // A program would install the recorder of an exporter, for Prometheus say.
    let recorder = DebuggingRecorder::new();
    let figures = recorder.snapshotter();
    recorder.install()?;

    let nodes = MemoryNode::cluster(3, sim.clone());
    for node in &nodes {
        let (least, most) = (SECOND / 1000, SECOND / 250);
        node.add_rule(Rule::new(Effect::Delay { least, most }));
    }
    let locks = LockManager::builder(nodes.clone()).runtime(sim.clone()).ttl(4 * SECOND).build()?;
    for worker in 1..=4 {
        sim.spawn(Box::pin(work(worker, locks.clone(), sim.clone())));
    }
    let mut table = Table::default();

    sim.advance(30 * SECOND);
    table.add(0, figures.snapshot());
    nodes[1].inject(Fault::Hung);
    sim.advance(24 * SECOND);
    nodes[1].heal();
    sim.advance(6 * SECOND);
    table.add(1, figures.snapshot());

    println!("\n{table}");
    Ok(())
}

/// Takes the lock again and again, and works under it for half a second.
async fn work(worker: u32, locks: LockManager, clock: Sim) {
    let pause = async |time: Duration| clock.sleep_until(clock.now() + time).await;
    for turn in 1.. {
        pause(worker * SECOND / 2).await;
        match locks.lock("stock:7").timeout(10 * SECOND).await {
            // Once, the work takes longer than the lease lasts, and it is not renewed.
            Ok(guard) if worker == 3 && turn == 10 => {
                tracing::info!(worker, "this will take a while");
                if let Err(stopped) = guard.run(pause(6 * SECOND)).await {
                    tracing::info!(worker, "{stopped}");
                }
            }
            Ok(_guard) => pause(SECOND / 2).await,
            Err(error) => tracing::info!(worker, %error, "no lock"),
        }
    }
}

/// The figures of each half minute, side by side.
#[derive(Default)]
struct Table(BTreeMap<String, [String; 2]>);

impl Table {
    fn add(&mut self, half: usize, figures: Snapshot) {
        let mut cells: Vec<_> = figures.into_vec();
        cells.sort_by(|(a, ..), (b, ..)| a.key().cmp(b.key()));
        for (key, _, _, value) in cells {
            let mut row = key.key().name().to_owned();
            let Some(mut cell) = shown(&value) else { continue };
            for label in key.key().labels() {
                match label.key() {
                    "node" | "operation" => row = format!("{row} {}", label.value()),
                    _ => cell = format!("{cell} {}  ", label.value()),
                }
            }
            self.0.entry(row).or_default()[half] += &cell;
        }
    }
}

/// `None` if nothing was measured.
fn shown(value: &DebugValue) -> Option<String> {
    match value {
        DebugValue::Counter(0) => None,
        DebugValue::Counter(count) => Some(count.to_string()),
        DebugValue::Gauge(value) => Some(value.to_string()),
        DebugValue::Histogram(values) => {
            let mut seconds: Vec<f64> = values.iter().map(|value| value.0).collect();
            seconds.sort_by(f64::total_cmp);
            let (middle, last) = (seconds.get(seconds.len() / 2)?, seconds.last()?);
            Some(format!("p50 {middle:.3} s, max {last:.3} s"))
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<46} {:<34} memory-2 hangs", "", "all nodes answer")?;
        for (row, [well, ill]) in &self.0 {
            writeln!(f, "{row:<46} {well:<34} {}", ill.trim_end())?;
        }
        Ok(())
    }
}

/// The clock of the world, in place of the wall's.
struct VirtualTime(Sim);

impl FormatTime for VirtualTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{:6.2}s", self.0.elapsed().as_secs_f64())
    }
}
