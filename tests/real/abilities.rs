//! Nodes that lack a command, or forbid it: what they grant can be released, and the error names the lack.

use quorate::{BackendErrorKind, LockError};
use quorate_tests::RedisServer;
use quorate_tests::wait::within_limit;

use crate::client::{Client, assert_clean, on_tokio, only_error, unreachable};

/// What a lock on this server needs. With a compare-and-delete a plain lock needs no script.
fn needed() -> &'static [&'static str] {
    match RedisServer::compare_and_delete() {
        Some(_) => &["SET"],
        None => &["SET", "GET", "DEL", "PTTL", "PEXPIRE"],
    }
}

/// Commands are renamed away. Their absence costs a lock, or a feature, but never a release.
#[test]
fn a_node_that_cannot_release_grants_nothing() {
    let lacking = "|SET|GET|DEL|PEXPIRE|EVAL|EVALSHA|EVAL EVALSHA|SCRIPT|PTTL|EXISTS|TIME|ZADD|ZRANGE|ZREM|INFO";
    for commands in lacking.split('|').map(|it| it.split_whitespace().collect::<Vec<_>>()) {
        let builder = RedisServer::builder();
        let builder = commands
            .iter()
            .fold(builder, |builder, command| builder.config("rename-command", &[command, ""]));
        let node = builder.start();
        on_tokio(async {
            for client in Client::WITH_POOL {
                let manager = client.manager_at(&node.address());
                let place = format!("{client:?} without {commands:?}");
                let granted = within_limit(&place, manager.lock("r").no_wait()).await;
                let scripts = RedisServer::compare_and_delete().is_none() && commands.len() == 2;
                let lacks = commands.iter().any(|command| needed().contains(command)) || scripts;
                assert_eq!(granted.is_err(), lacks, "{place}: {granted:?}");
                match granted {
                    Ok(guard) => {
                        let extended = guard.extend().await;
                        let is_plain = RedisServer::compare_and_delete().is_some();
                        assert!(extended.is_ok() || is_plain, "{place}: {extended:?}");
                        guard.release().await.unwrap_or_else(|error| panic!("{place}: {error}"));
                    }
                    Err(error) => is_named(&error, commands[0], BackendErrorKind::Script, &place),
                }
                assert_eq!(node.keys(), [""; 0], "{place}");
                assert_clean(&manager).await;
            }
        });
    }
}

/// The first call says which permission is missing, and nothing is set. A permission that was granted is noticed.
#[test]
fn a_missing_permission_is_named() {
    let compare = RedisServer::compare_and_delete();
    let compare = compare.map_or_else(String::new, |name| format!("-{}", name.to_lowercase()));
    let node = RedisServer::builder().user("app", "on >pw ~* +@all").start();
    let allow = |rules: &[&str]| {
        let rules = rules.iter().copied().filter(|rule| !rule.is_empty());
        let words: Vec<_> = ["ACL", "SETUSER", "app", "+@all"].into_iter().chain(rules).collect();
        assert_eq!(node.cli(&words).error(), None);
    };
    on_tokio(async {
        for (rules, missing) in [
            (&["-@scripting"][..], "EVAL"),
            (&["-eval", "-evalsha"], "EVAL"),
            (&["-get"], "GET"),
            (&["-del"], "DEL"),
            (&["-pttl"], "PTTL"),
            (&["-pexpire"], "PEXPIRE"),
            (&["-set"], "SET"),
        ] {
            for client in Client::WITH_POOL {
                allow(&[rules, &[&compare]].concat());
                let place = format!("{client:?} without {rules:?}");
                let manager = client.manager_at(&node.address_as("app", "pw"));
                // Permanent: nothing is waited for.
                let error = within_limit(&place, manager.lock("r")).await.expect_err(&place);
                is_named(&error, missing, BackendErrorKind::Permission, &place);
                assert_eq!(node.keys(), [""; 0], "{place}");
                // These are enough.
                allow(&["-evalsha", "-script", &compare]);
                let manager = client.manager_at(&node.address_as("app", "pw"));
                let guard =
                    manager.lock("r").await.unwrap_or_else(|error| panic!("{place}: {error}"));
                guard.extend().await.unwrap();
                guard.release().await.unwrap();
            }
        }
    });
}

fn is_named(error: &LockError, command: &str, kind: BackendErrorKind, place: &str) {
    assert!(error.is_permanent(), "{place}: {error}");
    let failure = unreachable::<()>(Err(error.clone()));
    let reason = only_error(&failure);
    assert_eq!(reason.kind(), kind, "{place}: {error}");
    assert!(reason.to_string().to_uppercase().contains(command), "{place}: {error}");
}
