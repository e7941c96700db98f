//! A process that takes one lock again and again, and has a referee look for overlaps.
//!
//! `contender redis|fred REFEREE-PORT TIMES ADDRESS…`

use std::env;
use std::error::Error;
use std::time::Duration;

use quorate::runtime::TokioRuntime;
use quorate::{LockManager, LockManagerBuilder};
use quorate_tests::{Connection, Reply};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().ok_or("redis|fred REFEREE-PORT TIMES ADDRESS…");
    let (client, port, times) = (next()?, next()?.parse::<u16>()?, next()?.parse::<u32>()?);
    let addresses: Vec<String> = arguments.collect();
    let manager = builder(&client, addresses)?.wait(Duration::from_secs(60)).build()?;
    let mut referee = Connection::to_port(port)?;
    for _ in 0..times {
        let guard = manager.lock("contended").await?;
        critical_section(&mut referee)?;
        guard.release().await?;
    }
    match manager.settle(Duration::from_secs(10)).await {
        0 => Ok(()),
        left => Err(format!("{left} operations are still under way").into()),
    }
}

fn builder(client: &str, addresses: Vec<String>) -> Result<LockManagerBuilder, Box<dyn Error>> {
    let runtime = TokioRuntime::new();
    match client {
        "redis" => Ok(LockManager::builder(runtime, quorate::redis::connect(addresses)?)),
        "fred" => Ok(LockManager::builder(runtime, quorate::fred::connect(addresses)?)),
        other => Err(format!("no client is called {other}").into()),
    }
}

/// Read, modify, write, with a flag that nobody else may have set.
fn critical_section(referee: &mut Connection) -> Result<(), Box<dyn Error>> {
    if referee.command(&["SET", "inside", "1", "NX"])? == Reply::Nil {
        referee.command(&["INCR", "overlaps"])?;
    }
    let counter = match referee.command(&["GET", "counter"])? {
        Reply::Bulk(counter) => String::from_utf8(counter)?.parse::<u64>()?,
        _ => 0,
    };
    referee.command(&["SET", "counter", &(counter + 1).to_string()])?;
    referee.command(&["DEL", "inside"])?;
    Ok(())
}
