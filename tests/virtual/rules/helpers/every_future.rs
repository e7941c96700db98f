//! Every public future, to be dropped at every poll.
//!
//! All of them leave no key. `keep`, and `once_per` after a success, leave a mark: `rules/once.rs` drops them.

use std::future::{Future, IntoFuture, poll_fn, ready};
use std::mem::forget;
use std::ops::RangeFrom;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join;
use quorate_core::runtime::BoxFuture;
use quorate_core::{
    AdoptError, DetachedLock, LockError, LockGuard, LockManager, LockRequest, Runtime,
};

/// What a caller does, to be dropped at any poll.
pub(crate) struct Doing {
    pub(crate) name: &'static str,
    /// Prepares it, on the resource `r`.
    begin: fn(Stage) -> BoxFuture<'static, Trial>,
    /// Whether its manager is of no use afterwards. If it was never polled, it has done nothing.
    pub(crate) ends_its_manager: bool,
}

/// One of them, begun.
pub(crate) struct Trial {
    /// To be polled, and dropped at any poll.
    pub(crate) future: BoxFuture<'static, ()>,
    /// A lock that belongs to the owner of this record, whatever became of the future.
    pub(crate) record: Option<DetachedLock>,
}

impl Trial {
    fn of(future: impl Future<Output: 'static> + Send + 'static) -> Self {
        Self { future: Box::pin(future.map(drop)), record: None }
    }
}

/// Each public future. Where the call itself has to be prepared, that is not part of what is dropped.
pub(crate) const ALL: [Doing; 24] = [
    row("lock", |it| contended(it, |it| it.lock())),
    row("read", |it| contended(it, |it| it.manager.read("r"))),
    row("lock_any", |it| contended(it, |it| it.manager.lock_any(["r", "s"]))),
    row("lock now", |it| trial(async move { it.lock().no_wait().await })),
    row("with", |it| trial(async move { it.lock().with(async |_| it.work().await).await })),
    row("with now", |it| {
        trial(async move { it.lock().no_wait().with(async |_| it.work().await).await })
    }),
    row("with_future", |it| trial(async move { it.lock().with_future(|_| it.work()).await })),
    row("with of a manager", |it| {
        trial(async move { it.manager.with("r", async |_| it.work().await).await })
    }),
    row("lead", |it| trial(async move { it.lock().lead(|_| it.work()).await })),
    row("once_per", |it| {
        trial(async move {
            let fails = async |_| {
                it.work().await;
                Err::<(), _>(())
            };
            let period = it.hold.max(Duration::from_secs(60));
            drop(it.manager.once_per("r", period, fails).await);
        })
    }),
    row("extend", |it| holding(it, |guard, _| async move { guard.extend().await })),
    row("extend_to", |it| holding(it, |guard, _| async move { guard.extend_to(2 * BOUND).await })),
    row("release", |it| holding(it, |guard, _| async move { guard.release().await })),
    row("run", |it| holding(it, |guard, it| async move { guard.run(it.work()).await })),
    row("auto_renew", |it| {
        holding(it, |guard, it| async move {
            guard.auto_renew();
            it.work().await;
        })
    }),
    row("lost", |it| limited(it, |guard| async move { guard.lost().await })),
    row("at_risk", |it| limited(it, |guard| async move { guard.at_risk().await })),
    row("adopt", |it| {
        Box::pin(async move {
            let guard = it.held().await;
            // An acquire in flight to a slow node would be executed after the adopter's release.
            it.work().await;
            let record = guard.detach().expect("it is held");
            let adopted = record.clone();
            let adopts = async move { it.manager.adopt(&adopted).await };
            Trial { record: Some(record), ..Trial::of(adopts) }
        })
    }),
    row("release of a record", |it| {
        holding(it, |guard, it| async move {
            let record = guard.detach().expect("it is held");
            drop(it.manager.release(&record).await);
        })
    }),
    // A free lock: a revoked one stays for its ttl.
    row("revoke", |it| {
        holding(it, |guard, it| async move {
            drop(it.manager.revoke("free").await);
            drop(guard);
        })
    }),
    row("delete", |it| {
        holding(it, |guard, it| async move {
            drop(it.manager.delete("r").await);
            drop(guard);
        })
    }),
    row("check", |it| trial(async move { drop(it.manager.check().await) })),
    last("close", |it| {
        Box::pin(async move {
            let kept = it.held().await;
            kept.auto_renew();
            let waiting = it.lock().into_future();
            let forgotten = it.manager.lock(["s", "t"]).await.expect("they are free");
            forgotten.auto_renew();
            forget(forgotten);
            forget(it.manager.lock("u").await.expect("it is free"));
            Trial::of(async move {
                drop(join(waiting, it.manager.close(BOUND)).await);
                drop(kept);
            })
        })
    }),
    last("drain", |it| {
        Box::pin(async move {
            let (kept, waiting) = (it.held().await, it.lock().into_future());
            let manager = it.manager.clone();
            kept.auto_renew();
            let holds = async move {
                kept.draining().await;
                it.work().await;
                drop(kept);
            };
            let drains = async move { manager.drain(BOUND).await };
            Trial::of(join(join(waiting, holds), drains))
        })
    }),
];

/// Far longer than any of it takes.
const BOUND: Duration = Duration::from_secs(120);

const fn row(name: &'static str, begin: fn(Stage) -> BoxFuture<'static, Trial>) -> Doing {
    Doing { name, begin, ends_its_manager: false }
}

const fn last(name: &'static str, begin: fn(Stage) -> BoxFuture<'static, Trial>) -> Doing {
    Doing { name, begin, ends_its_manager: true }
}

impl Doing {
    /// The numbers of polls to be dropped after.
    pub(crate) fn polls(&self) -> RangeFrom<usize> {
        usize::from(self.ends_its_manager)..
    }

    pub(crate) fn begin(&self, stage: &Stage) -> BoxFuture<'static, Trial> {
        (self.begin)(stage.clone())
    }
}

/// The managers of two processes, and how long a lock is held.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) manager: LockManager,
    pub(crate) rival: LockManager,
    pub(crate) clock: Arc<dyn Runtime>,
    pub(crate) hold: Duration,
}

impl Stage {
    fn lock(&self) -> LockRequest {
        self.manager.lock("r")
    }

    async fn held(&self) -> LockGuard {
        self.lock().await.expect("it is free")
    }

    /// Takes as long as a lock is held, in steps: each is a poll to be dropped at.
    fn work(&self) -> impl Future<Output = ()> + Send + use<> {
        let (clock, hold) = (Arc::clone(&self.clock), self.hold);
        let end = clock.now() + hold;
        async move {
            while clock.now() < end {
                clock.sleep_until(end.min(clock.now() + hold / 16)).await;
            }
        }
    }
}

/// What `future` returns is dropped with it.
fn trial(future: impl Future<Output: 'static> + Send + 'static) -> BoxFuture<'static, Trial> {
    Box::pin(ready(Trial::of(future)))
}

/// A request while the rival holds, so that several rounds are lost before one is won.
fn contended(it: Stage, request: fn(&Stage) -> LockRequest) -> BoxFuture<'static, Trial> {
    Box::pin(async move {
        let other = it.rival.lock(["r", "s"]).await.expect("they are free");
        let releases = it.work().map(|()| drop(other));
        Trial::of(join(releases, request(&it).into_future()))
    })
}

fn holding<F: Future<Output: 'static> + Send + 'static>(
    it: Stage,
    body: fn(LockGuard, Stage) -> F,
) -> BoxFuture<'static, Trial> {
    Box::pin(async move {
        let guard = it.held().await;
        Trial::of(body(guard, it))
    })
}

/// With a lease that ends by itself.
fn limited<F: Future<Output: 'static> + Send + 'static>(
    it: Stage,
    body: fn(LockGuard) -> F,
) -> BoxFuture<'static, Trial> {
    Box::pin(async move {
        let guard = it.lock().hold_limit(8 * it.hold).await.expect("it is free");
        Trial::of(body(guard))
    })
}

/// Releases the lock of the record, after the future was dropped.
pub(crate) async fn finish(record: Option<DetachedLock>, manager: &LockManager) {
    let Some(record) = record else { return };
    loop {
        match manager.adopt(&record).await {
            Ok(guard) => return drop(guard),
            Err(AdoptError::Lost(_)) => return,
            // The keys may still be there: a busy machine kept nodes from answering in time.
            // The next try comes after all nodes have had time to answer.
            Err(AdoptError::Lock(LockError::NoQuorum(_))) => drop(manager.inspect("r").await),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Drops `future` after so many polls, unless it is done sooner.
pub(crate) async fn is_done_after(polls: usize, future: impl Future<Output = ()>) -> bool {
    let mut future = Box::pin(future);
    let mut polled = 0;
    poll_fn(move |context| {
        if polled < polls && future.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        polled += 1;
        if polled < polls { Poll::Pending } else { Poll::Ready(false) }
    })
    .await
}
