//! What an operation that failed says of each node.

use std::time::Duration;

use quorate::error::Answer;
use quorate::{BackendErrorKind, LockManager, ReleaseError};
use quorate_tests::wait::within_limit;
use quorate_tests::{Mode, Nodes, Proxy, RedisServer, When};

use crate::client::{Client, all_have, on_tokio, unhurried};

/// The release is sent again until the deadline. What a node has said stays its reason.
const NODE_TIMEOUT: Duration = Duration::from_millis(300);

/// Acquires, lets `fail` happen, and releases. Returns the kind of each node's error.
async fn failed_release(
    client: Client,
    addresses: &[String],
    nodes: &Nodes,
    fail: impl FnOnce(),
) -> Vec<BackendErrorKind> {
    let builder = unhurried(client.connect(addresses));
    let manager: LockManager = builder.build().unwrap();
    let guard = manager.lock("r").await.unwrap();
    all_have(nodes, "r").await;
    drop(guard);
    crate::client::nothing_is_left(nodes).await;
    let manager = unhurried(client.connect(addresses)).node_timeout(NODE_TIMEOUT).build().unwrap();
    let guard = manager.lock("r").await.unwrap();
    all_have(nodes, "r").await;
    fail();
    let released = within_limit("the end of the release", guard.release()).await;
    let Err(ReleaseError::Unconfirmed(failure)) = released else {
        panic!("{client:?}: {released:?}")
    };
    let kind = |answer: &Answer| match answer {
        Answer::Failed(error) => error.kind(),
        _ => panic!("{client:?}: {failure}"),
    };
    failure.nodes().iter().map(|node| kind(&node.answer)).collect()
}

#[test]
fn a_failed_release_says_why() {
    on_tokio(async {
        for client in Client::ALL {
            let nodes = Nodes::start(3);
            let kill = || nodes.iter().for_each(RedisServer::kill);
            let kinds = failed_release(client, &nodes.addresses(), &nodes, kill).await;
            assert_eq!(kinds, [BackendErrorKind::Connection; 3], "{client:?}");

            let builder = RedisServer::builder().user("app", "on >pw ~* +@all");
            let nodes = Nodes::start_with(3, &builder);
            let addresses: Vec<_> = nodes.iter().map(|node| node.address_as("app", "pw")).collect();
            let forbid = || {
                for node in nodes.iter() {
                    let rules = ["ACL", "SETUSER", "app", "-@write", "-@scripting"];
                    assert_eq!(node.cli(&rules).error(), None);
                }
            };
            let kinds = failed_release(client, &addresses, &nodes, forbid).await;
            assert_eq!(kinds, [BackendErrorKind::Permission; 3], "{client:?}");

            let nodes = Nodes::start(3);
            let proxies: Vec<_> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
            let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
            let close = || proxies.iter().for_each(|proxy| proxy.set(Mode::Cut(When::Used)));
            let kinds = failed_release(client, &addresses, &nodes, close).await;
            assert_eq!(kinds, [BackendErrorKind::Connection; 3], "{client:?}");
        }
    });
}
