//! A worker: a process that runs one job with one contestant.
//!
//! It prints `ready`, waits for a line, runs the job, prints its metrics and `done`, waits for a line,
//! closes, and ends.

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use allocation_counter::{measure, opt_out};
use quorate_tests::clock;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use crate::Outcome;
use crate::book::percentile;
use crate::contest::{self, ByHand, Contestant, Fred, Quorate, Redis, Rslock};
use crate::usage;

/// What a worker does, as JSON on its command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) kind: String,
    pub(crate) contestant: String,
    pub(crate) threads: usize,
    pub(crate) count: usize, // How many tasks or contenders.
    pub(crate) first: usize, // The number of the first contender.
    pub(crate) ttl: Duration,
    pub(crate) hold: Duration,
    pub(crate) time: Duration,
    pub(crate) cycles: usize, // If no time ends it.
    pub(crate) addresses: Vec<String>,
    pub(crate) pids: Vec<String>,
}

/// How many cycles are made while allocations are counted.
const COUNTED: usize = 640;

pub(crate) fn main(words: &[String]) -> Outcome {
    let job: Job = serde_json::from_str(words.first().ok_or("no job")?)?;
    let mut builder = match job.threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(job.threads).enable_all().build()?;
    match &*job.contestant {
        contest::BARE_REDIS => run::<ByHand<Redis>>(&runtime, &job),
        contest::BARE_FRED => run::<ByHand<Fred>>(&runtime, &job),
        contest::RSLOCK => run::<Rslock>(&runtime, &job),
        _ => run::<Quorate>(&runtime, &job),
    }
}

/// Connects the contestant, and makes one cycle.
async fn connect<C: Contestant>(job: &Job) -> Outcome<Arc<C>> {
    let contestant = C::connect(&job.contestant, job.addresses.clone(), job.ttl).await?;
    if let Some(held) = contestant.acquire(&format!("race:warm:{}", std::process::id())).await {
        contestant.release(held).await;
    }
    Ok(Arc::new(contestant))
}

fn run<C: Contestant>(runtime: &Runtime, job: &Job) -> Outcome {
    let contestant = runtime.block_on(connect::<C>(job))?;
    match &*job.kind {
        "cycle" => runtime.block_on(cycle(&contestant, job))?,
        "count" => count(runtime, &contestant, job)?,
        _ => runtime.block_on(contend_all(&contestant, job))?,
    }
    runtime.block_on(stop_at("done"))?;
    runtime.block_on(contestant.close());
    Ok(())
}

/// Makes as many cycles as the job says, without the work of counting allocations, and then some with it.
fn count<C: Contestant>(runtime: &Runtime, contestant: &Arc<C>, job: &Job) -> Outcome {
    let (mut made, mut counted) = (Ok(()), Ok(()));
    opt_out(|| made = runtime.block_on(cycles(contestant, job.count, job.cycles)));
    let allocated = measure(|| counted = runtime.block_on(cycles(contestant, job.count, COUNTED)));
    metric("allocations", allocated.count_total as f64 / COUNTED as f64);
    made.and(counted)
}

/// Makes so many cycles, an equal share in each task. Each has to succeed.
async fn cycles<C: Contestant>(contestant: &Arc<C>, tasks: usize, cycles: usize) -> Outcome {
    let one = |task| {
        let contestant = Arc::clone(contestant);
        tokio::spawn(async move {
            for number in 0..cycles / tasks {
                let held = contestant.acquire(&format!("race:count:{task}:{number}")).await;
                let held = held.ok_or("a cycle failed")?;
                contestant.release(held).await;
            }
            Outcome::Ok(())
        })
    };
    let tasks: Vec<_> = (0..tasks).map(one).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// Acquires and releases uncontended locks without pause.
async fn cycle<C: Contestant>(contestant: &Arc<C>, job: &Job) -> Outcome {
    cycle_all(contestant, job.count, "w", Duration::from_millis(50)).await?;
    stop_at("ready").await?;
    let (own, theirs, start) = (usage::own_cpu(), usage::cpu_of(&job.pids), Instant::now());
    let (times, failed) = cycle_all(contestant, job.count, "c", job.time).await?;
    let (elapsed, cycles) = (start.elapsed().as_secs_f64(), times.len() as f64);
    let each = |now: Duration, before| now.saturating_sub(before).as_secs_f64() * 1e6 / cycles;
    metric("cycle p50 µs", percentile(&times, 50.0));
    metric("cycle p99 µs", percentile(&times, 99.0));
    metric("cycles/s", cycles / elapsed);
    metric("client CPU µs/cycle", each(usage::own_cpu(), own));
    metric("node CPU µs/cycle", each(usage::cpu_of(&job.pids), theirs));
    metric("failed", failed);
    Ok(())
}

/// Returns the times of all cycles in microseconds, and how many failed.
async fn cycle_all<C: Contestant>(
    contestant: &Arc<C>,
    tasks: usize,
    name: &str,
    time: Duration,
) -> Outcome<(Vec<f64>, u64)> {
    let deadline = Instant::now() + time;
    let one = |task| {
        let prefix = format!("race:{}:{name}:{task}", std::process::id());
        let contestant = Arc::clone(contestant);
        tokio::spawn(async move {
            let (mut times, mut failed, mut start) = (Vec::new(), 0, Instant::now());
            while start < deadline {
                let number = times.len() as u64 + failed;
                let released = match contestant.acquire(&format!("{prefix}:{number}")).await {
                    Some(held) => contestant.release(held).await,
                    None => false,
                };
                let end = Instant::now();
                match released {
                    true => times.push((end - start).as_secs_f64() * 1e6),
                    false => failed += 1,
                }
                start = end;
            }
            (times, failed)
        })
    };
    let tasks: Vec<_> = (0..tasks).map(one).collect();
    let mut all = (Vec::new(), 0);
    for task in tasks {
        let (times, failed) = task.await?;
        all.0.extend(times);
        all.1 += failed;
    }
    Ok(all)
}

/// Reports for each hold: contender, and when it asked, acquired, began to release.
async fn contend_all<C: Contestant>(contestant: &Arc<C>, job: &Job) -> Outcome {
    stop_at("ready").await?;
    let (deadline, hold) = (Instant::now() + job.time, job.hold);
    let contend = |_| tokio::spawn(contend(Arc::clone(contestant), deadline, hold));
    let tasks: Vec<_> = (0..job.count).map(contend).collect();
    for (who, task) in (job.first..).zip(tasks) {
        for [asked, acquired, releasing] in task.await? {
            println!("event {who} {asked} {acquired} {releasing}");
        }
    }
    Ok(())
}

async fn contend<C: Contestant>(
    contestant: Arc<C>,
    deadline: Instant,
    hold: Duration,
) -> Vec<[u64; 3]> {
    let mut events = Vec::new();
    while Instant::now() < deadline {
        let asked = clock::now();
        let Some(held) = contestant.acquire_until("race:contended", deadline).await else {
            break;
        };
        let acquired = clock::now();
        // The sleep of a thread: tokio's timer would add up to 1 ms.
        let rest = tokio::task::spawn_blocking(move || std::thread::sleep(hold));
        if rest.await.is_err() {
            break;
        }
        let releasing = clock::now();
        contestant.release(held).await;
        events.push([asked, acquired, releasing]);
    }
    events
}

fn metric(name: &str, value: impl fmt::Display) {
    println!("metric {name} {value}");
}

/// Prints `word` and waits for a line without blocking other tasks.
async fn stop_at(word: &str) -> Outcome {
    println!("{word}");
    let read = tokio::task::spawn_blocking(|| io::stdin().read_line(&mut String::new()));
    match read.await?? {
        0 => Err("the race is over".into()),
        _ => Ok(()),
    }
}
