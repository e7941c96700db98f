//! A process that drops its guards when its runtime has gone.

use std::sync::Arc;
use std::time::Duration;

use quorate::memory::MemoryNode;
use quorate::runtime::{SmolRuntime, TokioRuntime};
use quorate::{LockGuard, LockManager, Runtime};
use tokio::runtime::Builder;

use crate::{Outcome, connect, shared};

pub(crate) fn run(words: &[&str]) -> Outcome {
    let [runtime, client, ttl, addresses @ ..] = words else {
        return Err("current-thread|multi-thread|smol redis|fred|memory SECONDS ADDRESS…".into());
    };
    let ttl = Duration::from_secs(ttl.parse()?);
    let on_tokio = |mut builder: Builder| -> Outcome<_> {
        builder
            .enable_all()
            .build()?
            .block_on(async { lock(client, Arc::new(TokioRuntime::new()), ttl, addresses).await })
    };
    let _guards = match *runtime {
        "current-thread" => on_tokio(Builder::new_current_thread())?,
        "multi-thread" => on_tokio(Builder::new_multi_thread())?,
        "smol" => smol::block_on(lock(client, Arc::new(SmolRuntime::new()), ttl, addresses))?,
        other => return Err(format!("no runtime is called {other}").into()),
    };
    Ok(())
}

/// Two guards. One of them has been renewed.
async fn lock(
    client: &str,
    runtime: Arc<dyn Runtime>,
    ttl: Duration,
    addresses: &[&str],
) -> Outcome<[LockGuard; 2]> {
    let nodes = match client {
        "memory" => shared(MemoryNode::cluster(3, Arc::clone(&runtime))),
        client => connect(client, addresses)?,
    };
    let builder =
        LockManager::builder(nodes).runtime(Arc::clone(&runtime)).ttl(ttl).wait_timeout(ttl);
    let manager = builder.renew_interval(Duration::from_millis(1)).build()?;
    let kept = manager.lock("kept").await?;
    kept.auto_renew();
    let first = kept.valid_until();
    let held = manager.lock("held").await?;
    while kept.valid_until() == first {
        runtime.sleep_until(runtime.now() + Duration::from_millis(1)).await;
    }
    Ok([held, kept])
}
