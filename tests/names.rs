//! Many names. In a program of its own, which runs alone: the memory of the process is compared.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use quorate::LockManager;
use quorate::memory::{MemoryNode, Sim};
use quorate_tests::wait::{LIMIT, times};

/// A name that is free again is forgotten within seconds, so the memory does not grow with the names.
#[test]
fn names_that_are_free_again_are_forgotten() {
    const NAME: usize = 300;
    let count = times(10_000, 200_000);
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let manager = LockManager::builder(nodes).runtime(sim.clone()).build().unwrap();
    let resident = |phase: usize| {
        for number in 0..count {
            let name = format!("{phase}:{number}:{:0NAME$}", 0);
            sim.block_on(async { manager.lock(name).await.unwrap().release().await.unwrap() });
        }
        sim.advance(LIMIT);
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        4096 * pages
    };
    let first = resident(0);
    let last = [1, 2, 3].map(resident)[2];
    let grown = last.saturating_sub(first);
    assert!(grown < count * NAME, "{grown} bytes more with {} names more", 3 * count);
}
