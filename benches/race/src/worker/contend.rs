//! Several tasks that want one lock all the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{connect, finish, ready};
use crate::Outcome;
use crate::contest::Contestant;
use crate::spec::Spec;
use crate::usage::clock;

/// `contenders`, numbered from `first`; `seconds`; `hold` in seconds. Reports each time that the
/// lock was held: contender, asked, acquired, releasing, released.
pub(super) async fn run<C: Contestant>(spec: &Spec) -> Outcome {
    let contestant = Arc::new(connect::<C>(spec).await?);
    let (contenders, first) = (spec.number::<usize>("contenders")?, spec.number::<usize>("first")?);
    let (time, hold) = (spec.time("seconds")?, spec.time("hold")?);
    // The connections are there before it begins.
    if let Some(held) = contestant.acquire(&format!("race:warm:{first}")).await {
        contestant.release(held).await;
    }

    ready().await?;
    let deadline = Instant::now() + time;
    let tasks: Vec<_> = (0..contenders)
        .map(|_| tokio::spawn(contend(Arc::clone(&contestant), deadline, hold)))
        .collect();
    for (who, task) in (first..).zip(tasks) {
        for [asked, acquired, releasing, released] in task.await? {
            println!("event {who} {asked} {acquired} {releasing} {released}");
        }
    }
    finish(&*contestant).await
}

async fn contend<C: Contestant>(
    contestant: Arc<C>,
    deadline: Instant,
    hold: Duration,
) -> Vec<[u64; 4]> {
    let mut events = Vec::new();
    while Instant::now() < deadline {
        let asked = clock();
        let Some(held) = contestant.acquire_until("race:contended", deadline).await else {
            break;
        };
        let acquired = clock();
        // A thread's sleep: tokio's is as long again for a single millisecond.
        let rest = tokio::task::spawn_blocking(move || std::thread::sleep(hold));
        if rest.await.is_err() {
            break;
        }
        let releasing = clock();
        contestant.release(held).await;
        events.push([asked, acquired, releasing, clock()]);
    }
    events
}
