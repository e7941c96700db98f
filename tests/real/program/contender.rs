//! A process that acquires one lock again and again, and lets a referee look for overlaps.
//!
//! `contender redis|fred REFEREE-PORT RESOURCE TIMES ADDRESS…`

use std::env;
use std::error::Error;

use quorate::runtime::TokioRuntime;
use quorate::{LockManager, LockManagerBuilder};
use quorate_tests::Referee;
use quorate_tests::wait::{LIMIT, LONG_TTL, NODE_TIMEOUT, until_it_says};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().ok_or("redis|fred REFEREE-PORT RESOURCE TIMES ADDRESS…");
    let (client, port, resource) = (next()?, next()?.parse::<u16>()?, next()?);
    let times = next()?.parse::<u32>()?;
    let addresses: Vec<String> = arguments.collect();
    let builder = builder(&client, addresses)?.timeout(10 * LIMIT);
    // As in the tests: a slow machine makes no node silent.
    let manager = builder.ttl(LONG_TTL).node_timeout(NODE_TIMEOUT).build()?;
    let mut referee = Referee::to_port(port, &resource)?;
    for _ in 0..times {
        let guard = manager.lock(&*resource).await?;
        referee.visit()?;
        guard.release().await?;
    }
    // A node that failed a release may answer again.
    until_it_says("all is released", async || manager.close(LIMIT).await.is_clean()).await;
    Ok(())
}

fn builder(client: &str, addresses: Vec<String>) -> Result<LockManagerBuilder, Box<dyn Error>> {
    let runtime = TokioRuntime::new();
    match client {
        "redis" => Ok(LockManager::builder(quorate::redis::connect(addresses)?).runtime(runtime)),
        "fred" => Ok(LockManager::builder(quorate::fred::connect(addresses)?).runtime(runtime)),
        other => Err(format!("no client is called {other}").into()),
    }
}
