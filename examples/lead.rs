//! Processes of which one leads, and hands over when it is asked to: `cargo run --example lead --features redis` has two of them, on nodes
//! in memory. With addresses it is one process, to be started in several terminals, and to be killed or asked:
//! `cargo run --example lead --features redis -- redis://127.0.0.1:7001 …`, and `quorate free scheduler`.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::env;
use std::error::Error;
use std::time::Duration;

use quorate::memory::MemoryNode;
use quorate::runtime::TokioRuntime;
use quorate::{InvalidResource, Lease, LockBackend, LockError, LockManager};

const TTL: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let addresses: Vec<String> = env::args().skip(1).collect();
    if !addresses.is_empty() {
        let locks = manager(quorate::redis::connect(addresses)?, "this process")?;
        lead(&locks, "this process").await?;
        return Ok(());
    }
    let nodes: Vec<_> =
        MemoryNode::cluster(3, TokioRuntime::new()).iter().map(MemoryNode::pushing).collect();
    let (one, two) = (manager(nodes.clone(), "one")?, manager(nodes.clone(), "two")?);
    let deploy = manager(nodes, "deploy")?;
    let (first, second, asked) =
        tokio::join!(lead(&one, "one"), lead(&two, "two"), ask_both(&deploy));
    first?;
    second?;
    asked?;
    println!("{}, {}", one.close(TTL).await, two.close(TTL).await);
    Ok(())
}

fn manager(nodes: Vec<impl LockBackend>, name: &str) -> Result<LockManager, Box<dyn Error>> {
    Ok(LockManager::builder(nodes).ttl(TTL).label(name).runtime(TokioRuntime::new()).build()?)
}

/// Leads until it is asked to leave. The next leader begins when the lock is released, behind the body. `None`: the manager
/// was drained before that.
async fn lead(locks: &LockManager, name: &str) -> Result<Option<()>, LockError> {
    let body = async |lease: Lease| {
        println!("{name} leads for {:.1?}, if not renewed", lease.remaining());
        tokio::select! {
            () = work() => {}
            // An error is the end of the lease: it drops the body in any case.
            Ok(by) = lease.revoked() => match by {
                Some(by) => println!("{name} hands over, as {by} asks"),
                None => println!("{name} hands over"),
            },
        }
    };
    locks.lead("scheduler", body).await
}

/// Asks one leader after the other to leave, as a deploy of a new version does.
async fn ask_both(locks: &LockManager) -> Result<(), InvalidResource> {
    for _ in 0..2 {
        tokio::time::sleep(TTL / 8).await;
        let revoked = locks.revoke("scheduler").await?;
        println!("the leader has left: {:?}", revoked.until_free(locks).await);
    }
    Ok(())
}

async fn work() {
    std::future::pending().await
}
