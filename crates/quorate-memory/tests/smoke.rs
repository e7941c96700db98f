//! Smoke.
#![allow(missing_docs, clippy::unwrap_used)]
use std::time::Duration;
use quorate_core::{LockManager, LockError, Waiting};
use quorate_memory::{MemoryNode, Sim};
use futures_util::future::{join, join_all};
const S: Duration = Duration::from_secs(1);

fn manager(sim: &Sim, nodes: &[MemoryNode]) -> LockManager {
    LockManager::builder(nodes.to_vec()).runtime(sim.clone()).build().unwrap()
}

#[test]
fn acquire_release() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let m = manager(&sim, &nodes);
    sim.block_on(async {
        let g = m.lock("a").await.unwrap();
        assert!(g.is_valid());
        g.extend().await.unwrap();
        let e = m.lock("a").no_wait().await.unwrap_err();
        assert!(e.is_held(), "{e}");
        g.release().await.unwrap();
        let g = m.lock("a").no_wait().await.unwrap();
        drop(g);
        let g = m.lock("a").await.unwrap();
        g.release().await.unwrap();
        println!("{}", m.close(S).await);
    });
}

#[test]
fn two_managers_wait() {
    for waiting in [Waiting::Ordered, Waiting::Notified, Waiting::Polling] {
        let sim = Sim::new(1);
        let nodes = MemoryNode::cluster(5, sim.clone());
        let ms: Vec<_> = (0..4).map(|_| LockManager::builder(nodes.clone()).runtime(sim.clone()).waiting(waiting).build().unwrap()).collect();
        let counter = std::cell::Cell::new(0);
        sim.block_on(async {
            let work = |m: LockManager| { let sim = sim.clone(); let counter = &counter; async move {
                for _ in 0..5 {
                    let g = m.lock("a").timeout(100 * S).await.unwrap();
                    counter.set(counter.get() + 1);
                    let c = counter.get();
                    sim.sleep(S / 100).await;
                    assert_eq!(counter.get(), c);
                    g.release().await.unwrap();
                }
            }};
            join_all(ms.iter().flat_map(|m| [work(m.clone()), work(m.clone())])).await;
        });
        println!("{waiting:?} {:?}", sim.elapsed());
    }
}

#[test]
fn with_and_renew() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let m = manager(&sim, &nodes);
    sim.block_on(async {
        let v = m.with("a", async |lease| { for _ in 0..60 { sim.sleep(S).await; assert!(lease.is_valid()); } 7 }).await.unwrap();
        assert_eq!(v, 7);
    });
    let e = sim.block_on(async {
        let g = m.lock("a").await.unwrap();
        let (a, b) = join(m.lock("a").timeout(S).await_err(), async { sim.sleep(2 * S).await; g.release().await.unwrap() }).await;
        let () = b;
        a
    });
    println!("{e}");
}
trait AwaitErr { fn await_err(self) -> impl Future<Output = LockError>; }
impl AwaitErr for quorate_core::LockRequest { async fn await_err(self) -> LockError { self.await.unwrap_err() } }
