//! Who holds a lock on real nodes, and requests that wait for no holder.

use futures_util::future::join_all;
use quorate::{LockManager, LockState};
use quorate_tests::Nodes;

use crate::client::{Client, assert_clean, close, on_tokio};

fn labelled(client: Client, nodes: &Nodes, label: &str) -> LockManager {
    client.builder(nodes).label(label).build().unwrap()
}

/// For a plain lock, for several names, and with a fencing token: three commands that name the holder.
#[test]
fn l1_a_refusal_of_a_real_node_names_the_holder_by_its_label() {
    let nodes = &Nodes::start(3);
    on_tokio(async {
        for client in Client::WITH_POOL {
            let (holder, other) = (labelled(client, nodes, "web-3 nightly"), client.manager(nodes));
            for (names, fenced) in [(&["r"][..], false), (&["q", "r"], false), (&["r"], true)] {
                let ask = |locks: &LockManager| {
                    let request = locks.lock(names.to_vec()).no_wait();
                    if fenced { request.fenced() } else { request }
                };
                let guard = ask(&holder).await.unwrap();
                // On a pool, the release of the round before may reach a node behind this acquire.
                let stored = nodes.iter().find_map(|node| node.get("r"));
                let token = String::from_utf8(stored.unwrap()).unwrap();
                let error = ask(&other).await.unwrap_err();
                assert_eq!(error.held_by(), Some("web-3 nightly"), "{client:?}: {error}");
                assert!(error.to_string().starts_with("held by \"web-3 nightly\" on "), "{error}");
                assert!(!format!("{error:?}").contains(&token[..40]), "{client:?}");
                let seen = other.inspect("r").await.unwrap();
                assert_eq!((seen.state(), seen.label()), (LockState::Held, Some("web-3 nightly")));
                assert!(other.try_lock("r").await.unwrap().is_none());
                guard.release().await.unwrap();
            }
            assert_clean(&holder).await;
            assert_clean(&other).await;
        }
    });
}

/// Six processes, as far as the nodes can tell: each has connections of its own.
#[test]
fn o8_of_managers_that_ask_together_exactly_one_gets_the_lock() {
    for count in [3, 5] {
        let nodes = &Nodes::start(count);
        on_tokio(async {
            for client in Client::WITH_POOL {
                let managers: Vec<_> = (0..6).map(|_| client.manager(nodes)).collect();
                // All connections are there.
                for manager in &managers {
                    manager.lock("warm").await.unwrap().release().await.unwrap();
                }
                for turn in 0..10 {
                    let asked = managers.iter().map(|manager| manager.try_lock("job"));
                    let tried: Vec<_> =
                        join_all(asked).await.into_iter().map(Result::unwrap).collect();
                    let winners: Vec<_> = tried.into_iter().flatten().collect();
                    assert_eq!(winners.len(), 1, "{client:?}, {count} nodes, turn {turn}");
                    for guard in winners {
                        guard.release().await.unwrap();
                    }
                }
                for manager in &managers {
                    close(manager, nodes).await;
                }
            }
        });
    }
}
