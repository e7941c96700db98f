//! Calls to one node, as the core makes them.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use quorate_core::backend::{AcquireOptions, ReleaseOptions};
pub(crate) use quorate_core::backend::{Capabilities, LockBackend};
use quorate_core::{BackendError, Claim, Key, Resource, Token, Ttl, Vote, runtime};
use quorate_redis::RedisNode;
pub(crate) use quorate_tests::wait::LIMIT;

/// A node that a slow machine does not keep from connecting.
pub(crate) fn one(address: &str) -> RedisNode {
    quorate_redis::builder().connect_timeout(LIMIT).connect([address]).unwrap().remove(0)
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

pub(crate) fn claim(name: &str) -> Claim {
    let token = Token::draw(runtime::os_random).unwrap();
    Claim::new([key(name)], token, Ttl::try_from(Duration::from_secs(600)).unwrap())
}

pub(crate) async fn acquire(node: &dyn LockBackend, claim: &Claim) -> Result<Vote, BackendError> {
    Ok(node.acquire(claim, AcquireOptions::default()).await?.vote)
}

pub(crate) async fn release(node: &dyn LockBackend, claim: &Claim) -> Result<Vote, BackendError> {
    Ok(node.release(claim, ReleaseOptions::default()).await?.vote)
}

/// Acquires a free key, and again while nothing was sent, as during a back-off.
pub(crate) async fn acquire_in_the_end(node: &dyn LockBackend, claim: &Claim) {
    loop {
        match acquire(node, claim).await {
            Ok(vote) => return assert_eq!(vote, Vote::Granted),
            Err(error) => assert!(error.is_not_sent(), "{error:?}"),
        }
        thread::yield_now();
    }
}

/// An executor that has never heard of tokio.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
