//! A service that lives long: it imports customers, asks a slow API with permits, sends a report once a minute, cleans up
//! in one of its processes, and comes to an end of its own when it is asked to.
//!
//! `cargo run --example importer --features redis` works on nodes in memory, and `cargo run --example importer --features redis -- redis://127.0.0.1:7001 …`
//! on servers: start it in several terminals. Ctrl-C or SIGTERM ends it. Its tests run on virtual time.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, io};

use quorate::memory::MemoryNode;
use quorate::runtime::TokioRuntime;
use quorate::{FencingToken, Lease, LockError, LockManager, Runtime, Stopped};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
enum ImportError {
    #[error(transparent)]
    NotLocked(#[from] LockError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error("a later import has written customer {0}")]
    Stale(u64),
}

#[derive(Clone)]
struct Service {
    locks: LockManager,
    clock: Arc<dyn Runtime>,
    /// Stands for a table with the columns `token BIGINT` and `rows`.
    table: Arc<Mutex<BTreeMap<u64, (i64, u32)>>>,
}

impl Service {
    async fn pause(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now() + time).await;
    }

    /// Stands for `UPDATE … SET token = $1, rows = … WHERE id = … AND token < $1`.
    fn write(&self, id: u64, token: FencingToken) -> Result<(), ImportError> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let (written, rows) = table.entry(id).or_default();
        if i64::from(token) <= *written {
            return Err(ImportError::Stale(id));
        }
        (*written, *rows) = (token.into(), *rows + 1);
        Ok(())
    }

    /// Imports one customer. At most three imports ask the API at a time; `None`: another process imports this one.
    async fn import(&self, id: u64) -> Result<Option<()>, ImportError> {
        let _permit = self.locks.permit("crm-api", 3).auto_renew().await?;
        let lock = self.locks.lock(format!("customer:{id}")).auto_renew().with_token();
        let Some((guard, token)) = lock.try_now().await? else { return Ok(None) };
        println!("customer {id}: begins");
        let imported = guard.run(async {
            self.pause(Duration::from_millis(200)).await; // asks the API
            self.write(id, token)
        });
        imported.await??;
        println!("customer {id}: done");
        // Whether the lock was held until here does not matter any more: the table has refused what was late.
        drop(guard.release().await);
        Ok(Some(()))
    }

    /// Imports one after the other, until the manager is drained. Another customer's turn comes after an error.
    async fn import_all(self) {
        for id in (0..100).cycle() {
            match self.import(id).await {
                Err(error) if quorate::closed(&error) => return,
                Err(error) if quorate::lost(&error).is_some() => println!("lock lost: {error}"),
                Err(error) => println!("{error}"),
                Ok(None) => self.pause(Duration::from_millis(20)).await,
                Ok(Some(())) => {}
            }
        }
    }

    async fn report(self) {
        loop {
            let report = self.locks.lock("report").label("importer");
            match report.once_per(MINUTE, async |_| Ok::<_, io::Error>(())).await {
                Ok(Some(sent)) => {
                    println!("report: {}", if sent.is_ok() { "sent" } else { "failed" })
                }
                Ok(None) => {}
                Err(error) if quorate::closed(&error) => return,
                Err(error) => println!("report: {error}"),
            }
            tokio::select!(() = self.pause(MINUTE / 6) => {}, () = self.locks.draining() => return);
        }
    }

    /// In one process at a time, which resigns when it is asked to end. `None`: asked before it led.
    async fn clean_up(self) -> Result<Option<()>, LockError> {
        let term = async move |lease: Lease| {
            println!("cleans up");
            lease.draining().await; // and the work between
            println!("resigns");
        };
        self.locks.lead("clean-up", term).await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut asked_to_end = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let addresses: Vec<String> = env::args().skip(1).collect();
    let clock = TokioRuntime::new();
    let locks = match addresses.is_empty() {
        true => LockManager::builder(MemoryNode::cluster(3, clock.clone())).build()?,
        false => LockManager::builder(quorate::redis::connect(addresses)?).build()?,
    };
    let service = Service { locks: locks.clone(), clock: Arc::new(clock), table: Arc::default() };
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        tasks.spawn(service.clone().import_all());
    }
    tasks.spawn(service.clone().report());
    let leading = tokio::spawn(service.clean_up());
    tokio::select!(_ = asked_to_end.0.recv() => {}, _ = asked_to_end.1.recv() => {});
    // Nothing new begins, and work that has begun comes to its end: in less than the 30 s after which Kubernetes kills.
    println!("{}", locks.drain(Duration::from_secs(25)).await);
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    if leading.await??.is_none() {
        println!("has not led");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorate::memory::Sim;

    use super::*;

    fn service(sim: &Sim, nodes: &[MemoryNode]) -> Service {
        let locks = LockManager::builder(nodes.to_vec()).runtime(sim.clone()).build().unwrap();
        Service { locks, clock: Arc::new(sim.clone()), table: Arc::default() }
    }

    #[test]
    fn a_customer_is_imported_by_one_process_at_a_time() {
        let sim = Sim::new(1);
        let nodes = MemoryNode::cluster(3, sim.clone());
        let (one, other) = (service(&sim, &nodes), service(&sim, &nodes));
        let both = sim.block_on(async { tokio::join!(one.import(7), other.import(7)) });
        assert_eq!((both.0.unwrap(), both.1.unwrap()), (Some(()), None));
    }

    #[test]
    fn what_comes_late_is_refused_by_the_table() {
        let sim = Sim::new(1);
        let service = service(&sim, &MemoryNode::cluster(3, sim.clone()));
        sim.block_on(service.import(7)).unwrap();
        let late = FencingToken::new(1).unwrap();
        assert!(matches!(service.write(7, late), Err(ImportError::Stale(7))));
    }

    #[test]
    fn an_import_that_has_begun_comes_to_its_end_and_no_other_begins() {
        let sim = Sim::new(1);
        let service = service(&sim, &MemoryNode::cluster(3, sim.clone()));
        let drain = async {
            service.pause(Duration::from_millis(50)).await;
            let drained = service.locks.drain(MINUTE).await;
            (drained, service.import(8).await)
        };
        let (imported, (drained, late)) =
            sim.block_on(async { tokio::join!(service.import(7), drain) });
        assert_eq!(imported.unwrap(), Some(()));
        assert!(drained.is_clean() && sim.elapsed() < Duration::from_secs(1), "{drained}");
        assert!(matches!(late, Err(ImportError::NotLocked(error)) if error.is_closed()));
    }
}
