//! A program that drops its guards when its runtime has gone.
//!
//! `last_guard current-thread|multi-thread|smol redis|fred|memory TTL-SECONDS ADDRESS…`

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use quorate::memory::MemoryNode;
use quorate::runtime::{SmolRuntime, TokioRuntime};
use quorate::{LockBackend, LockGuard, LockManager, Runtime};
use tokio::runtime::Builder;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [runtime, client, ttl, addresses @ ..] = &*arguments else {
        return Err("current-thread|multi-thread|smol redis|fred|memory SECONDS ADDRESS…".into());
    };
    let ttl = Duration::from_secs(ttl.parse()?);
    let on_tokio = |mut builder: Builder| -> Outcome<Guards> {
        builder.enable_all().build()?.block_on(async {
            let runtime = Arc::new(TokioRuntime::new());
            lock(client, runtime, ttl, addresses).await
        })
    };
    let _guards = match &**runtime {
        "current-thread" => on_tokio(Builder::new_current_thread())?,
        "multi-thread" => on_tokio(Builder::new_multi_thread())?,
        "smol" => smol::block_on(lock(client, Arc::new(SmolRuntime::new()), ttl, addresses))?,
        other => return Err(format!("no runtime is called {other}").into()),
    };
    Ok(())
}

type Guards = (LockGuard, LockGuard);

async fn lock(
    client: &str,
    runtime: Arc<dyn Runtime>,
    ttl: Duration,
    addresses: &[String],
) -> Outcome<Guards> {
    let nodes = nodes(client, &runtime, addresses)?;
    let builder = LockManager::builder(nodes).runtime(Arc::clone(&runtime)).ttl(ttl).timeout(ttl);
    let manager = builder.renew_interval(Duration::from_millis(1)).build()?;
    let kept = manager.lock("kept").await?;
    kept.auto_renew();
    let first = kept.valid_until();
    let held = manager.lock("held").await?;
    while kept.valid_until() == first {
        runtime.sleep_until(runtime.now() + Duration::from_millis(1)).await;
    }
    Ok((held, kept))
}

fn nodes(
    client: &str,
    runtime: &Arc<dyn Runtime>,
    addresses: &[String],
) -> Outcome<Vec<Arc<dyn LockBackend>>> {
    let addresses = addresses.iter().cloned();
    Ok(match client {
        "redis" => shared(quorate::redis::connect(addresses)?),
        "fred" => shared(quorate::fred::connect(addresses)?),
        "memory" => shared(MemoryNode::cluster(3, Arc::clone(runtime))),
        other => return Err(format!("no client is called {other}").into()),
    })
}

fn shared(nodes: Vec<impl LockBackend>) -> Vec<Arc<dyn LockBackend>> {
    nodes.into_iter().map(|node| Arc::new(node) as _).collect()
}
