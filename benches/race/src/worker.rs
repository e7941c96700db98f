//! A worker: a process that runs one job with one contestant.
//!
//! It prints `ready`, waits for a line, runs the job, prints its metrics and `done`, waits for a line,
//! closes, and ends.

use std::{fmt, io};

use tokio::runtime::Builder;

use crate::Outcome;
use crate::contest::{self, ByHand, Contestant, Distkit, Fred, OURS, Quorate, Raw, Redis, Rslock};
use crate::spec::Spec;

mod contend;
mod cycle;
mod leases;

/// Runs `worker key=value…`.
pub(crate) fn main(words: &[String]) -> Outcome {
    let spec = Spec::parse(words)?;
    let mut builder = match spec.text("runtime")? {
        "multi-thread" => Builder::new_multi_thread(),
        _ => Builder::new_current_thread(),
    };
    let runtime = builder.worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match spec.text("contestant")? {
            contest::BARE_REDIS => job::<ByHand<Redis>>(&spec).await,
            contest::BARE_FRED => job::<ByHand<Fred>>(&spec).await,
            contest::RAW => job::<Raw>(&spec).await,
            contest::RSLOCK => job::<Rslock>(&spec).await,
            contest::DISTKIT => job::<Distkit>(&spec).await,
            ours if OURS.iter().any(|name| ours.starts_with(name)) => match spec.text("job")? {
                "leases" => leases::run(&spec).await,
                _ => job::<Quorate>(&spec).await,
            },
            other => Err(format!("no contestant is called {other}").into()),
        }
    })
}

async fn job<C: Contestant>(spec: &Spec) -> Outcome {
    match spec.text("job")? {
        "cycle" => cycle::run::<C>(spec).await,
        "contend" => contend::run::<C>(spec).await,
        other => Err(format!("no job is called {other}").into()),
    }
}

/// Connects the contestant, and makes one cycle.
async fn connect<C: Contestant>(spec: &Spec) -> Outcome<C> {
    let (name, ttl) = (spec.text("contestant")?, spec.time("ttl")?);
    let contestant = C::connect(name, spec.list("addresses")?, ttl).await?;
    if let Some(held) = contestant.acquire(&format!("race:warm:{}", std::process::id())).await {
        contestant.release(held).await;
    }
    Ok(contestant)
}

/// Prints `ready` and waits for a line.
async fn ready() -> Outcome {
    println!("ready");
    next_line().await
}

fn metric(name: &str, value: impl fmt::Display) {
    println!("metric {name} {value}");
}

/// Prints `done`, waits for a line, and closes the contestant.
async fn finish<C: Contestant>(contestant: &C) -> Outcome {
    println!("done");
    next_line().await?;
    contestant.close().await;
    Ok(())
}

/// Waits for a line without blocking other tasks.
async fn next_line() -> Outcome {
    let read = tokio::task::spawn_blocking(|| io::stdin().read_line(&mut String::new()));
    match read.await?? {
        0 => Err("the race is over".into()),
        _ => Ok(()),
    }
}
