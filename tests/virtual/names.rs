//! Many names. In a program of its own, which runs alone: the memory of the process is compared.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::future::IntoFuture as _;
use std::time::Duration;

use futures_util::future::join;
use quorate::LockManager;
use quorate::memory::{MemoryNode, Sim};
use quorate_tests::wait::{LIMIT, times};

/// The length of a name.
const NAME: usize = 300;

/// A name that is free again is forgotten within seconds, so the memory does not grow with the names: of locks, and of
/// readers that a writer and other readers have waited for.
#[test]
fn names_that_are_free_again_are_forgotten() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let manager = || LockManager::builder(nodes.clone()).runtime(sim.clone()).build().unwrap();
    let [one, other, third] = [(); 3].map(|()| manager());
    assert_forgotten(&sim, times(10_000, 200_000), async |name| {
        one.lock(name).await.unwrap().release().await.unwrap();
    });
    assert_forgotten(&sim, times(2_000, 60_000), async |name| {
        let reading = one.read(name).await.unwrap();
        let writes = async { other.lock(name).await.unwrap().release().await.unwrap() };
        let reads = async {
            sim.sleep(Duration::from_millis(1)).await;
            assert!(third.read(name).no_wait().await.unwrap_err().is_held(), "a writer waits");
            let releases = async {
                sim.sleep(Duration::from_millis(1)).await;
                reading.release().await.unwrap();
            };
            let (behind, ()) = join(one.read(name).into_future(), releases).await;
            behind.unwrap().release().await.unwrap();
        };
        join(writes, reads).await;
    });
}

/// Uses so many names four times over. A table may grow in one of these times, names that are kept grow in each.
fn assert_forgotten(sim: &Sim, count: usize, used: impl AsyncFn(&str)) {
    let resident = |phase: usize| {
        for number in 0..count {
            let name = format!("{phase}:{number}:{:0NAME$}", 0);
            sim.block_on(used(&name));
        }
        sim.advance(LIMIT);
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        4096 * pages
    };
    let resident = [0, 1, 2, 3].map(resident);
    let grown = resident.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min().unwrap();
    assert!(grown < count * NAME / 3, "at least {grown} bytes more with each {count} names more");
}
