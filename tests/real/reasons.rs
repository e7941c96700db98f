//! What an operation that failed says of each node.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use quorate::error::{Answer, QuorumFailure};
use quorate::{BackendErrorKind, LockManager, ReleaseError};
use quorate_tests::wait::{until_it_says, within_limit};
use quorate_tests::{End, Mode, Nodes, Proxy, RedisServer, When};

use crate::client::{Client, all_have, nothing_is_left, unreachable, warm_up, with_each};

/// The release is sent again until the deadline. What a node has said stays its reason.
const NODE_TIMEOUT: Duration = Duration::from_millis(300);

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
        let config = OpenOptions::new().append(true).open(node.dir().join("redis.conf"));
        let mut config = config.unwrap();
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
    with_each(&Client::ALL, async |client| {
        for (how, expected) in [
            ("killed", BackendErrorKind::Connection),
            ("cut off", BackendErrorKind::Connection),
            ("forbidden", BackendErrorKind::Permission),
            ("without scripts", BackendErrorKind::Script),
        ] {
            let builder = RedisServer::builder().user("app", "on >pw ~* +@all");
            let nodes = Nodes::start_with(3, &builder);
            let proxies: Vec<_> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
            let address = |proxy: &Proxy| format!("redis://app:pw@127.0.0.1:{}", proxy.port());
            let builder = || client.builder_of(&proxies.iter().map(address).collect::<Vec<_>>());
            warm_up(&builder().build().unwrap()).await;
            nothing_is_left(&nodes).await;
            let manager = builder().node_timeout(NODE_TIMEOUT).build().unwrap();
            let guard = manager.lock("r").await.unwrap();
            all_have(&nodes, "r").await;
            match how {
                "killed" => nodes.iter().for_each(RedisServer::kill),
                "cut off" => proxies.iter().for_each(|it| it.set(Mode::End(End::Cut, When::Used))),
                "forbidden" => nodes.iter().for_each(|node| {
                    let rules = ["ACL", "SETUSER", "app", "-@write", "-@scripting"];
                    assert_eq!(node.cli(&rules).error(), None);
                }),
                _ => restart_without_scripts(&nodes, &manager).await,
            }
            let released = within_limit("the end of the release", guard.release()).await;
            let Err(ReleaseError::Unconfirmed(failure)) = released else { panic!("{released:?}") };
            assert_eq!(kinds(&failure), Some(vec![expected; 3]), "{client:?}, {how}: {failure}");
            let is_named = failure.to_string().to_lowercase().contains("unknown command");
            assert!(is_named || how != "without scripts", "{client:?}: {failure}");
        }
    });
}
