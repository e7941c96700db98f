//! Every public future, to be dropped at every poll: on the fake, on every runtime, on real nodes.
//!
//! All of them leave no key. `keep`, and `once_per` after a success, leave a mark: `rules/once.rs` drops them.

use std::future::{Future, poll_fn};
use std::mem::forget;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join;
use quorate_core::runtime::BoxFuture;
use quorate_core::{AdoptError, DetachedLock, LockManager, Runtime};

/// The future that a caller drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Lock,
    Read,
    LockAny,
    LockNow,
    LockWith,
    LockNowWith,
    LockWithFuture,
    ManagerWith,
    Lead,
    OncePer,
    Extend,
    ExtendTo,
    Release,
    Lost,
    AtRisk,
    Run,
    AutoRenew,
    Adopt,
    Revoke,
    Delete,
    Check,
    Close,
}

/// One of them, begun.
pub(crate) struct Trial {
    /// To be polled, and dropped at any poll.
    pub(crate) future: BoxFuture<'static, ()>,
    /// A lock that belongs to the owner of this record, whatever became of the future.
    pub(crate) record: Option<DetachedLock>,
}

impl Doing {
    pub(crate) const ALL: [Self; 22] = [
        Self::Lock,
        Self::Read,
        Self::LockAny,
        Self::LockNow,
        Self::LockWith,
        Self::LockNowWith,
        Self::LockWithFuture,
        Self::ManagerWith,
        Self::Lead,
        Self::OncePer,
        Self::Extend,
        Self::ExtendTo,
        Self::Release,
        Self::Lost,
        Self::AtRisk,
        Self::Run,
        Self::AutoRenew,
        Self::Adopt,
        Self::Revoke,
        Self::Delete,
        Self::Check,
        Self::Close,
    ];

    /// The number of polls to begin with. A close that was never polled has closed nothing.
    pub(crate) const fn first(self) -> usize {
        match self {
            Self::Close => 1,
            _ => 0,
        }
    }

    /// Prepares `self`, on the resource `r`. A lock is held for `hold`. The rival stands for the manager of
    /// another process.
    pub(crate) async fn begin(
        self,
        manager: LockManager,
        rival: &LockManager,
        clock: Arc<dyn Runtime>,
        hold: Duration,
    ) -> Trial {
        /// Far longer than any of it takes.
        const BOUND: Duration = Duration::from_secs(120);
        let work = move || {
            let end = clock.now() + hold;
            async move {
                // In steps, each of them a poll to be dropped at.
                while clock.now() < end {
                    clock.sleep_until(end.min(clock.now() + hold / 16)).await;
                }
            }
        };
        let lock = || manager.lock("r");
        let held = async || lock().await.expect("it is free");
        let mut record = None;
        let future: BoxFuture<'static, ()> = match self {
            Self::Lock | Self::Read | Self::LockAny => {
                // Contended, so that several rounds are lost before one is won.
                let other = rival.lock(["r", "s"]).await.expect("they are free");
                let releases = async move {
                    work().await;
                    drop(other);
                };
                let request = match self {
                    Self::Read => manager.read("r"),
                    Self::LockAny => manager.lock_any(["r", "s"]),
                    _ => lock(),
                };
                let locks = request.into_future();
                Box::pin(async { drop(join(releases, locks).await) })
            }
            Self::LockNow => {
                let locks = lock().no_wait().into_future();
                Box::pin(async { drop(locks.await) })
            }
            Self::LockWith | Self::LockNowWith => {
                let request = if self == Self::LockWith { lock() } else { lock().no_wait() };
                Box::pin(async { drop(request.with(async |_| work().await).await) })
            }
            Self::LockWithFuture => {
                let request = lock();
                Box::pin(async { drop(request.with_future(|_| work()).await) })
            }
            Self::ManagerWith => {
                Box::pin(async move { drop(manager.with("r", async |_| work().await).await) })
            }
            Self::Lead => {
                let (mut work, request) = (Some(work), lock());
                let body = move |_| {
                    let work = work.take().expect("it leads once");
                    work()
                };
                Box::pin(async { drop(request.lead_future(body).await) })
            }
            Self::OncePer => Box::pin(async move {
                let fails = async move |_| {
                    work().await;
                    Err::<(), _>(())
                };
                drop(manager.once_per("r", hold.max(Duration::from_secs(60)), fails).await);
            }),
            Self::Extend | Self::ExtendTo | Self::Release | Self::Run | Self::AutoRenew => {
                let guard = held().await;
                if self == Self::AutoRenew {
                    guard.auto_renew();
                }
                Box::pin(async move {
                    match self {
                        Self::Extend => drop(guard.extend().await),
                        Self::ExtendTo => drop(guard.extend_to(2 * BOUND).await),
                        Self::Release => drop(guard.release().await),
                        Self::Run => drop(guard.run(work()).await),
                        _ => work().await,
                    }
                })
            }
            Self::Lost | Self::AtRisk => {
                let guard = lock().hold_limit(8 * hold).await.expect("it is free");
                Box::pin(async move {
                    match self {
                        Self::Lost => drop(guard.lost().await),
                        _ => drop(guard.at_risk().await),
                    }
                })
            }
            Self::Adopt => {
                let guard = held().await;
                // An acquire in flight to a slow node would be executed after the adopter's release.
                work().await;
                let adopted = guard.detach().expect("it is held");
                record = Some(adopted.clone());
                Box::pin(async move { drop(manager.adopt(&adopted).await) })
            }
            Self::Revoke => {
                // A free lock: what is revoked stays for its ttl.
                let guard = lock().await.expect("it is free");
                Box::pin(async move {
                    drop(manager.revoke("free").await);
                    drop(guard);
                })
            }
            Self::Delete => {
                let guard = lock().await.expect("it is free");
                Box::pin(async move {
                    drop(manager.delete("r").await);
                    drop(guard);
                })
            }
            Self::Check => Box::pin(async move { drop(manager.check().await) }),
            Self::Close => {
                let kept = held().await;
                kept.auto_renew();
                let waiting = lock().into_future();
                let forgotten = manager.lock(["s", "t"]).await.expect("they are free");
                forgotten.auto_renew();
                forget(forgotten);
                forget(manager.lock("u").await.expect("it is free"));
                Box::pin(async move {
                    drop(join(waiting, manager.close(BOUND)).await);
                    drop(kept);
                })
            }
        };
        Trial { future, record }
    }
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
            Err(AdoptError::NoQuorum(_)) => drop(manager.inspect("r").await),
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
