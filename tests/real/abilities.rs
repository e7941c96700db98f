//! Nodes that lack a command, or forbid it: what they grant can be released, and the error names the lack.

use quorate::error::Answer;
use quorate::{BackendErrorKind, LockError, LockManager};
use quorate_tests::RedisServer;
use quorate_tests::wait::within_limit;

use crate::client::{Client, assert_clean, on_tokio, unhurried, unreachable};

/// What a lock on this server needs. With a compare-and-delete a plain lock needs no script.
fn needed() -> &'static [&'static str] {
    match RedisServer::compare_and_delete() {
        Some(_) => &["SET"],
        None => &["SET", "GET", "DEL", "PTTL", "PEXPIRE"],
    }
}

/// Each command is renamed away in turn. Its absence costs a lock, or a feature, but never a release.
#[test]
fn a_node_that_cannot_release_grants_nothing() {
    const COMMANDS: [&str; 14] = [
        "SET", "GET", "DEL", "PEXPIRE", "EVAL", "EVALSHA", "SCRIPT", "PTTL", "EXISTS", "TIME",
        "ZADD", "ZRANGE", "ZREM", "INFO",
    ];
    for command in COMMANDS {
        let node = RedisServer::builder().config("rename-command", &[command, ""]).start();
        on_tokio(async {
            for client in Client::ALL {
                let manager = unhurried(client.connect(&[node.address()])).build().unwrap();
                let place = format!("{client:?} without {command}");
                let granted = within_limit(&place, manager.lock("r").no_wait()).await;
                assert_eq!(granted.is_err(), needed().contains(&command), "{place}: {granted:?}");
                match granted {
                    Ok(guard) => {
                        let extended = guard.extend().await;
                        let is_plain = RedisServer::compare_and_delete().is_some();
                        assert!(extended.is_ok() || is_plain, "{place}: {extended:?}");
                        guard.release().await.unwrap_or_else(|error| panic!("{place}: {error}"));
                    }
                    Err(error) => is_named(&error, command, BackendErrorKind::Script, &place),
                }
                assert_eq!(node.keys(), [""; 0], "{place}");
                assert_clean(&manager).await;
            }
        });
    }
}

/// The first call says which permission is missing, and nothing is set.
#[test]
fn a_missing_permission_is_named() {
    let node = RedisServer::builder().user("app", "on >pw ~* +@all").start();
    on_tokio(async {
        for (command, client) in
            needed().iter().flat_map(|command| Client::ALL.map(|client| (*command, client)))
        {
            let lacks = format!("-{}", command.to_lowercase());
            let done = node.cli(&["ACL", "SETUSER", "app", "+@all", &lacks]);
            assert_eq!(done.error(), None);
            let address = node.address_as("app", "pw");
            let manager: LockManager = unhurried(client.connect(&[address])).build().unwrap();
            let place = format!("{client:?} without {command}");
            // Permanent: nothing is waited for.
            let refused = within_limit(&place, manager.lock("r")).await;
            let error = refused.expect_err(&place);
            is_named(&error, command, BackendErrorKind::Permission, &place);
            assert_eq!(node.keys(), [""; 0], "{place}");
        }
    });
}

fn is_named(error: &LockError, command: &str, kind: BackendErrorKind, place: &str) {
    assert!(error.is_permanent(), "{place}: {error}");
    let failure = unreachable::<()>(Err(error.clone()));
    let Answer::Failed(reason) = &failure.nodes()[0].answer else { panic!("{place}: {error}") };
    assert_eq!(reason.kind(), kind, "{place}: {error}");
    let text = reason.to_string().to_uppercase();
    assert!(text.contains(command), "{place}: {error}");
}
