//! Many leases of one process, renewed.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use quorate::LockGuard;

use super::{connect, finish, metric, ready};
use crate::Outcome;
use crate::contest::Quorate;
use crate::spec::Spec;
use crate::usage;

const AT_ONCE: usize = 64;

/// The time limit for acquiring. After it the worker continues with fewer leases.
const LONGEST: Duration = Duration::from_secs(60);

/// The time for replies of the nodes outside the quorum.
const LATE_ANSWERS: Duration = Duration::from_secs(1);

/// Runs the job *leases*: acquires `count`, renews them, and watches them for `seconds`.
pub(super) async fn run(spec: &Spec) -> Outcome {
    let contestant = connect::<Quorate>(spec).await?;
    let (count, manager) = (spec.number::<usize>("count")?, &contestant.manager);
    // The vector is allocated here, so it is not counted per lease.
    let mut guards: Vec<LockGuard> = Vec::with_capacity(count);
    let (memory, start) = (usage::rss(), Instant::now());
    let mut taking = stream::iter(0..count)
        .map(|number| manager.lock(format!("race:lease:{number}")).into_future())
        .buffer_unordered(AT_ONCE);
    while let Some(guard) = taking.next().await {
        // This machine cannot renew more leases: continue with those acquired so far.
        let Ok(guard) = guard else {
            break;
        };
        guard.auto_renew();
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
    let bytes = || (usage::rss() as f64 - memory as f64) / count.max(1) as f64;
    metric("bytes/lease", bytes());

    ready().await?;
    let (cpu, time) = (usage::own_cpu(), spec.time("seconds")?);
    let start = Instant::now();
    tokio::time::sleep(time).await;
    let busy = (usage::own_cpu() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
    metric("CPU %", busy * 100.0);
    metric("bytes/lease at the end", bytes());
    metric("late wake-up ms", (start.elapsed() - time).as_secs_f64() * 1e3);
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    metric("lost", lost);
    println!("done");
    super::next_line().await?;

    let start = Instant::now();
    let mut giving = stream::iter(guards).map(LockGuard::release).buffer_unordered(AT_ONCE);
    while giving.next().await.is_some() {}
    metric("released/s", count as f64 / start.elapsed().as_secs_f64());
    finish(&contestant).await
}
