//! One manager in many short runtimes, as a `static` that is used by tests which each have a runtime.

use quorate_tests::Nodes;

use crate::client::{
    Client, Home, Settings, accepted, all_have, assert_clean, current_thread, nothing_is_left,
    unhurried,
};
use crate::events;

/// Where connections live on a thread of their own, none of them ends. Elsewhere the first call after the end of a
/// runtime says what helps: once for each node.
#[test]
fn a_manager_in_short_runtimes_leaves_no_keys_and_reports_that_they_end() {
    events::listen();
    for (home, runtimes) in [(Home::Found, 4), (Home::OwnThread, 100)] {
        for client in Client::ALL {
            let nodes = Nodes::start(3);
            let connections = || nodes.iter().map(accepted).sum::<u64>();
            let settings = Settings::at(home.clone());
            let manager = unhurried(client.connect_with(&nodes.addresses(), &settings));
            let manager = manager.build().unwrap();
            let before = connections();
            let is_found = matches!(home, Home::Found);
            for turn in 0..runtimes {
                current_thread().block_on(async {
                    let key = format!("released:{turn}");
                    let released = manager.lock(&*key).await.unwrap();
                    if is_found {
                        all_have(&nodes, &key).await;
                        released.release().await.unwrap();
                        return nothing_is_left(&nodes).await;
                    }
                    // The runtime ends while the releases are in flight.
                    drop(manager.lock(format!("dropped:{turn}")).await.unwrap());
                    released.release().await.unwrap();
                });
            }
            let ended = if is_found { runtimes - 1 } else { 0 };
            for node in nodes.iter() {
                let warnings = events::warnings("runtime ended", node.port());
                assert_eq!(warnings.len(), ended, "{client:?}: {warnings:?}");
                assert!(warnings.iter().all(|it| it.contains("own_thread()")), "{warnings:?}");
            }
            if !is_found {
                current_thread().block_on(assert_clean(&manager));
                let made = connections() - before;
                assert!(made < runtimes as u64, "{client:?}: {made} connections");
            }
            assert_eq!(nodes.keys_left(), [], "{client:?}");
        }
    }
}
