//! 50 tasks on 5 permits, on three real nodes: permits a second, beside a semaphore of tokio and beside polling.
//!
//! Each task acquires a permit, holds it for one turn of the scheduler, and releases it, again and again. *Polling* asks
//! for a random one of the five names, and if it is held again after 1 to 10 ms.

#![allow(clippy::print_stdout, reason = "figures for a terminal")]
#![allow(clippy::future_not_send, reason = "all tasks run in one")]

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use quorate::LockManager;
use quorate::runtime::Runtime as _;
use quorate::runtime::TokioRuntime;
use quorate_tests::{Nodes, RedisServer};
use tokio::sync::Semaphore;
use tokio::task::yield_now;

const TASKS: usize = 50;
const PERMITS: usize = 5;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Under `cargo test` it only shows that it runs.
    let times = if env::args().any(|word| word == "--bench") { 100 } else { 2 };
    let nodes = Nodes::start(3);
    let addresses: Vec<String> = nodes.iter().map(RedisServer::address).collect();
    for processes in [1, 5] {
        let managers: Result<Vec<_>, Box<dyn Error>> = (0..processes)
            .map(|_| {
                let nodes = quorate::redis::connect(addresses.iter().map(String::as_str))?;
                Ok(LockManager::builder(nodes).build()?)
            })
            .collect();
        let managers = managers?;
        show(&format!("permits, {processes} managers"), times, async |task| {
            let manager = &managers[task % managers.len()];
            let Ok(guard) = manager.permit("p", PERMITS).await else { return };
            yield_now().await;
            let _ = guard.release().await;
        })
        .await;
        show(&format!("polling, {processes} managers"), times, async |task| {
            let manager = &managers[task % managers.len()];
            let guard = loop {
                let random = random();
                let name = format!("q#{}", random % PERMITS as u64);
                if let Ok(Some(guard)) = manager.try_lock(name).await {
                    break guard;
                }
                tokio::time::sleep(Duration::from_micros(1_000 + random % 9_000)).await;
            };
            yield_now().await;
            let _ = guard.release().await;
        })
        .await;
        for manager in managers {
            let _ = manager.close(Duration::from_secs(2)).await;
        }
    }
    let semaphore = Semaphore::new(PERMITS);
    show("a semaphore of tokio", times, async |_| {
        let _permit = semaphore.acquire().await;
        yield_now().await;
    })
    .await;
    Ok(())
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = TokioRuntime::new().fill_random(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Runs `once` for all tasks at the same time, `times` each, and shows how often a second.
async fn show(name: &str, times: usize, once: impl AsyncFn(usize)) {
    let again = async |task| {
        for _ in 0..times {
            once(task).await;
        }
    };
    let start = Instant::now();
    join_all((0..TASKS).map(again)).await;
    let rate = (TASKS * times) as f64 / start.elapsed().as_secs_f64();
    println!("{name:24} {rate:12.0} a second");
}
