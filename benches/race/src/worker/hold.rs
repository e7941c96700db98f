//! One holder that keeps a lock, and others that wait for it or try once.

use std::time::{Duration, Instant};

use super::{connect, finish, metric, ready};
use crate::Outcome;
use crate::contest::Contestant;
use crate::spec::Spec;
use crate::stats::percentile;
use crate::usage::clock;

/// Runs the job *hold*: acquires the lock, reports ready, and releases on the next line.
pub(super) async fn hold<C: Contestant>(spec: &Spec) -> Outcome {
    let contestant = connect::<C>(spec).await?;
    let held = contestant.acquire("race:held").await.ok_or("the lock is not free")?;
    ready().await?;
    contestant.release(held).await;
    finish(&contestant).await
}

/// Runs the job *take*: each of `tasks` waits for the lock and acquires it once.
pub(super) async fn take<C: Contestant>(spec: &Spec) -> Outcome {
    let contestant = std::sync::Arc::new(connect::<C>(spec).await?);
    let tasks: usize = spec.number("tasks")?;
    if let Some(held) = contestant.acquire(&format!("race:warm:{}", std::process::id())).await {
        contestant.release(held).await;
    }
    ready().await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let contestant = std::sync::Arc::clone(&contestant);
            tokio::spawn(async move {
                let held = contestant.acquire_until("race:held", deadline).await?;
                let acquired = clock();
                contestant.release(held).await;
                Some(acquired)
            })
        })
        .collect();
    for task in tasks {
        metric("acquired", task.await?.ok_or("the lock was never free")?);
    }
    finish(&*contestant).await
}

/// Runs the job *refused*: tries to acquire for `seconds`, without waiting.
pub(super) async fn refused<C: Contestant>(spec: &Spec) -> Outcome {
    let contestant = connect::<C>(spec).await?;
    let time = spec.time("seconds")?;
    tries(&contestant, Duration::from_millis(50)).await?;
    ready().await?;
    let took = tries(&contestant, time).await?;
    metric("try p50 µs", percentile(&took, 50.0));
    metric("try p99 µs", percentile(&took, 99.0));
    metric("tries", took.len());
    finish(&contestant).await
}

/// The duration of each try, in microseconds.
async fn tries<C: Contestant>(contestant: &C, time: Duration) -> Outcome<Vec<f64>> {
    let (deadline, mut took) = (Instant::now() + time, Vec::new());
    while Instant::now() < deadline {
        let start = Instant::now();
        if contestant.try_acquire("race:held").await.is_some() {
            return Err("the lock is free".into());
        }
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(took)
}
