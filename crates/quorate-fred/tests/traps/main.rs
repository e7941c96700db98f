//! What fred does that a lock must not suffer from, each shown harmless by a node that plays a
//! script. No redis-server is needed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::future_not_send, reason = "tests")]

mod down;
mod hung;
mod node;
mod once;
mod pending;
mod replies;
mod runtimes;

use std::future::Future;
use std::time::Duration;

use quorate_core::backend::{AcquireOptions, ExtendOptions, LockBackend, ReleaseOptions};
use quorate_core::runtime::os_random;
use quorate_core::{BackendError, Claim, Key, Resource, Token, Ttl, Vote};
use quorate_fred::FredNode;

fn claim() -> Claim {
    claim_of("orders:42")
}

fn claim_of(name: &str) -> Claim {
    let key = Key::new(b"", &Resource::new(name).unwrap());
    let token = Token::draw(os_random).unwrap();
    Claim::new([key], token, Ttl::try_from(Duration::from_secs(10)).unwrap())
}

/// The limit of every wait, and of every attempt to connect. Only a broken node takes that long.
const LIMIT: Duration = Duration::from_secs(120);

fn node_at(address: &str) -> FredNode {
    quorate_fred::builder().connect_timeout(LIMIT).connect([address]).unwrap().remove(0)
}

async fn acquire(node: &FredNode, claim: &Claim) -> Result<Vote, BackendError> {
    node.acquire(claim, AcquireOptions::default()).await.map(|acquired| acquired.vote)
}

async fn extend(node: &FredNode, claim: &Claim) -> Result<Vote, BackendError> {
    node.extend(claim, ExtendOptions::default()).await.map(|extended| extended.vote)
}

async fn release(node: &FredNode, claim: &Claim) -> Result<Vote, BackendError> {
    node.release(claim, ReleaseOptions::default()).await.map(|released| released.vote)
}

/// Awaits `future`, and fails if it takes longer than [`LIMIT`].
#[expect(clippy::disallowed_methods, reason = "the limit of every wait")]
async fn within_limit<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {LIMIT:?}: {what}"),
    }
}

/// Lets others run until something is true.
async fn until(what: &str, is_true: impl Fn() -> bool) {
    let wait = async {
        while !is_true() {
            tokio::task::yield_now().await;
        }
    };
    within_limit(what, wait).await;
}

/// Asks again until the node answers: there is no promise when it is reached again.
async fn until_answered<T, F: Future<Output = Result<T, BackendError>>>(ask: impl Fn() -> F) -> T {
    let answered = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    within_limit("an answer of the node", answered).await
}
