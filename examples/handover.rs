//! A lock that changes hands: `cargo run --example handover --features redis`; between two processes with
//! `cargo run --example handover --features redis -- redis://127.0.0.1:7001 redis://127.0.0.1:7002 …`

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::env;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use quorate::memory::MemoryNode;
use quorate::runtime::TokioRuntime;
use quorate::{AdoptError, DetachedLock, LockBackend, LockManager, Runtime};

const TTL: Duration = Duration::from_secs(2);

/// Marks a process as the child. The record itself is a secret, and comes through its stdin.
const CHILD: &str = "QUORATE_HANDOVER_CHILD";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let addresses: Vec<String> = env::args().skip(1).collect();
    if addresses.is_empty() {
        let nodes = MemoryNode::cluster(3, TokioRuntime::new());
        let other = manager(nodes.clone())?;
        return give(&manager(nodes)?, async |record| adopt(&other, record).await).await;
    }
    let manager = manager(quorate::redis::connect(addresses)?)?;
    if env::var_os(CHILD).is_some() {
        adopt(&manager, io::read_to_string(io::stdin())?).await
    } else {
        give(&manager, spawn).await
    }
}

fn manager(nodes: Vec<impl LockBackend>) -> Result<LockManager, Box<dyn Error>> {
    Ok(LockManager::builder(nodes).ttl(TTL).runtime(TokioRuntime::new()).build()?)
}

/// Takes a lock and gives it away.
async fn give(
    manager: &LockManager,
    send: impl AsyncFnOnce(String) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let guard = manager.lock("orders:42").await?;
    println!("locked, and detached");
    send(guard.detach()?.encode()).await?;

    println!("-- a record that comes too late");
    let record = manager.lock("orders:42").await?.detach()?;
    let runtime = TokioRuntime::new();
    runtime.sleep_until(runtime.now() + 2 * TTL).await;
    match manager.adopt(&record).await {
        Err(error @ AdoptError::Lost(_)) => println!("{error}"),
        other => return Err(format!("expected it to have expired: {other:?}").into()),
    }
    Ok(())
}

/// Has a process of its own adopt it.
async fn spawn(record: String) -> Result<(), Box<dyn Error>> {
    let mut child = Command::new(env::current_exe()?);
    let mut child =
        child.args(env::args().skip(1)).env(CHILD, "1").stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("it has one")?.write_all(record.as_bytes())?;
    if child.wait()?.success() { Ok(()) } else { Err("the child failed".into()) }
}

async fn adopt(manager: &LockManager, record: String) -> Result<(), Box<dyn Error>> {
    let record: DetachedLock = record.parse()?;
    let guard = manager.adopt(&record).await?;
    println!("adopted, valid for {:.1?}", guard.remaining());
    guard.release().await?;
    println!("released: it was held until then");
    println!("{}", manager.close(TTL).await);
    Ok(())
}
