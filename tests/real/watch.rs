//! Watches on real nodes: what ends them, what they cost, and what happens to the connection.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quorate::backend::{AcquireOptions, Capabilities, ReleaseOptions, Watched};
use quorate::{
    BackendError, BackendErrorKind, Claim, Key, LockBackend, Resource, Token, Ttl, Vote,
};
use quorate_core::runtime::os_random;
use quorate_tests::RedisServer;
use quorate_tests::wait::{LONG_TTL, until, within_limit};
use tokio::task::yield_now;

use crate::client::{Client, on_tokio, with_each_client};

/// One node, and one backend on it.
struct Scene {
    node: RedisServer,
    backend: Arc<dyn LockBackend>,
}

impl Scene {
    fn new(client: Client) -> Self {
        let node = RedisServer::start();
        let backend = client.connect_one(&node.address());
        Self { node, backend }
    }

    /// Another program sets the key.
    fn set(&self, name: &str) {
        self.node.cli(&["SET", name, "another-libraries-token", "PX", "3600000"]);
    }

    /// A watch of a key that is held.
    async fn watch_held(&self, name: &str) -> Watched {
        let watched = watch(&self.backend, name).await.unwrap();
        assert!(watched.is_held(), "{:?}", self.backend);
        watched
    }
}

fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

fn claim(name: &str) -> Claim {
    let ttl = Ttl::try_from(LONG_TTL).unwrap();
    Claim::new([key(name)], Token::draw(os_random).unwrap(), ttl)
}

async fn acquire(backend: &Arc<dyn LockBackend>, claim: &Claim) {
    let acquired = backend.acquire(claim, AcquireOptions::default()).await.unwrap();
    assert_eq!(acquired.vote, Vote::Granted);
}

async fn release(backend: &Arc<dyn LockBackend>, claim: &Claim) {
    let released = backend.release(claim, ReleaseOptions::default()).await.unwrap();
    assert_eq!(released.vote, Vote::Granted);
}

async fn watch(backend: &Arc<dyn LockBackend>, name: &str) -> Result<Watched, BackendError> {
    within_limit("a reply to the watch", backend.watch(&key(name), None)).await
}

async fn ended(watched: Watched) {
    within_limit("the end of the watch", watched.changed()).await;
}

/// How often a node has executed a command.
pub(crate) fn calls(node: &RedisServer, command: &str) -> u64 {
    let info = node.cli(&["INFO", "commandstats"]).text();
    let line =
        info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

fn kind<T>(outcome: &Result<T, BackendError>) -> Option<BackendErrorKind> {
    outcome.as_ref().err().map(BackendError::kind)
}

#[test]
fn a_release_wakes_the_waiter_whichever_library_made_the_lock() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        let ours = claim("r");
        acquire(&scene.backend, &ours).await;
        let watched = scene.watch_held("r").await;
        release(&scene.backend, &ours).await;
        ended(watched).await;

        let script = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) \
                      else return 0 end";
        let mut releases = vec![
            vec!["EVAL", script, "1", "r", "another-libraries-token"],
            vec!["DEL", "r"],
            vec!["UNLINK", "r"],
            vec!["RENAME", "r", "elsewhere"],
        ];
        if RedisServer::version() >= (6, 2) {
            releases.push(vec!["GETDEL", "r"]);
        }
        for release in releases {
            scene.set("r");
            let watched = scene.watch_held("r").await;
            assert_eq!(scene.node.cli(&release).error(), None);
            ended(watched).await;
        }
    });
}

#[test]
fn expiry_wakes() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        let mut ttl = Duration::from_millis(200);
        loop {
            scene.node.cli(&["SET", "r", "x", "PX", &ttl.as_millis().to_string()]);
            let watched = watch(&scene.backend, "r").await.unwrap();
            // Else the machine was too slow, and the watch found the key free.
            if watched.is_held() {
                ended(watched).await;
                break;
            }
            ttl *= 2;
        }
        assert_eq!(scene.node.get("r"), None, "{client:?}");
    });
}

/// fred does not pass on the push of a flush. The key is read again instead.
#[test]
fn a_flush_of_everything_wakes_every_waiter() {
    let flushed = async |client, flush| {
        let scene = Scene::new(client);
        scene.set("r");
        scene.set("s");
        let watches = [scene.watch_held("r").await, scene.watch_held("s").await];
        scene.node.cli(&[flush]);
        for watched in watches {
            ended(watched).await;
        }
    };
    // All at once, as reading again takes seconds.
    on_tokio(join_all(
        Client::ALL
            .into_iter()
            .flat_map(|client| ["FLUSHALL", "FLUSHDB"].map(|how| (client, how)))
            .map(|(client, how)| flushed(client, how)),
    ));
}

#[test]
fn a_watch_is_one_read_and_writes_nothing() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        let monitor = scene.node.monitor();
        let watched = watch(&scene.backend, "r").await.unwrap();
        assert!(!watched.is_held());
        assert_eq!(crate::wire::commands(monitor), [["GET", "r"]], "{client:?}");
        scene.set("r");
        ended(watched).await;
        assert_eq!(scene.node.keys(), ["r"]);
    });
}

#[test]
fn a_node_that_is_killed_ends_its_watches_and_watches_again_when_it_is_back() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        scene.set("r");
        let watched = scene.watch_held("r").await;
        scene.node.kill();
        ended(watched).await;
        let down = watch(&scene.backend, "r").await;
        assert_eq!(kind(&down), Some(BackendErrorKind::Connection), "{client:?}: {down:?}");

        scene.node.restart();
        let watches_again = async {
            while watch(&scene.backend, "free").await.is_err() {
                yield_now().await;
            }
        };
        within_limit("a watch on the node that is back", watches_again).await;
        scene.set("r");
        let watched = scene.watch_held("r").await;
        scene.node.cli(&["DEL", "r"]);
        ended(watched).await;
    });
}

/// As a proxy or an operator does it: the node lives on.
#[test]
fn a_connection_that_is_cut_ends_its_watches_and_no_other_call() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        let ours = claim("r");
        acquire(&scene.backend, &ours).await;
        let watched = scene.watch_held("r").await;
        let clients = scene.node.cli(&["CLIENT", "LIST"]).text();
        // `t` among the flags: tracking is on.
        let tracking = clients.lines().find(|line| {
            line.split(' ').any(|word| word.starts_with("flags=") && word.contains('t'))
        });
        let id = tracking.unwrap().split(' ').find_map(|word| word.strip_prefix("id=")).unwrap();
        assert_eq!(scene.node.cli(&["CLIENT", "KILL", "ID", id]).integer(), 1);
        ended(watched).await;
        let watched = scene.watch_held("r").await;
        release(&scene.backend, &ours).await;
        ended(watched).await;
    });
}

#[test]
fn a_thousand_watches_share_one_connection() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        scene.set("r");
        let all = join_all((0..1_000).map(|_| scene.watch_held("r"))).await;
        scene.node.cli(&["DEL", "r"]);
        within_limit("the end of all watches", join_all(all.into_iter().map(Watched::changed)))
            .await;
        assert_eq!(scene.node.info("tracking_clients"), "1", "{client:?}");
        // Before, subcommands were not counted each by itself.
        if RedisServer::version() >= (7, 0) {
            assert_eq!(calls(&scene.node, "client|tracking"), 1, "{client:?}");
        }
    });
}

#[test]
fn a_thousand_watches_can_be_dropped_and_the_others_go_on() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        scene.set("r");
        let kept = scene.watch_held("r").await;
        drop(join_all((0..1_000).map(|_| scene.watch_held("r"))).await);
        let later = scene.watch_held("r").await;
        scene.node.cli(&["DEL", "r"]);
        ended(kept).await;
        ended(later).await;
    });
}

#[test]
fn a_user_who_may_not_watch_is_told_so_and_can_lock() {
    with_each_client(|client| async move {
        let rules = "on >pw ~* +@all -client";
        let node = RedisServer::builder().user("app", rules).start();
        let backend = client.connect_one(&node.address_as("app", "pw"));
        cannot_watch(&backend, BackendErrorKind::Permission).await;
    });
}

/// A node without the command is what one that is too old looks like.
#[test]
fn a_node_without_resp3_or_without_tracking_is_told_apart_and_can_be_locked_on() {
    with_each_client(|client| async move {
        for command in ["HELLO", "CLIENT"] {
            let node = RedisServer::builder().config("rename-command", &[command, ""]).start();
            let backend = client.connect_one(&node.address());
            cannot_watch(&backend, BackendErrorKind::Script).await;
        }
    });
}

async fn cannot_watch(backend: &Arc<dyn LockBackend>, expected: BackendErrorKind) {
    for _ in 0..2 {
        let refused = watch(backend, "r").await;
        assert_eq!(kind(&refused), Some(expected), "{backend:?}: {refused:?}");
    }
    let ours = claim("r");
    acquire(backend, &ours).await;
    release(backend, &ours).await;
}

#[test]
fn a_watcher_needs_to_read_and_nothing_else() {
    with_each_client(|client| async move {
        let rules = "on >pw ~locks:* -@all +hello +client|tracking +get +ping";
        let node = RedisServer::builder().user("eye", rules).start();
        let backend = client.connect_one(&node.address_as("eye", "pw"));
        let watched = watch(&backend, "locks:r").await.unwrap();
        node.set("locks:r", "x");
        ended(watched).await;
        let not_ours = watch(&backend, "r").await;
        assert_eq!(kind(&not_ours), Some(BackendErrorKind::Permission), "{client:?}: {not_ours:?}");
    });
}

#[test]
fn a_wrong_password_and_a_database_are_as_for_the_locks() {
    with_each_client(|client| async move {
        let node = RedisServer::builder().user("app", "on >pw ~* +@all").start();
        let refused = watch(&client.connect_one(&node.address_as("app", "other")), "r").await;
        assert_eq!(kind(&refused), Some(BackendErrorKind::Auth), "{client:?}: {refused:?}");

        let node = RedisServer::start();
        let backend = client.connect_one(&format!("{}/5", node.address()));
        let ours = claim("r");
        acquire(&backend, &ours).await;
        let watched = watch(&backend, "r").await.unwrap();
        assert!(watched.is_held(), "{client:?}");
        release(&backend, &ours).await;
        ended(watched).await;
    });
}

/// The connection lives in the runtime that the node was made in, or else in that of its first call.
#[test]
fn the_end_of_the_runtime_of_the_connection_ends_the_watches_of_others() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    for client in Client::ALL {
        let (first, second) = (runtime(), runtime());
        let scene = first.block_on(async { Scene::new(client) });
        scene.set("r");
        second.block_on(async {
            let watched = scene.watch_held("r").await;
            first.shutdown_background();
            ended(watched).await;
            let again = async {
                loop {
                    match watch(&scene.backend, "r").await {
                        Ok(watched) => return watched,
                        Err(_) => yield_now().await,
                    }
                }
            };
            let watched = within_limit("a watch in the runtime that is left", again).await;
            scene.node.cli(&["DEL", "r"]);
            ended(watched).await;
        });
    }
}

/// A connection of a pool is another one's by the time of the push.
#[test]
fn a_node_over_a_pool_does_not_watch_and_waiters_poll() {
    let node = RedisServer::start();
    on_tokio(async {
        let pooled = || quorate::redis::pooled(2, [node.address()]).unwrap().remove(0);
        let capabilities = pooled().capabilities();
        assert!(!capabilities.contains(Capabilities::WATCH));
        assert!(!capabilities.contains(Capabilities::ORDERED));
        let refused = pooled().watch(&key("r"), None).await;
        assert_eq!(kind(&refused), Some(BackendErrorKind::Script), "{refused:?}");

        let manager = || crate::client::unhurried([pooled()]).build().unwrap();
        let (one, other) = (manager(), manager());
        let guard = one.lock("r").await.unwrap();
        let before = calls(&node, "set");
        let waits = tokio::spawn(other.lock("r").into_future());
        until("a refused attempt", || calls(&node, "set") > before).await;
        guard.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
        for manager in [one, other] {
            crate::client::assert_clean(&manager).await;
        }
        assert_eq!(node.keys(), [""; 0]);
    });
}
