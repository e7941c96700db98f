//! One who holds a lock for long, and one who waits for it.

use std::time::{Duration, Instant};

use super::{connect, finish, metric, ready};
use crate::Outcome;
use crate::contest::Contestant;
use crate::spec::Spec;
use crate::usage::clock;

/// Holds the lock from before it is ready until it is told.
pub(super) async fn hold<C: Contestant>(spec: &Spec) -> Outcome {
    let contestant = connect::<C>(spec).await?;
    let held = contestant.acquire("race:held").await.ok_or("the lock is not free")?;
    ready().await?;
    contestant.release(held).await;
    finish(&contestant).await
}

/// Several that wait for it, and take it once each.
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
