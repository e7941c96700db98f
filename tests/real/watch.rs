//! Watches on real nodes: their end, their cost, and their connection.

use std::sync::Arc;

use futures_util::future::{join_all, poll_immediate};
use quorate::backend::{Asked, Vote};
use quorate::{BackendErrorKind, LockBackend};
use quorate_tests::RedisServer;
use quorate_tests::wait::{until_it_says, within_limit};

use crate::calls::{acquire, claim, ended, kind, release, watch};
use crate::client::{Client, calls, on_tokio, with_each_client};

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
    async fn watch_held(&self, name: &str) -> Asked {
        let (is_held, watched) = watch(&self.backend, name).await.unwrap();
        assert!(is_held, "{:?}", self.backend);
        watched
    }
}

/// A push is about some keys, and costs the waiters for others nothing.
#[test]
fn a_change_of_one_key_ends_the_watches_of_that_key_alone() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        let names: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
        names.iter().for_each(|name| scene.set(name));
        let mut watches = Vec::new();
        for name in &names {
            watches.push(Box::pin(scene.watch_held(name).await.pushed()));
        }
        for (name, watched) in names.iter().zip((0..watches.len()).rev()) {
            scene.node.cli(&["DEL", name]);
            within_limit("the end of a watch", watches.remove(0)).await;
            assert_eq!(watches.len(), watched);
            for other in &mut watches {
                assert!(poll_immediate(other).await.is_none(), "{client:?}: {name}");
            }
        }
    });
}

/// fred does not pass on the push of a flush. The key is read again instead.
#[test]
fn a_flush_of_everything_wakes_every_waiter() {
    let cases = Client::ALL.into_iter();
    let cases = cases.flat_map(|client| ["FLUSHALL", "FLUSHDB"].map(|flush| (client, flush)));
    // All at once, as reading again takes seconds.
    on_tokio(join_all(cases.map(async |(client, flush)| {
        let scene = Scene::new(client);
        scene.set("r");
        scene.set("s");
        let watches = [scene.watch_held("r").await, scene.watch_held("s").await];
        scene.node.cli(&[flush]);
        join_all(watches.map(ended)).await;
    })));
}

/// The node is killed, or its connection is cut as a proxy or an operator does it.
#[test]
fn the_end_of_a_connection_ends_its_watches_and_no_other_call_and_the_node_watches_again() {
    with_each_client(|client| async move {
        for is_killed in [true, false] {
            let scene = Scene::new(client);
            let ours = claim("ours");
            acquire(&scene.backend, &ours).await.unwrap();
            scene.set("r");
            let watched = scene.watch_held("r").await;
            if is_killed {
                scene.node.kill();
                ended(watched).await;
                let down = watch(&scene.backend, "r").await;
                assert_eq!(kind(&down), Some(BackendErrorKind::Connection), "{client:?}: {down:?}");
                scene.node.restart();
                until_it_says("a watch", async || watch(&scene.backend, "r").await.is_ok()).await;
                scene.set("r");
            } else {
                // The connection for watches: it has read a key.
                let clients = scene.node.cli(&["CLIENT", "LIST"]).text();
                let has_read = |line: &&str| line.split(' ').any(|word| word == "cmd=get");
                let id = clients.lines().find(has_read).unwrap();
                let id = id.split(' ').find_map(|word| word.strip_prefix("id=")).unwrap();
                assert_eq!(scene.node.cli(&["CLIENT", "KILL", "ID", id]).integer(), 1);
                ended(watched).await;
                assert_eq!(release(&scene.backend, &ours).await.unwrap(), Vote::Granted);
            }
            let watched = scene.watch_held("r").await;
            scene.node.cli(&["DEL", "r"]);
            ended(watched).await;
        }
    });
}

/// fred keeps the last 32 pushes. A key that is absent is not read again.
#[test]
fn a_thousand_watches_share_one_connection_and_many_changes_at_once_wake_every_watch() {
    with_each_client(|client| async move {
        let scene = Scene::new(client);
        scene.set("r");
        drop(join_all((0..1_000).map(|_| scene.watch_held("r"))).await);
        let held = join_all((0..1_000).map(|_| scene.watch_held("r"))).await;
        let names: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
        let free = join_all(names.iter().map(|name| watch(&scene.backend, name))).await;
        let pairs = names.iter().flat_map(|name| [name, "x"]);
        let words: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
        assert_eq!(scene.node.cli(&words).error(), None);
        scene.node.cli(&["DEL", "r"]);
        let all = free.into_iter().map(|free| free.unwrap().1).chain(held).map(Asked::pushed);
        within_limit("the end of every watch", join_all(all)).await;
        assert_eq!(scene.node.info("tracking_clients"), "1", "{client:?}");
        // Before, subcommands were not counted each by itself.
        if RedisServer::version() >= (7, 0) {
            assert_eq!(calls(&scene.node, "client|tracking"), 1, "{client:?}");
        }
    });
}
