//! A process that holds many locks and renews them, until its input ends and every lease has ended.
//!
//! It may be stopped meanwhile, and its locks taken away. It reports each hold.

use std::sync::Arc;
use std::time::Duration;

use quorate::LockManager;
use quorate_tests::clock::{Clock, now};
use quorate_tests::judge::Hold;
use tokio::io::AsyncReadExt as _;

use crate::{Outcome, connect};

#[tokio::main]
pub(crate) async fn run(words: &[&str]) -> Outcome {
    let [client, ttl, count, addresses @ ..] = words else {
        return Err("hold redis|fred TTL-MS COUNT ADDRESS…".into());
    };
    let (ttl, count) = (Duration::from_millis(ttl.parse()?), count.parse::<usize>()?);
    let clock = Clock::start();
    let builder = LockManager::builder(connect(client, addresses)?);
    let manager = Arc::new(builder.ttl(ttl).node_timeout(ttl / 4).build()?);
    let locks = (0..count).map(|lock| {
        let manager = Arc::clone(&manager);
        tokio::spawn(async move {
            let guard = manager.lock(format!("held:{lock}")).auto_renew().await?;
            Outcome::Ok((lock, now(), guard))
        })
    });
    let locks: Vec<_> = locks.collect();
    let mut held = Vec::new();
    for lock in locks {
        held.push(lock.await??);
    }
    println!("held");
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    for (lock, acquired, guard) in held {
        guard.lost().await;
        let end = clock.at(guard.valid_until());
        println!("hold {}", Hold { lock, acquired, end, token: 1, refused: 0, written: 0 });
    }
    Ok(())
}
