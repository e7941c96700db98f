//! What a connection found out is not asked again.

use quorate_tests::RedisServer;

use crate::client::{Client, assert_clean, on_tokio, unhurried, warm_up};
use crate::watch::calls;

/// How many error replies the node has sent.
fn errors(node: &RedisServer) -> u64 {
    let stats = node.cli(&["INFO", "errorstats"]).text();
    let counts = stats.lines().filter_map(|line| line.split_once(":count="));
    counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}

/// Where the server has no compare-and-delete, the question is answered with an unknown command.
#[test]
fn a_users_acl_without_delifeq_costs_one_question() {
    let denied =
        RedisServer::compare_and_delete().map_or(String::new(), |name| format!(" -{name}"));
    let node = RedisServer::builder().user("app", &format!("on >pw ~* +@all{denied}")).start();
    on_tokio(async {
        for client in Client::ALL {
            let nodes = client.connect(&[node.address_as("app", "pw")]);
            let manager = unhurried(nodes).build().unwrap();
            warm_up(&manager).await;
            let before = (errors(&node), calls(&node, "evalsha"));
            for _ in 0..5 {
                manager.lock("r").await.unwrap().release().await.unwrap();
            }
            let after = (errors(&node), calls(&node, "evalsha"));
            assert_eq!(after, (before.0, before.1 + 5), "{client:?}: a release is one command");
            assert_clean(&manager).await;
        }
    });
}
