//! Logins that change while the program runs: each new connection asks for them.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate::LockManager;
use quorate::fred::FredDial;
use quorate::redis::{Credentials, IntoDial as _};
use quorate_tests::wait::{LIMIT, until_it_says};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, assert_clean, connected, unhurried, unreachable, with_each};

/// The password of the locker, or why there is none.
#[derive(Clone)]
struct Vault(Arc<Mutex<Result<&'static str, &'static str>>>);

impl Vault {
    fn new(password: &'static str) -> Self {
        Self(Arc::new(Mutex::new(Ok(password))))
    }

    fn set(&self, answer: Result<&'static str, &'static str>) {
        *self.0.lock().unwrap() = answer;
    }
}

/// A manager whose connections ask the vault. Nothing of the login in its addresses is right.
fn manager(client: Client, nodes: &Nodes, vault: &Vault) -> LockManager {
    let addresses = nodes.iter().map(|node| node.address_as("stale", "stale"));
    let vault = vault.clone();
    let login = |password: &'static str| Credentials::new("locker", password);
    let ask = move |_| ready(vault.0.lock().unwrap().map(login));
    let builder = unhurried(connected!(client, addresses, |builder| {
        builder.connect_timeout(LIMIT).credentials(ask)
    }));
    // A release whose connection was ended is sent again after that.
    builder.node_timeout(Duration::from_secs(1)).build().unwrap()
}

/// Nodes with one user, whose password is `one`.
fn start() -> Nodes {
    let builder = RedisServer::builder().user("default", "off");
    Nodes::start_with(3, &builder.user("locker", "on >one ~* &* +@all"))
}

/// The nodes accept this password alone, and all connections end.
fn rotate(nodes: &Nodes, password: &str) {
    for node in nodes.iter() {
        let password = format!(">{password}");
        let reply = node.cli(&["ACL", "SETUSER", "locker", "resetpass", &password]);
        assert_eq!(reply.text(), "OK");
        node.cli(&["CLIENT", "KILL", "USER", "locker"]).integer();
    }
}

#[test]
fn locking_goes_on_when_a_password_is_rotated_and_connections_end() {
    with_each(&Client::ALL, async |client| {
        let (nodes, vault) = (start(), Vault::new("one"));
        let manager = manager(client, &nodes, &vault);
        let held = manager.lock("held").auto_renew().await.unwrap();
        for password in ["two", "three"] {
            vault.set(Ok(password));
            rotate(&nodes, password);
            manager.lock("r").await.unwrap().release().await.unwrap();
            until_it_says("an extension", async || held.extend().await.is_ok()).await;
            // A waiter, whose connection for watches asks as well.
            let waits = tokio::spawn(manager.lock("held").into_future());
            tokio::task::yield_now().await;
            assert!(!waits.is_finished() && held.is_valid());
            waits.abort();
        }
        held.release().await.unwrap();
        assert_clean(&manager).await;
        assert_eq!(nodes.keys_left(), []);
    });
}

/// A manager whose nodes have addresses with this password, and ask for another one of `user:password@`
/// when that is refused.
fn asking(
    client: Client,
    nodes: &Nodes,
    password: &str,
    ask: impl Fn(String) -> Option<String> + Send + Sync + 'static,
) -> LockManager {
    let addresses = nodes.iter().map(|node| node.address_as("locker", password));
    let builder = match client {
        Client::Fred => {
            let dial = move |node| ready(ask(node).map(|to| FredDial::at(&to).unwrap()));
            let fred = quorate::fred::builder().connect_timeout(LIMIT).when_refused(dial);
            unhurried(fred.connect(addresses).unwrap())
        }
        _ => {
            let dial = move |node| ready(ask(node).map(|to| to.into_dial().unwrap()));
            let redis = quorate::redis::builder().connect_timeout(LIMIT).when_refused(dial);
            unhurried(redis.connect(addresses).unwrap())
        }
    };
    builder.node_timeout(Duration::from_secs(1)).build().unwrap()
}

/// Locks and releases, however often that fails before.
async fn locks_in_the_end(manager: &LockManager) {
    until_it_says("a lock", async || match manager.lock("r").no_wait().await {
        Ok(guard) => guard.release().await.is_ok(),
        Err(_) => false,
    })
    .await;
}

/// No request hears of it, though each connection was refused once.
#[test]
fn a_login_that_is_refused_is_asked_for_again() {
    with_each(&Client::ALL, async |client| {
        let (nodes, vault) = (start(), Vault::new("two"));
        let asked = vault.clone();
        let ask = move |node| {
            let password = asked.0.lock().unwrap().ok()?;
            Some(format!("redis://locker:{password}@{node}"))
        };
        let manager = asking(client, &nodes, "one", ask);
        let held = manager.lock("held").auto_renew().await.unwrap();
        for password in ["two", "three"] {
            vault.set(Ok(password));
            rotate(&nodes, password);
            manager.lock("r").await.unwrap().release().await.unwrap();
            until_it_says("an extension", async || held.extend().await.is_ok()).await;
        }
        held.release().await.unwrap();
        // It is not asked for, or not known.
        vault.set(Err("the vault is sealed"));
        rotate(&nodes, "four");
        until_it_says("a refusal", async || match manager.lock("r").await {
            Ok(guard) => guard.release().await.is_err(),
            Err(error) => error.is_permanent(),
        })
        .await;
        vault.set(Ok("four"));
        // A pause after the refusal is over first.
        locks_in_the_end(&manager).await;
        assert_clean(&manager).await;
    });
}

/// The answer after a refusal leads nowhere at first.
#[test]
fn an_answer_after_a_refusal_that_does_not_work_is_asked_for_again() {
    with_each(&Client::ALL, async |client| {
        let (nodes, asked) = (start(), AtomicUsize::new(0));
        let ask = move |node| match asked.fetch_add(1, Ordering::Relaxed) {
            0..3 => Some("redis://127.0.0.1:1".to_owned()),
            _ => Some(format!("redis://locker:one@{node}")),
        };
        let manager = asking(client, &nodes, "stale", ask);
        locks_in_the_end(&manager).await;
        assert_clean(&manager).await;
    });
}

/// The server takes any password of a user who needs none. The login comes from a function: an address of a user has a
/// password.
#[test]
fn a_user_who_needs_no_password_logs_in_with_an_empty_one() {
    let nodes = RedisServer::builder().user("default", "off");
    let nodes = Nodes::start_with(1, &nodes.user("locker", "on nopass ~* &* +@all"));
    with_each(&Client::ALL, async |client| {
        let manager = manager(client, &nodes, &Vault::new(""));
        manager.lock("r").no_wait().await.unwrap().release().await.unwrap();
        assert_clean(&manager).await;
    });
}

#[test]
fn a6_a_login_that_is_wrong_or_missing_is_an_error_without_secrets() {
    with_each(&Client::ALL, async |client| {
        let (nodes, vault) = (start(), Vault::new("hunter2"));
        let manager = manager(client, &nodes, &vault);
        let error = manager.lock("r").await.unwrap_err();
        assert!(error.is_permanent(), "{client:?}: {error}");
        let shown = format!("{error} {error:?} {manager:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("stale"), "{shown}");

        vault.set(Err("the vault is sealed"));
        until_it_says("the error of the vault", async || {
            let text = unreachable(manager.lock("r").no_wait().await).to_string();
            text.matches("no credentials: the vault is sealed").count() >= 2
        })
        .await;
        let error = manager.lock("r").no_wait().await.unwrap_err();
        assert!(!error.is_permanent(), "{client:?}: {error}");

        vault.set(Ok("one"));
        manager.lock("r").await.unwrap().release().await.unwrap();
        assert_clean(&manager).await;
    });
}

/// Over both protocols, whatever user the address has.
#[test]
fn a_login_without_a_user_is_that_of_the_default_one() {
    let new = RedisServer::builder().user("default", "on >one ~* &* +@all");
    let old = new.clone().config("rename-command", &["HELLO", ""]).start();
    let new = new.start();
    with_each(&Client::ALL, async |client| {
        for server in [&new, &old] {
            let address = [server.address_as("stale", "stale")];
            let ask = |_| ready(Ok::<_, String>(Credentials::of_password("one")));
            let builder = unhurried(connected!(client, &address, |builder| {
                builder.connect_timeout(LIMIT).credentials(ask)
            }));
            let manager = builder.build().unwrap();
            let guard = manager.lock("r").no_wait().await;
            let guard = guard.unwrap_or_else(|error| panic!("{client:?}: {error}"));
            guard.release().await.unwrap();
            assert_clean(&manager).await;
        }
    });
}
