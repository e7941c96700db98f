//! Many locks held by one process, and kept alive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use quorate::LockGuard;

use super::{connect, finish, metric, ready};
use crate::Outcome;
use crate::contest::Manages;
use crate::spec::Spec;
use crate::usage;

const AT_ONCE: usize = 64;

/// A worker that has not acquired all by then goes on with those acquired so far.
const LONGEST: Duration = Duration::from_secs(20);

/// For the answers of the nodes that were not in the quorum.
const LATE_ANSWERS: Duration = Duration::from_secs(1);

/// `count` leases, `keep=1` if they are kept alive, watched for `seconds`.
pub(super) async fn run<C: Manages>(spec: &Spec) -> Outcome {
    let contestant = Arc::new(connect::<C>(spec).await?);
    let (count, keeps) = (spec.number::<usize>("count")?, spec.number::<u8>("keep")? == 1);
    if let Some(held) = contestant.acquire("race:warm").await {
        contestant.release(held).await;
    }
    // What is allocated once is not counted per lease.
    let mut guards: Vec<LockGuard> = Vec::with_capacity(count);
    let (memory, start) = (usage::rss(), Instant::now());
    let mut taking = stream::iter(0..count)
        .map(|number| {
            let contestant = Arc::clone(&contestant);
            async move { contestant.manager().lock(format!("race:lease:{number}")).await }
        })
        .buffer_unordered(AT_ONCE);
    while let Some(guard) = taking.next().await {
        // More than this machine can keep alive: the leases acquired so far will do.
        let Ok(guard) = guard else {
            break;
        };
        if keeps {
            guard.auto_renew();
        }
        guards.push(guard);
        if start.elapsed() > LONGEST {
            break;
        }
    }
    drop(taking);
    let count = guards.len();
    metric("taken", count);
    metric("taken/s", count as f64 / start.elapsed().as_secs_f64());
    tokio::time::sleep(LATE_ANSWERS).await;
    metric("bytes/lease", (usage::rss() as f64 - memory as f64) / count.max(1) as f64);

    ready().await?;
    let (cpu, time) = (usage::cpu("self"), spec.time("seconds")?);
    let start = Instant::now();
    tokio::time::sleep(time).await;
    let busy = usage::cpu("self").saturating_sub(cpu).as_secs_f64() / start.elapsed().as_secs_f64();
    metric("CPU %", busy * 100.0);
    metric("late wake-up ms", (start.elapsed() - time).as_secs_f64() * 1e3);
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    metric("lost", lost);
    println!("done");
    super::told().await?;

    let start = Instant::now();
    let mut giving = stream::iter(guards).map(LockGuard::release).buffer_unordered(AT_ONCE);
    while giving.next().await.is_some() {}
    metric("released/s", count as f64 / start.elapsed().as_secs_f64());
    finish(&*contestant).await
}
