//! A worker: a process that runs one job with one contestant.
//!
//! It prints `ready`, waits for a line, runs the job, prints its metrics and `done`, waits for a line,
//! closes, and ends.

use std::fmt;
use std::io;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};

use crate::Outcome;
use crate::contest::{
    self, BareFred, BareRedis, Contestant, Distkit, OnFred, OnOwnThread, OnRedis, Raw, Rslock,
};
use crate::spec::Spec;

mod contend;
mod cycle;
mod hold;
mod leases;
mod turns;

/// Runs `worker key=value…`.
pub(crate) fn main(words: &[String]) -> Outcome {
    let spec = Spec::parse(words)?;
    let runtime = runtime(spec.text("runtime")?)?;
    runtime.block_on(async {
        match spec.text("contestant")? {
            contest::QUORATE_REDIS if spec.text("job")? == "leases" => {
                leases::run::<OnRedis>(&spec).await
            }
            contest::QUORATE_FRED if spec.text("job")? == "leases" => {
                leases::run::<OnFred>(&spec).await
            }
            contest::QUORATE_REDIS if spec.text("job")? == "turns" => {
                turns::run::<OnRedis>(&spec).await
            }
            contest::QUORATE_FRED if spec.text("job")? == "turns" => {
                turns::run::<OnFred>(&spec).await
            }
            contest::QUORATE_REDIS => job::<OnRedis>(&spec).await,
            contest::OWN_THREAD => job::<OnOwnThread>(&spec).await,
            contest::QUORATE_FRED => job::<OnFred>(&spec).await,
            contest::BARE_REDIS => job::<BareRedis>(&spec).await,
            contest::BARE_FRED => job::<BareFred>(&spec).await,
            contest::RAW => job::<Raw>(&spec).await,
            contest::RSLOCK => job::<Rslock>(&spec).await,
            contest::DISTKIT => job::<Distkit>(&spec).await,
            other => Err(format!("no contestant is called {other}").into()),
        }
    })
}

async fn job<C: Contestant>(spec: &Spec) -> Outcome {
    match spec.text("job")? {
        "cycle" => cycle::run::<C>(spec).await,
        "contend" => contend::run::<C>(spec).await,
        "hold" => hold::hold::<C>(spec).await,
        "take" => hold::take::<C>(spec).await,
        "refused" => hold::refused::<C>(spec).await,
        other => Err(format!("no job is called {other}").into()),
    }
}

fn runtime(flavour: &str) -> Outcome<Runtime> {
    let mut builder = match flavour {
        "current-thread" => Builder::new_current_thread(),
        "multi-thread" => Builder::new_multi_thread(),
        other => return Err(format!("no runtime is called {other}").into()),
    };
    if flavour == "multi-thread" {
        builder.worker_threads(2);
    }
    Ok(builder.enable_all().build()?)
}

async fn connect<C: Contestant>(spec: &Spec) -> Outcome<C> {
    C::connect(spec.list("addresses")?, spec.time("ttl")?).await
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
    let start = Instant::now();
    metric("left", contestant.close(C::CLOSE).await);
    metric("closed after ms", start.elapsed().as_secs_f64() * 1e3);
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
