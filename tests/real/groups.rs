//! Groups of clients: one whose nodes are others than those of the group is noticed (N1 to N5).

use quorate::LockManager;
use quorate_tests::wait::{LIMIT, eventually, until_it_says};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, connected, unhurried, with_each};

enum Group {
    None,
    Same,
    New,
}

/// A client with these nodes.
fn manager(client: Client, group: Group, nodes: &[&RedisServer]) -> LockManager {
    let addresses = nodes.iter().map(|node| node.address());
    let nodes = connected!(client, addresses, |builder| {
        let builder = builder.connect_timeout(LIMIT);
        match group {
            Group::None => builder,
            Group::Same => builder.group("payments"),
            Group::New => builder.new_group("payments"),
        }
    });
    unhurried(nodes).build().unwrap()
}

async fn lock_and_release(manager: &LockManager) {
    manager.lock("r").await.unwrap().release().await.unwrap();
}

/// The first list of a group, which is on all of its nodes when this returns.
async fn found(client: Client, nodes: &[&RedisServer]) -> LockManager {
    let manager = manager(client, Group::Same, nodes);
    lock_and_release(&manager).await;
    eventually("each node keeps the list", || nodes.iter().all(|node| listed(node) == nodes.len()));
    manager
}

fn listed(node: &RedisServer) -> usize {
    let list = node.get("quorate:group:payments").unwrap_or_default();
    let list = String::from_utf8(list).unwrap();
    // Those with `-` are on it no more.
    let nodes = list.lines().filter(|line| !line.starts_with('-'));
    nodes.filter(|line| line.contains(" 127.0.0.1:")).count()
}

fn name(node: &RedisServer) -> String {
    node.address().trim_start_matches("redis://").to_owned()
}

#[test]
fn n3_a_client_with_one_node_in_common_is_refused_with_both_lists() {
    with_each(&Client::ALL, async |client| {
        let nodes = Nodes::start(5);
        let [a, b, c, d, e] = nodes.iter().collect::<Vec<_>>()[..] else { unreachable!() };
        let first = found(client, &[a, b, c]).await;
        let held = first.lock("r").await.unwrap();
        let error = manager(client, Group::Same, &[c, d, e]).try_lock("r").await.unwrap_err();
        assert!(error.is_permanent(), "{error}");
        let text = error.to_string();
        for node in [a, b, c, d, e] {
            assert!(text.contains(&name(node)), "{text}");
        }
        let blind = manager(client, Group::None, &[c, d, e]);
        let both = blind.try_lock("r").await.unwrap();
        assert!(both.is_some() && held.is_valid(), "without a group, two hold it");
    });
}

/// Rule N1.
#[test]
fn n2_one_node_more_and_one_less_are_allowed_and_kept() {
    with_each(&Client::ALL, async |client| {
        let nodes = Nodes::start(4);
        let all: Vec<_> = nodes.iter().collect();
        let first = found(client, &all[..3]).await;
        let second = found(client, &all).await;
        lock_and_release(&first).await;
        drop((first, second));
        drop(found(client, &all[..3]).await);
    });
}

/// An operator has written it by hand, or another program. `new_group` is enough for a list, and else once the key that is
/// named is deleted.
#[test]
fn n3_a_node_whose_id_or_list_is_garbage_has_no_vote_until_there_is_a_new_list() {
    let (id, list) = ("quorate:node:id", "quorate:group:payments");
    with_each(&Client::ALL, async |client| {
        let nodes = Nodes::start(3);
        let all: Vec<_> = nodes.iter().collect();
        drop(found(client, &all).await);
        for (garbage, is_replaced) in [
            (&["SET", list, ""][..], true),
            (&["SET", list, "x"], true),
            (&["SET", list, "by hand\nx"], true),
            (&["SET", id, ""], false),
            (&["SET", id, "by hand"], false),
            (&["SET", id, "-1"], false),
            (&["LPUSH", id, "x"], false),
            (&["LPUSH", list, "x"], false),
        ] {
            nodes[2].cli(&["DEL", garbage[1]]);
            nodes[2].cli(garbage);
            let other = manager(client, Group::Same, &all);
            lock_and_release(&other).await;
            let (told, key) = (other.check().await.to_string(), garbage[1]);
            if is_replaced {
                assert!(told.contains(&format!("no list of nodes at {key}")), "{told}");
            } else {
                assert!(told.contains(&format!("at {key}: delete")), "{garbage:?}: {told}");
                nodes[2].cli(&["DEL", key]);
            }
            let new = manager(client, Group::New, &all);
            until_it_says("each node keeps the new list", async || {
                lock_and_release(&new).await;
                let told = manager(client, Group::Same, &all).check().await.to_string();
                !told.contains("group")
            })
            .await;
            until_it_says("the node has a vote", async || {
                drop(other.lock("r").await.unwrap());
                !other.check().await.to_string().contains("no list of nodes")
            })
            .await;
        }
    });
}
