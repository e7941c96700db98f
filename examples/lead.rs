//! Processes of which one leads: `cargo run --example lead` has two of them, on nodes in memory. With addresses it is one
//! process, to be started in several terminals and to be killed: `cargo run --example lead -- redis://127.0.0.1:7001 …`

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::env;
use std::error::Error;
use std::time::Duration;

use quorate::memory::MemoryNode;
use quorate::runtime::TokioRuntime;
use quorate::{Lease, LockBackend, LockError, LockManager, Runtime};

const TTL: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let addresses: Vec<String> = env::args().skip(1).collect();
    if !addresses.is_empty() {
        let locks = manager(quorate::redis::connect(addresses)?)?;
        return Ok(lead(&locks, "this process", Duration::MAX).await?);
    }
    let nodes = MemoryNode::cluster(3, TokioRuntime::new());
    let (first, second) = (manager(nodes.clone())?, manager(nodes)?);
    let lead_for = TTL / 8;
    let (one, two) =
        tokio::join!(lead(&first, "one", lead_for), lead(&second, "the other", lead_for));
    one?;
    two?;
    println!("{}, {}", first.close(TTL).await, second.close(TTL).await);
    Ok(())
}

fn manager(nodes: Vec<impl LockBackend>) -> Result<LockManager, Box<dyn Error>> {
    Ok(LockManager::builder(nodes).ttl(TTL).runtime(TokioRuntime::new()).build()?)
}

/// Leads in terms, until a term has lasted for `time`.
async fn lead(locks: &LockManager, name: &str, time: Duration) -> Result<(), LockError> {
    let runtime = TokioRuntime::new();
    let body = async |lease: Lease| {
        println!("{name} leads for {:.1?}, if not renewed", lease.remaining());
        let end = runtime.now().checked_add(time);
        while end.is_none_or(|end| runtime.now() < end) {
            runtime.sleep_until(runtime.now() + time.min(TTL)).await; // the work
        }
        println!("{name} resigns");
    };
    locks.lead("scheduler", body).await
}
