//! Several tasks that compete for one lock without pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{connect, finish, ready};
use crate::Outcome;
use crate::contest::Contestant;
use crate::spec::Spec;
use crate::usage::clock;

/// Runs the job *contend*: `contenders`, numbered from `first`, for `seconds`, each holding for `hold`
/// seconds. Reports for each hold: contender, and when it asked, acquired, began to release.
pub(super) async fn run<C: Contestant>(spec: &Spec) -> Outcome {
    let contestant = Arc::new(connect::<C>(spec).await?);
    let (contenders, first) = (spec.number::<usize>("contenders")?, spec.number::<usize>("first")?);
    let (time, hold) = (spec.time("seconds")?, spec.time("hold")?);
    ready().await?;
    let deadline = Instant::now() + time;
    let tasks: Vec<_> = (0..contenders)
        .map(|_| tokio::spawn(contend(Arc::clone(&contestant), deadline, hold)))
        .collect();
    for (who, task) in (first..).zip(tasks) {
        for [asked, acquired, releasing] in task.await? {
            println!("event {who} {asked} {acquired} {releasing}");
        }
    }
    finish(&*contestant).await
}

async fn contend<C: Contestant>(
    contestant: Arc<C>,
    deadline: Instant,
    hold: Duration,
) -> Vec<[u64; 3]> {
    let mut events = Vec::new();
    while Instant::now() < deadline {
        let asked = clock();
        let Some(held) = contestant.acquire_until("race:contended", deadline).await else {
            break;
        };
        let acquired = clock();
        // The sleep of a thread: tokio's timer would add up to 1 ms.
        let rest = tokio::task::spawn_blocking(move || std::thread::sleep(hold));
        if rest.await.is_err() {
            break;
        }
        let releasing = clock();
        contestant.release(held).await;
        events.push([asked, acquired, releasing]);
    }
    events
}
