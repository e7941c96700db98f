//! Clients that form a group, over connections that read and write its list. The world draws such lists at random.

#![expect(clippy::disallowed_methods, reason = "the clock is paused")]

use std::borrow::Cow;
use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use quorate::runtime::TokioRuntime;
use quorate_core::{BackendError, BackendErrorKind, LockError, LockGuard, LockManager};
use quorate_memory::{MemoryNode, Value};
use quorate_protocol::{
    Connection, Credentials, Dial, NodeGroup, Parts, Push, RedisNode, Settings, Value as Reply,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::telling::{of, told};
use crate::world::MS;

const NODES: usize = 6;

/// The nodes of a client, as bits.
type List = u32;

/// A server, with how often it has lost its data and its connections.
#[derive(Clone, Debug)]
struct Server {
    node: MemoryNode,
    losses: Arc<AtomicUsize>,
    /// It answers when it hangs no more.
    hangs: Arc<AtomicBool>,
    /// It writes no list, but locks.
    is_full: Arc<AtomicBool>,
}

impl Server {
    fn age(&self) -> usize {
        self.losses.load(Ordering::SeqCst)
    }

    fn lose_all(&self) {
        self.node.restart();
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    /// The time that it takes to reply.
    async fn replies(&self) {
        sleep(5 * MS).await;
        while self.hangs.load(Ordering::SeqCst) {
            sleep(MS).await;
        }
    }

    /// The list that it keeps, by the names of its nodes.
    fn list(&self) -> String {
        let Some(Value::String(text)) = self.node.get(LIST) else { return String::new() };
        let text = String::from_utf8(text).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('-'));
        let mut names: Vec<_> = lines.filter_map(|line| line.rsplit('-').next()).collect();
        names.sort_unstable();
        names.concat()
    }

    /// A command of a group or of a plain lock: `GET`, `SET` with or without `NX` or `IFEQ`, and
    /// a compare-and-delete. There is nothing else.
    fn execute(&self, command: &Parts) -> Reply {
        let words: Vec<&[u8]> = command.iter().collect();
        let found = words.get(1).and_then(|key| self.node.get(key));
        let holds = |text: &[u8]| found == Some(Value::String(text.to_vec()));
        match words[..] {
            [b"DELIFEQ", key, text] => {
                if holds(text) {
                    self.node.expire(key);
                }
                Reply::Int(holds(text).into())
            }
            [b"SET", LIST, ..] if self.is_full.load(Ordering::SeqCst) => {
                Reply::Error("OOM command not allowed".into())
            }
            [b"SET", _, _, b"NX", ..] if found.is_some() => Reply::Nil,
            [b"SET", _, _, b"IFEQ", text] if !holds(text) => Reply::Nil,
            [b"SET", key, text, b"NX", b"PX", ttl, ..] => {
                let ttl = str::from_utf8(ttl).unwrap().parse().unwrap();
                let text = Value::String(text.to_vec());
                self.node.put_for(key, text, Duration::from_millis(ttl));
                Reply::Okay
            }
            // The end of the probe of a handshake.
            [b"SET", key, _, b"XX", ..] => {
                self.node.expire(key);
                Reply::Okay
            }
            [b"SET", key, text, ..] => {
                self.node.put(key, Value::String(text.to_vec()));
                Reply::Okay
            }
            [b"GET", _] => match found {
                Some(Value::String(text)) => Reply::Text(text),
                _ => Reply::Nil,
            },
            _ => Reply::Error("ERR unknown command".into()),
        }
    }
}

const LIST: &[u8] = b"quorate:group:g";

/// A connection to a server is the server, as long as it has all of its data.
#[derive(Clone, Debug)]
struct Connected {
    server: Server,
    age: usize,
}

fn gone() -> BackendError {
    BackendError::new(BackendErrorKind::Connection, "the connection ended")
}

impl Connection for Connected {
    type Command = Parts;

    async fn send(&self, commands: Vec<Parts>) -> Vec<Result<Reply, BackendError>> {
        self.server.replies().await;
        let reply = |command| match self.is_closed() {
            true => Err(gone()),
            false => Ok(self.server.execute(command)),
        };
        commands.iter().map(reply).collect()
    }

    fn is_closed(&self) -> bool {
        self.server.age() != self.age
    }
}

impl Dial for Server {
    type Connection = Connected;

    fn name(&self) -> Cow<'_, str> {
        self.node.name().into()
    }

    async fn connect(
        &self,
        _: Option<&Credentials>,
        _: Duration,
        _: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<Connected, BackendError> {
        sleep(5 * MS).await;
        Ok(Connected { server: self.clone(), age: self.age() })
    }
}

struct World {
    servers: Vec<Server>,
}

impl World {
    fn new() -> Self {
        let server = |node| {
            let (losses, hangs, is_full) = Default::default();
            Server { node, losses, hangs, is_full }
        };
        let nodes = MemoryNode::cluster(NODES, TokioRuntime::new());
        Self { servers: nodes.into_iter().map(server).collect() }
    }

    /// A process that has this list.
    fn client(&self, list: List) -> LockManager {
        self.client_of(list, NodeGroup::new("g", false))
    }

    /// A person accepts this list as that of the group.
    async fn accept(&self, list: List) {
        let client = self.client_of(list, NodeGroup::new("g", true));
        for _ in 0..3 {
            drop(client.lock("other").await.unwrap().release().await);
            self.settle().await;
        }
    }

    /// A client that has this list locks until each of its nodes keeps the list.
    async fn found(&self, list: List) -> LockManager {
        let client = self.client(list);
        for _ in 0..2 {
            drop(client.lock("first").no_wait().await.unwrap().release().await);
            self.settle().await;
        }
        client
    }

    /// What is on its way arrives.
    async fn settle(&self) {
        sleep(100 * MS).await;
    }

    fn client_of(&self, list: List, group: NodeGroup) -> LockManager {
        let servers = self.servers.iter().enumerate().filter(|(at, _)| list & 1 << at != 0);
        let mut settings = Settings::default();
        settings.group = Some(group);
        let nodes = servers.map(|(_, server)| RedisNode::new(server.clone(), &settings));
        LockManager::builder(nodes).runtime(TokioRuntime::new()).build().unwrap()
    }

    /// The nodes answer no more.
    fn hang(&self, nodes: impl IntoIterator<Item = usize>) {
        nodes.into_iter().for_each(|at| self.servers[at].hangs.store(true, Ordering::SeqCst));
    }

    /// They answer again, also what they were asked meanwhile.
    fn wake(&self, nodes: impl IntoIterator<Item = usize>) {
        nodes.into_iter().for_each(|at| self.servers[at].hangs.store(false, Ordering::SeqCst));
    }

    /// Their connections end, and their data stays.
    fn cut(&self, nodes: impl IntoIterator<Item = usize>) {
        for at in nodes {
            self.servers[at].losses.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The lists that the nodes keep, one after the other.
    fn lists(&self) -> String {
        self.servers.iter().map(Server::list).collect()
    }
}

/// Locks, and releases it.
async fn cycle(client: &LockManager) {
    drop(client.lock("r").no_wait().await.unwrap().release().await);
}

/// A request that runs beside the test.
fn asks(client: &LockManager, name: &'static str) -> JoinHandle<Result<LockGuard, LockError>> {
    tokio::spawn(client.lock(name).no_wait().into_future())
}

#[test]
fn n2_another_list_is_one_event_for_each_node_that_keeps_it() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
    let founds = async {
        let world = World::new();
        for list in [0b111, 0b111, 0b1111, 0b1111, 0b1110, 0b1110] {
            world.found(list).await;
        }
    };
    let told = told(|| runtime.block_on(founds));
    let changes: Vec<_> = of("node list changed", &told)
        .iter()
        .map(|change| {
            ["node", "before", "now"].map(|field| change.field(field).replace("memory-", ""))
        })
        .collect();
    let mut sorted = changes.clone();
    sorted.sort();
    let row = |node: &str, before: &str, now: &str| [node, before, now].map(str::to_owned);
    let mut expected = Vec::new();
    for (nodes, before, now) in [("123", "1, 2, 3", "1, 2, 3, 4"), ("234", "1, 2, 3, 4", "2, 3, 4")]
    {
        expected.extend(nodes.chars().map(|node| row(&node.to_string(), before, now)));
    }
    expected.sort();
    assert_eq!(sorted, expected);
}

/// Only a lock has a node keep another list, and only once all nodes are known.
#[tokio::test(start_paused = true)]
async fn n2_a_question_has_no_node_keep_a_list() {
    let world = World::new();
    world.found(0b111).await;
    for list in [0b011, 0b001] {
        let client = world.client(list);
        for _ in 0..3 {
            client.check().await;
            drop(client.inspect("r").await);
            world.settle().await;
        }
    }
    assert_eq!(world.lists(), "123123123");
    drop(world.client(0b111).lock("r").no_wait().await.unwrap());
}

/// A node hangs from before the client begins. The votes of the others count at once.
#[tokio::test(start_paused = true)]
async fn n4_no_vote_waits_for_a_node_that_hangs() {
    let world = World::new();
    world.found(0b111).await;
    world.hang([1]);
    let from = tokio::time::Instant::now();
    let guard = world.client(0b111).lock("r").no_wait().await.unwrap();
    assert!(from.elapsed() < 100 * MS, "{:?}", from.elapsed());
    drop(guard.release().await);
    // A list is written when all ids are known, by who then locks.
    let client = world.client(0b1111);
    cycle(&client).await;
    world.settle().await;
    assert_eq!(world.servers[0].list(), "123");
    world.wake([1]);
    let client = world.client(0b1111);
    for _ in 0..2 {
        cycle(&client).await;
        world.settle().await;
    }
    assert_eq!(world.lists(), "1234".repeat(4));
}

/// One has no memory left, and has it again later. Until then a client that has only this one in common is not noticed.
#[tokio::test(start_paused = true)]
async fn n2_a_list_that_a_node_could_not_keep_is_written_again() {
    let world = World::new();
    world.servers[2].is_full.store(true, Ordering::SeqCst);
    let client = world.found(0b111).await;
    assert_eq!([0, 1, 2].map(|at| world.servers[at].list()), ["123", "123", ""]);
    world.servers[2].is_full.store(false, Ordering::SeqCst);
    sleep(1_000 * MS).await;
    cycle(&client).await;
    world.settle().await;
    assert_eq!(world.servers[2].list(), "123");
}

/// No node keeps a list, and one hangs. A win waits for it, but for no longer than a round.
#[tokio::test(start_paused = true)]
async fn n4_the_first_lock_of_a_group_has_a_short_ttl_while_a_node_hangs() {
    let world = World::new();
    world.hang([2]);
    let request = world.client(0b111).lock("r").ttl(1_000 * MS).no_wait();
    assert!(request.await.unwrap().is_valid());
}

/// Clients of a step have two nodes keep a list meanwhile. The third one never answers this client.
#[tokio::test(start_paused = true)]
async fn n4_no_win_waits_for_a_node_that_hangs_once_the_others_keep_a_list() {
    let world = World::new();
    world.hang([2]);
    let client = world.client(0b111);
    cycle(&client).await;
    world.found(0b011).await;
    sleep(1_000 * MS).await;
    // It reads the lists again, once a second.
    cycle(&client).await;
    let from = tokio::time::Instant::now();
    let guard = client.lock("r").no_wait().await.unwrap();
    assert!(from.elapsed() < 100 * MS, "{:?}", from.elapsed());
    drop(guard.release().await);
}

/// Three nodes without a list have granted, and their connections have ended. Another one, whose connection ends as well,
/// says nothing of its list. So the win waits for the last one.
#[tokio::test(start_paused = true)]
async fn n4_a_win_of_nodes_without_a_list_waits_also_when_their_connections_have_ended() {
    let world = World::new();
    world.found(0b111_000).await;
    let client = world.client(0b011_111);
    world.hang(3..5);
    let locks = asks(&client, "r");
    world.settle().await;
    world.hang(0..3);
    let fails = asks(&client, "s");
    world.settle().await;
    world.cut(0..3);
    world.wake(0..3);
    sleep(2 * MS).await;
    // They are connected to again, and say nothing yet.
    world.hang(0..3);
    world.settle().await;
    world.cut([4]);
    world.wake([4]);
    world.settle().await;
    world.wake([3]);
    let Err(LockError::NoQuorum(error)) = locks.await.unwrap() else { panic!("two holders") };
    assert!(error.to_string().contains("not a node of the group"), "{error}");
    world.wake(0..3);
    drop(fails.await);
}

/// Another list was written meanwhile: a person has accepted it.
#[tokio::test(start_paused = true)]
async fn n2_a_list_that_comes_late_does_not_replace_another_one() {
    let world = World::new();
    world.found(0b111).await;
    world.hang([3]);
    let guard = world.client(0b1111).lock("r").no_wait().await.unwrap();
    world.hang([0]);
    world.wake([3]);
    world.settle().await;
    let lists = || world.servers.iter().map(Server::list).collect::<Vec<_>>();
    assert_eq!(lists()[..4], ["123", "1234", "1234", "1234"]);
    let Some(Value::String(text)) = world.servers[0].node.get(LIST) else { panic!("a list") };
    let accepted = text.split_inclusive(|byte| *byte == b'\n').take(2).collect::<Vec<_>>();
    world.servers[0].node.put(LIST, Value::String(accepted.concat()));
    let accepted = lists().remove(0);
    world.wake([0]);
    world.settle().await;
    assert_eq!(lists()[0], accepted);
    drop(guard.release().await);
}

/// The stranger votes first and the node whose list shows it last, or the other way round.
#[tokio::test(start_paused = true)]
async fn n3_the_vote_of_a_stranger_counts_with_no_vote_that_shows_it_to_be_one() {
    let world = World::new();
    world.found(0b111).await;
    for (late, down) in [(0, 1), (1, 0), (3, 1), (3, 0)] {
        world.hang([late, down]);
        let wrong = world.client(0b1011);
        let asking = asks(&wrong, "r");
        sleep(50 * MS).await;
        world.wake([late]);
        let error = asking.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("not a node of the group g"), "{late} {down}: {error}");
        world.wake([down]);
        world.settle().await;
    }
}

/// A running client hears of the list that a person has accepted.
#[tokio::test(start_paused = true)]
async fn n5_a_running_client_counts_an_accepted_node_within_two_seconds() {
    let world = World::new();
    let client = world.found(0b111).await;
    world.servers[2].lose_all();
    cycle(&client).await;
    world.settle().await;
    let told = client.check().await.to_string();
    assert!(told.contains("it was replaced, or has lost its data"), "{told}");
    world.accept(0b111).await;
    for _ in 0..4 {
        sleep(500 * MS).await;
        cycle(&client).await;
    }
    // The vote of the accepted node is needed.
    world.hang([0]);
    drop(client.lock("r").no_wait().await.unwrap());
}

/// A vote is that of what the node was when it gave it.
#[tokio::test(start_paused = true)]
async fn n3_a_vote_of_a_stranger_counts_no_more_when_its_connection_has_ended() {
    let world = World::new();
    world.found(0b00111).await;
    let client = world.client(0b11001);
    world.hang([0, 4]);
    let locks = asks(&client, "r");
    world.settle().await;
    // The stranger has voted. Its connection ends in the middle of another call.
    world.hang([3]);
    let fails = asks(&client, "s");
    world.settle().await;
    world.cut([3]);
    world.wake([3]);
    world.settle().await;
    world.wake([0]);
    let Err(LockError::NoQuorum(error)) = locks.await.unwrap() else { panic!("two holders") };
    assert!(error.to_string().contains("not a node of the group"), "{error}");
    drop(fails.await);
}

/// The other clients are a step away: their list does not have the node any more.
#[tokio::test(start_paused = true)]
async fn n5_a_node_that_lost_its_data_during_a_step_has_no_vote() {
    let world = World::new();
    for list in [0b111, 0b110] {
        world.found(list).await;
    }
    drop(world.client(0b111).lock("r").no_wait().await.unwrap());
    world.found(0b110).await;
    world.servers[0].lose_all();
    world.hang([2]);
    let Err(error) = world.client(0b111).lock("s").no_wait().await else { panic!("a vote") };
    let text = error.to_string();
    assert!(text.contains("it was replaced, or has lost its data"), "{text}");
}

/// Two strangers have granted while no node was there whose list shows that. Another lock hears of
/// the list.
#[tokio::test(start_paused = true)]
async fn n3_a_lock_ends_when_another_one_shows_that_strangers_have_granted_it() {
    let world = World::new();
    world.found(0b00111).await;
    let client = world.client(0b11001);
    world.hang([0]);
    let guard = client.lock("r").no_wait().await.unwrap();
    world.cut([0]);
    world.wake([0]);
    world.settle().await;
    assert!(guard.is_valid());
    drop(client.lock("s").no_wait().await);
    assert!(!guard.is_valid());
    let text = guard.lost().await.to_string();
    assert!(text.contains("not a node of the group g"), "{text}");
}

/// The nodes are the same, and what the list calls them is not: it is no copy that answers at an
/// address.
#[tokio::test(start_paused = true)]
async fn n5_a_person_accepts_the_new_addresses_of_nodes() {
    let world = World::new();
    world.found(0b111).await;
    let [a, b] = [0, 1].map(|at| world.servers[at].node.get("quorate:node:id").unwrap());
    world.servers[0].node.put("quorate:node:id", b);
    world.servers[1].node.put("quorate:node:id", a);
    world.hang([0]);
    let Err(error) = world.client(0b111).lock("r").no_wait().await else { panic!("a copy") };
    assert!(error.to_string().contains("it may be a copy"), "{error}");
    world.wake([0]);
    world.accept(0b111).await;
    world.hang([0]);
    drop(world.client(0b111).lock("r").no_wait().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn n5_a_copy_of_the_data_of_a_node_has_no_vote() {
    let world = World::new();
    world.found(0b111).await;
    let (server, copy) = (&world.servers[0], &world.servers[3]);
    copy.lose_all();
    for key in [&b"quorate:node:id"[..], LIST] {
        copy.node.put(key, server.node.get(key).unwrap());
    }
    for hangs in [true, false] {
        world.servers[0].hangs.store(hangs, Ordering::SeqCst);
        let client = world.client(0b1011);
        let Err(error) = client.lock("r").no_wait().await else { panic!("{hangs}") };
        assert!(error.to_string().contains(" id "), "{error}");
    }
}
