//! A process that acquires one lock with a fencing token again and again.
//!
//! `fenced order redis|fred REFEREE-PORT RESOURCE TIMES ADDRESS…` writes each token to the referee.
//! `fenced stale redis|fred REFEREE-PORT RESOURCE TIMES ADDRESS…` says that it holds the lock and waits
//! for a line. Its keys may expire meanwhile. Then it writes to the referee all the same, and says whether
//! that was refused.

#![expect(clippy::print_stdout, reason = "its output is what the test reads")]

use std::env;
use std::error::Error;
use std::io;

use quorate::runtime::TokioRuntime;
use quorate::{LockManager, LockManagerBuilder};
use quorate_tests::Connection;
use quorate_tests::referee::write;
use quorate_tests::wait::{LIMIT, LONG_TTL, NODE_TIMEOUT, until_it_says};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().ok_or("order|stale redis|fred PORT RESOURCE TIMES ADDRESS…");
    let (mode, client, port, resource) = (next()?, next()?, next()?.parse::<u16>()?, next()?);
    let times = next()?.parse::<u32>()?;
    let addresses: Vec<String> = arguments.collect();
    let builder = builder(&client, addresses)?.timeout(10 * LIMIT);
    // As in the tests: a slow machine makes no node silent.
    let manager = builder.ttl(LONG_TTL).node_timeout(NODE_TIMEOUT).build()?;
    let mut referee = Connection::to_port(port)?;
    for _ in 0..times {
        match &*mode {
            "order" => order(&manager, &resource, &mut referee).await?,
            "stale" => stale(&manager, &resource, &mut referee).await?,
            other => return Err(format!("no mode is called {other}").into()),
        }
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

async fn order(
    manager: &LockManager,
    resource: &str,
    referee: &mut Connection,
) -> Result<(), Box<dyn Error>> {
    let guard = manager.lock(resource).fenced().await?;
    let token = guard.fencing_token().ok_or("it has none")?;
    referee.command(&["RPUSH", "tokens", &token.to_string()])?;
    guard.release().await?;
    Ok(())
}

async fn stale(
    manager: &LockManager,
    resource: &str,
    referee: &mut Connection,
) -> Result<(), Box<dyn Error>> {
    let guard = manager.lock(resource).fenced().await?;
    let token = guard.fencing_token().ok_or("it has none")?;
    if !guard.is_valid() {
        return Err("the lease had ended before it began".into());
    }
    // A pause between the look at the lease and the write.
    println!("holds {token}");
    io::stdin().read_line(&mut String::new())?;
    let passed = write(referee, resource, token.get())?;
    println!("{} with {token}", if passed { "written" } else { "refused" });
    drop(guard);
    Ok(())
}
