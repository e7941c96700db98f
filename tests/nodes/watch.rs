//! Watches on real nodes: what ends them, what they cost, and what happens to the connection.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quorate::{
    BackendError, BackendErrorKind, Claim, Key, LockBackend, Resource, Token, Ttl, Vote,
};
use quorate_core::runtime::os_random;
use quorate_tests::RedisServer;
use quorate_tests::wait::{LONG_TTL, until, within_limit};
use tokio::task::{JoinHandle, yield_now};

use crate::client::{Client, on_tokio, with_each_client};

type Outcome = Result<(), BackendError>;

/// One node, and one backend on it.
struct Scene {
    node: RedisServer,
    backend: Arc<dyn LockBackend>,
}

impl Scene {
    fn new(client: Client) -> Self {
        let node = RedisServer::start();
        let backend = one(client, &node.address());
        Self { node, backend }
    }

    fn claim(name: &str) -> Claim {
        let ttl = Ttl::try_from(LONG_TTL).unwrap();
        Claim::new([key(name)], Token::draw(os_random).unwrap(), ttl)
    }

    /// Somebody else has the key.
    fn taken(&self, name: &str) {
        self.node.cli(&["SET", name, "another-libraries-token", "PX", "3600000"]);
    }

    /// A watch that the node has heard of.
    async fn begun(&self, name: &str) -> JoinHandle<Outcome> {
        let before = self.reads();
        let watch = tokio::spawn(watch(&self.backend, name));
        until("a read of the key", || self.reads() > before).await;
        watch
    }

    fn reads(&self) -> u64 {
        calls(&self.node, "get")
    }
}

fn one(client: Client, address: &str) -> Arc<dyn LockBackend> {
    client.connect(&[address.to_owned()]).remove(0)
}

fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

fn watch(
    backend: &Arc<dyn LockBackend>,
    name: &str,
) -> impl Future<Output = Outcome> + Send + 'static {
    let (backend, key) = (Arc::clone(backend), key(name));
    async move { backend.watcher().expect("it can watch").watch(&key).await }
}

/// How often a node has carried out a command.
pub(crate) fn calls(node: &RedisServer, command: &str) -> u64 {
    let info = node.cli(&["INFO", "commandstats"]).text();
    let line =
        info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
}

async fn told(watch: JoinHandle<Outcome>) -> Outcome {
    within_limit("the end of the watch", watch).await.unwrap()
}

/// A watch that is not told within the backstop is one too many.
async fn watched(backend: &Arc<dyn LockBackend>, name: &str) -> Outcome {
    within_limit("the end of the watch", watch(backend, name)).await
}

fn kind(outcome: &Outcome) -> Option<BackendErrorKind> {
    outcome.as_ref().err().map(BackendError::kind)
}

#[test]
fn a_release_wakes_whoever_made_the_lock() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        let ours = Scene::claim("r");
        assert_eq!(scene.backend.acquire(&ours).await.unwrap(), Vote::Granted);
        let watch = scene.begun("r").await;
        assert_eq!(scene.backend.release(&ours).await.unwrap(), Vote::Granted);
        told(watch).await.unwrap();

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
            scene.taken("r");
            let watch = scene.begun("r").await;
            assert_eq!(scene.node.cli(&release).error(), None);
            told(watch).await.unwrap_or_else(|error| panic!("{client:?}, {release:?}: {error}"));
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
            let watch = scene.begun("r").await;
            // Else the machine was too slow, and the watch found the key free.
            let was_taken = scene.node.get("r").is_some();
            told(watch).await.unwrap();
            assert_eq!(scene.node.get("r"), None, "{client:?}");
            if was_taken {
                break;
            }
            ttl *= 2;
        }
    });
}

/// fred does not pass on what a flush says; keys are read again instead.
#[test]
fn a_flush_of_everything_wakes_everybody() {
    let flushed = async |client, flush| {
        let scene = Scene::new(client);
        scene.taken("r");
        scene.taken("s");
        let watches = [scene.begun("r").await, scene.begun("s").await];
        scene.node.cli(&[flush]);
        for watch in watches {
            told(watch).await.unwrap();
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
fn a_free_key_is_told_at_once_and_a_watch_writes_nothing() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        let monitor = scene.node.monitor();
        watched(&scene.backend, "r").await.unwrap();
        let seen = crate::wire::commands(&scene.node, monitor);
        assert_eq!(seen, [["GET", "r"]], "{client:?}");
        assert!(scene.node.keys().is_empty());
    });
}

#[test]
fn a_node_that_is_killed_ends_its_watches_and_watches_again_when_it_is_back() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        scene.taken("r");
        let watch = scene.begun("r").await;
        scene.node.kill();
        assert_eq!(kind(&told(watch).await), Some(BackendErrorKind::Connection), "{client:?}");
        let down = watched(&scene.backend, "r").await;
        assert_eq!(kind(&down), Some(BackendErrorKind::Connection), "{client:?}: {down:?}");

        scene.node.restart();
        let watches_again = async {
            while watched(&scene.backend, "free").await.is_err() {
                yield_now().await;
            }
        };
        within_limit("a watch on the node that is back", watches_again).await;
        scene.taken("r");
        let watch = scene.begun("r").await;
        scene.node.cli(&["DEL", "r"]);
        told(watch).await.unwrap();
    });
}

/// As a proxy or an operator does it: the node lives on.
#[test]
fn a_connection_that_is_cut_ends_its_watches_and_no_other_call() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        let ours = Scene::claim("r");
        assert_eq!(scene.backend.acquire(&ours).await.unwrap(), Vote::Granted);
        let watch = scene.begun("r").await;
        let clients = scene.node.cli(&["CLIENT", "LIST"]).text();
        // `t` among the flags: tracking is on.
        let tracking = clients.lines().find(|line| {
            line.split(' ').any(|word| word.starts_with("flags=") && word.contains('t'))
        });
        let id = tracking.unwrap().split(' ').find_map(|word| word.strip_prefix("id=")).unwrap();
        assert_eq!(scene.node.cli(&["CLIENT", "KILL", "ID", id]).integer(), 1);
        assert_eq!(kind(&told(watch).await), Some(BackendErrorKind::Connection), "{client:?}");
        let watch = scene.begun("r").await;
        assert_eq!(scene.backend.release(&ours).await.unwrap(), Vote::Granted);
        told(watch).await.unwrap();
    });
}

#[test]
fn a_thousand_watches_on_one_key_are_one_read() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        watched(&scene.backend, "r").await.unwrap();
        scene.taken("r");
        let before = scene.reads();
        let all = (0..1_000).map(|_| watch(&scene.backend, "r")).collect::<Vec<_>>();
        let all = tokio::spawn(join_all(all));
        until("a read of the key", || scene.reads() > before).await;
        scene.node.cli(&["DEL", "r"]);
        let all = within_limit("the end of all watches", all).await.unwrap();
        assert!(all.iter().all(Result::is_ok), "{client:?}");
        // A few more if a slow machine reads again what is still watched.
        let reads = scene.reads() - before;
        assert!(reads < 100, "{client:?}: {reads}");
        assert_eq!(scene.node.info("tracking_clients"), "1", "{client:?}");
        // Before, subcommands were not counted each by itself.
        if RedisServer::version() >= (7, 0) {
            assert_eq!(calls(&scene.node, "client|tracking"), 1, "{client:?}");
        }
    });
}

/// The map of watches itself is looked into where it is: in quorate-core.
#[test]
fn a_thousand_watches_can_be_dropped_and_the_next_one_begins_anew() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        scene.taken("r");
        let kept = scene.begun("r").await;
        let all: Vec<_> = (0..1_000).map(|_| tokio::spawn(watch(&scene.backend, "r"))).collect();
        for watch in &all {
            yield_now().await;
            watch.abort();
        }
        assert!(join_all(all).await.iter().all(Result::is_err), "{client:?}: none was told");
        let before = scene.reads();
        kept.abort();
        assert!(kept.await.is_err());
        let again = scene.begun("r").await;
        assert!(scene.reads() > before, "nothing was kept");
        scene.node.cli(&["DEL", "r"]);
        told(again).await.unwrap();
    });
}

#[test]
fn who_may_not_watch_is_told_so_and_can_lock() {
    with_each_client(|client| async move {
        let rules = "on >pw ~* +@all -client";
        let node = RedisServer::builder().user("app", rules).start();
        let backend = one(client, &node.address_as("app", "pw"));
        cannot_watch(&backend, BackendErrorKind::Permission).await;
    });
}

/// A node without the command is what one that is too old looks like.
#[test]
fn a_node_that_knows_no_resp3_or_no_tracking_is_told_apart_and_can_be_locked_on() {
    with_each_client(|client| async move {
        for command in ["HELLO", "CLIENT"] {
            let node = RedisServer::builder().config("rename-command", &[command, ""]).start();
            let backend = one(client, &node.address());
            cannot_watch(&backend, BackendErrorKind::Script).await;
        }
    });
}

async fn cannot_watch(backend: &Arc<dyn LockBackend>, expected: BackendErrorKind) {
    for _ in 0..2 {
        let refused = watched(backend, "r").await;
        assert_eq!(kind(&refused), Some(expected), "{backend:?}: {refused:?}");
    }
    let ours = Scene::claim("r");
    assert_eq!(backend.acquire(&ours).await.unwrap(), Vote::Granted);
    assert_eq!(backend.release(&ours).await.unwrap(), Vote::Granted);
}

#[test]
fn a_watcher_needs_to_read_and_nothing_else() {
    with_each_client(|client| async move {
        let rules = "on >pw ~locks:* -@all +hello +client|tracking +get +ping";
        let node = RedisServer::builder().user("eye", rules).start();
        let backend = one(client, &node.address_as("eye", "pw"));
        watched(&backend, "locks:r").await.unwrap();
        let not_ours = watched(&backend, "r").await;
        assert_eq!(kind(&not_ours), Some(BackendErrorKind::Permission), "{client:?}: {not_ours:?}");
    });
}

#[test]
fn a_wrong_password_and_a_database_are_as_for_the_locks() {
    with_each_client(|client| async move {
        let node = RedisServer::builder().user("app", "on >pw ~* +@all").start();
        let refused = watched(&one(client, &node.address_as("app", "other")), "r").await;
        assert_eq!(kind(&refused), Some(BackendErrorKind::Auth), "{client:?}: {refused:?}");

        let scene = Scene::new(client);
        let backend = one(client, &format!("{}/5", scene.node.address()));
        let ours = Scene::claim("r");
        assert_eq!(backend.acquire(&ours).await.unwrap(), Vote::Granted);
        let before = scene.reads();
        let watch = tokio::spawn(watch(&backend, "r"));
        until("a read of the key", || scene.reads() > before).await;
        assert_eq!(backend.release(&ours).await.unwrap(), Vote::Granted);
        told(watch).await.unwrap();
    });
}

/// The connection lives in the runtime of the watch that opened it.
#[test]
fn the_end_of_the_runtime_of_the_connection_ends_the_watches_of_others() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    for client in Client::ALL {
        let scene = Scene::new(client);
        scene.taken("r");
        let (first, second) = (runtime(), runtime());
        first.block_on(watched(&scene.backend, "free")).unwrap();
        second.block_on(async {
            let watch = scene.begun("r").await;
            first.shutdown_background();
            assert_eq!(kind(&told(watch).await), Some(BackendErrorKind::Connection), "{client:?}");
            let watch = scene.begun("r").await;
            scene.node.cli(&["DEL", "r"]);
            told(watch).await.unwrap();
        });
    }
}

/// Pools, connections and clients of the user's own: there is nowhere to dial.
#[test]
fn a_node_on_a_connection_of_the_users_does_not_watch() {
    use quorate::fred::FredBackend;
    use quorate::fred::fred::prelude::{Builder, Config};
    use quorate::redis::{RedisBackend, redis};

    let node = RedisServer::start();
    on_tokio(async {
        let client = redis::Client::open(node.address()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        assert!(RedisBackend::from_connection("mine", connection).watcher().is_none());
        assert!(RedisBackend::new(client).watcher().is_some());
        let config = Config::from_url(&node.address()).unwrap();
        let client = Builder::from_config(config.clone()).build().unwrap();
        assert!(FredBackend::from_client("mine", client).unwrap().watcher().is_none());
        assert!(FredBackend::new(config).unwrap().watcher().is_some());
    });
}
