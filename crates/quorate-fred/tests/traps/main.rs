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

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::{Config, ConnectionConfig, PerformanceConfig, ReconnectPolicy};
use quorate_core::runtime::os_random;
use quorate_core::{Claim, Key, Resource, Token, Ttl};
use quorate_fred::FredBackend;

use node::Node;

fn claim() -> Claim {
    claim_of("orders:42")
}

fn claim_of(name: &str) -> Claim {
    let key = Key::new(b"", &Resource::new(name).unwrap());
    let token = Token::draw(os_random).unwrap();
    Claim::new([key], token, Ttl::try_from(Duration::from_secs(10)).unwrap())
}

/// The limit of every wait, and of every attempt to connect. Only a broken backend takes that long.
const LIMIT: Duration = Duration::from_secs(120);

fn backend(address: &str) -> FredBackend {
    quorate_fred::builder().connect_timeout(LIMIT).connect([address]).unwrap().remove(0)
}

/// Awaits `future`, and fails if it takes longer than [`LIMIT`].
#[expect(clippy::disallowed_methods, reason = "the limit of every wait")]
async fn within_limit<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {LIMIT:?}: {what}"),
    }
}

/// A client as careless as fred allows, which reconnects after `delay` ms (`None`: never).
fn client(node: &Node, delay: Option<u32>) -> Client {
    let policy = delay.map(|delay| {
        let mut policy = ReconnectPolicy::new_constant(0, delay);
        policy.set_jitter(0);
        policy
    });
    let perf = PerformanceConfig {
        default_command_timeout: Duration::from_secs(60),
        ..PerformanceConfig::default()
    };
    let connection = ConnectionConfig { max_command_attempts: 10, ..ConnectionConfig::default() };
    let config = Config::from_url(&node.url()).unwrap();
    Client::new(config, Some(perf), Some(connection), policy)
}

async fn connected_client(node: &Node, delay: Option<u32>) -> Client {
    let client = client(node, delay);
    client.init().await.unwrap();
    client
}

/// Asks again until the node answers: what it takes to be back is nobody's promise.
async fn until_answered<T, E, F: Future<Output = Result<T, E>>>(ask: impl Fn() -> F) -> T {
    let patience = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    within_limit("an answer of the node", patience).await
}
