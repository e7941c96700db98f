//! What an operation that failed says of each node.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use quorate::error::{Answer, QuorumFailure};
use quorate::{BackendErrorKind, LockManager, ReleaseError};
use quorate_tests::wait::{until_it_says, within_limit};
use quorate_tests::{Mode, Nodes, Proxy, RedisServer, When};

use crate::client::{Client, all_have, on_tokio, unhurried, unreachable};

/// The release is sent again until the deadline. What a node has said stays its reason.
const NODE_TIMEOUT: Duration = Duration::from_millis(300);

/// Acquires, lets `fail` happen, and releases. Returns the kind and the text of each node's error.
async fn failed_release(
    client: Client,
    addresses: &[String],
    nodes: &Nodes,
    fail: impl AsyncFnOnce(&LockManager),
) -> (Vec<BackendErrorKind>, String) {
    let builder = unhurried(client.connect(addresses));
    let manager: LockManager = builder.build().unwrap();
    let guard = manager.lock("r").await.unwrap();
    all_have(nodes, "r").await;
    drop(guard);
    crate::client::nothing_is_left(nodes).await;
    let manager = unhurried(client.connect(addresses)).node_timeout(NODE_TIMEOUT).build().unwrap();
    let guard = manager.lock("r").await.unwrap();
    all_have(nodes, "r").await;
    fail(&manager).await;
    let released = within_limit("the end of the release", guard.release()).await;
    let Err(ReleaseError::Unconfirmed(failure)) = released else {
        panic!("{client:?}: {released:?}")
    };
    let kinds = kinds(&failure);
    (kinds.unwrap_or_else(|| panic!("{client:?}: {failure}")), failure.to_string())
}

/// The kind of each node's error, if each failed.
fn kinds(failure: &QuorumFailure) -> Option<Vec<BackendErrorKind>> {
    let kind = |answer: &Answer| match answer {
        Answer::Failed(error) => Some(error.kind()),
        _ => None,
    };
    failure.nodes().iter().map(|node| kind(&node.answer)).collect()
}

/// Starts each node anew without the commands that a release needs, and waits until the manager knows.
async fn restart_without_scripts(nodes: &Nodes, manager: &LockManager) {
    for node in nodes.iter() {
        let mut config =
            OpenOptions::new().append(true).open(node.dir().join("redis.conf")).unwrap();
        for command in ["EVAL", "EVALSHA"].into_iter().chain(RedisServer::compare_and_delete()) {
            writeln!(config, "rename-command {command} \"\"").unwrap();
        }
        node.restart();
    }
    until_it_says("each node lacks scripts", async || {
        let refused = manager.lock("probe").no_wait().await;
        kinds(&unreachable(refused)).is_some_and(|kinds| kinds == [BackendErrorKind::Script; 3])
    })
    .await;
}

#[test]
fn a_failed_release_says_why() {
    on_tokio(async {
        for client in Client::ALL {
            let nodes = Nodes::start(3);
            let kill = async |_: &_| nodes.iter().for_each(RedisServer::kill);
            let (kinds, _) = failed_release(client, &nodes.addresses(), &nodes, kill).await;
            assert_eq!(kinds, [BackendErrorKind::Connection; 3], "{client:?}");

            let builder = RedisServer::builder().user("app", "on >pw ~* +@all");
            let nodes = Nodes::start_with(3, &builder);
            let addresses: Vec<_> = nodes.iter().map(|node| node.address_as("app", "pw")).collect();
            let forbid = async |_: &_| {
                for node in nodes.iter() {
                    let rules = ["ACL", "SETUSER", "app", "-@write", "-@scripting"];
                    assert_eq!(node.cli(&rules).error(), None);
                }
            };
            let (kinds, _) = failed_release(client, &addresses, &nodes, forbid).await;
            assert_eq!(kinds, [BackendErrorKind::Permission; 3], "{client:?}");

            let nodes = Nodes::start(3);
            let proxies: Vec<_> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
            let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
            let close = async |_: &_| {
                proxies.iter().for_each(|proxy| proxy.set(Mode::Cut(When::Used)));
            };
            let (kinds, _) = failed_release(client, &addresses, &nodes, close).await;
            assert_eq!(kinds, [BackendErrorKind::Connection; 3], "{client:?}");

            let nodes = Nodes::start(3);
            let rename = async |manager: &_| restart_without_scripts(&nodes, manager).await;
            let (kinds, text) = failed_release(client, &nodes.addresses(), &nodes, rename).await;
            assert_eq!(kinds, [BackendErrorKind::Script; 3], "{client:?}: {text}");
            assert!(text.to_lowercase().contains("unknown command"), "{client:?}: {text}");
        }
    });
}
