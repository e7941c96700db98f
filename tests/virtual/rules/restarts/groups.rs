//! Clients that form a group, in worlds whose lists of nodes change under locks: some clients have a wrong one.

#![expect(clippy::disallowed_methods, reason = "the clock is paused")]

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use quorate::runtime::TokioRuntime;
use quorate_core::{BackendError, BackendErrorKind, LockError, LockManager};
use quorate_memory::{MemoryNode, Value};
use quorate_protocol::{Connection, Dial, NodeGroup, Parts, Push, RedisNode, Settings};
use quorate_tests::dice::Dice;
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
    dice: Dice,
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
        sleep(self.dice.time(Duration::ZERO, 10 * MS)).await;
        while self.hangs.load(Ordering::SeqCst) {
            sleep(MS).await;
        }
    }

    /// Its data becomes a copy of that of another server.
    fn become_a_copy_of(&self, other: &Self) {
        self.lose_all();
        for key in [&b"quorate:node:id"[..], LIST] {
            self.node.put(key, other.node.get(key).unwrap());
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
    fn execute(&self, command: &Parts) -> quorate_protocol::Value {
        let words: Vec<&[u8]> = command.iter().collect();
        let found = words.get(1).and_then(|key| self.node.get(key));
        let holds = |text: &[u8]| found == Some(Value::String(text.to_vec()));
        match words[..] {
            [b"DELIFEQ", key, text] => {
                if holds(text) {
                    self.node.expire(key);
                }
                quorate_protocol::Value::Int(holds(text).into())
            }
            [b"SET", LIST, ..] if self.is_full.load(Ordering::SeqCst) => {
                quorate_protocol::Value::Error("OOM command not allowed".into())
            }
            [b"SET", _, _, b"NX", ..] if found.is_some() => quorate_protocol::Value::Nil,
            [b"SET", _, _, b"IFEQ", text] if !holds(text) => quorate_protocol::Value::Nil,
            [b"SET", key, text, b"NX", b"PX", ttl, ..] => {
                let ttl = str::from_utf8(ttl).unwrap().parse().unwrap();
                let text = Value::String(text.to_vec());
                self.node.put_for(key, text, Duration::from_millis(ttl));
                quorate_protocol::Value::Okay
            }
            // The end of the probe of a handshake.
            [b"SET", key, _, b"XX", ..] => {
                self.node.expire(key);
                quorate_protocol::Value::Okay
            }
            [b"SET", key, text, ..] => {
                self.node.put(key, Value::String(text.to_vec()));
                quorate_protocol::Value::Okay
            }
            [b"GET", _] => match found {
                Some(Value::String(text)) => quorate_protocol::Value::Text(text),
                _ => quorate_protocol::Value::Nil,
            },
            _ => quorate_protocol::Value::Error("ERR unknown command".into()),
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

    async fn send(
        &self,
        commands: Vec<Parts>,
    ) -> Vec<Result<quorate_protocol::Value, BackendError>> {
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
        _: Duration,
        _: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<Connected, BackendError> {
        sleep(self.dice.time(Duration::ZERO, 10 * MS)).await;
        Ok(Connected { server: self.clone(), age: self.age() })
    }
}

/// What has happened in a world.
#[derive(Default)]
struct Seen {
    holders: AtomicUsize,
    locks: AtomicUsize,
    wrong_locks: AtomicUsize,
    overlaps: AtomicUsize,
    strangers: AtomicUsize,
}

/// What changes in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Some clients have one node more, or one less.
    Step,
    /// Some have a list that is no step away.
    WrongList,
    /// A step, and so many nodes as a quorum has lose their data, but for one.
    StepAndLoss,
}

struct World {
    servers: Vec<Server>,
    dice: Dice,
    has_group: bool,
    seen: Seen,
}

impl World {
    fn new(seed: u64, has_group: bool) -> Self {
        let dice = Dice::new(seed);
        let server = |node| {
            let (losses, hangs, is_full) = Default::default();
            Server { node, losses, hangs, is_full, dice: dice.clone() }
        };
        let nodes = MemoryNode::cluster(NODES, TokioRuntime::new());
        Self {
            servers: nodes.into_iter().map(server).collect(),
            has_group,
            seen: Seen::default(),
            dice,
        }
    }

    /// A process that has this list.
    fn client(&self, list: List) -> LockManager {
        self.client_of(list, self.has_group.then(|| NodeGroup::new("g", false)))
    }

    /// A person accepts this list as that of the group.
    async fn accept(&self, list: List) {
        let client = self.client_of(list, Some(NodeGroup::new("g", true)));
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

    fn client_of(&self, list: List, group: Option<NodeGroup>) -> LockManager {
        let servers = self.servers.iter().enumerate().filter(|(at, _)| list & 1 << at != 0);
        let mut settings = Settings::default();
        settings.group = group;
        let nodes = servers.map(|(_, server)| RedisNode::new(server.clone(), &settings));
        LockManager::builder(nodes).runtime(TokioRuntime::new()).build().unwrap()
    }

    /// Locks, holds and starts anew at random times. `is_wrong`: its list is none of those that may meet.
    async fn run(&self, list: List, is_wrong: bool) {
        for _ in 0..3 {
            let client = self.client(list);
            for _ in 0..8 {
                sleep(self.dice.time(Duration::ZERO, 100 * MS)).await;
                let guard = match client.lock("r").no_wait().await {
                    Ok(guard) => guard,
                    Err(error) => {
                        let is_stranger = error.to_string().contains("not a node of the group");
                        self.seen.strangers.fetch_add(is_stranger.into(), Ordering::SeqCst);
                        continue;
                    }
                };
                let others = self.seen.holders.fetch_add(1, Ordering::SeqCst);
                self.seen.overlaps.fetch_add((others > 0).into(), Ordering::SeqCst);
                self.seen.locks.fetch_add(1, Ordering::SeqCst);
                self.seen.wrong_locks.fetch_add(is_wrong.into(), Ordering::SeqCst);
                sleep(self.dice.time(Duration::ZERO, 100 * MS)).await;
                self.seen.holders.fetch_sub(1, Ordering::SeqCst);
                let _ = guard.release().await;
            }
        }
    }

    /// The group has a list. Then other clients have another one. A wrong list beside a step or a loss is not noticed.
    async fn go(self, change: Change) -> Seen {
        let is_wrong = change == Change::WrongList;
        let loses_data = change == Change::StepAndLoss;
        let lists: Vec<List> = (1..1 << NODES).collect();
        let has_size = |list: &List| (3..=5).contains(&list.count_ones());
        let first = *self.dice.pick(&lists.iter().copied().filter(has_size).collect::<Vec<_>>());
        let is_other = |list: &List| match is_wrong {
            true => list & first != 0 && *list != first && !is_step(first, *list),
            false => has_size(list) && is_step(first, *list),
        };
        let other = *self.dice.pick(&lists.into_iter().filter(is_other).collect::<Vec<_>>());
        self.found(first).await;
        let loss = async {
            sleep(self.dice.time(Duration::ZERO, 2_000 * MS)).await;
            let of_both = self.servers.iter().enumerate();
            let of_both = of_both.filter(|(at, _)| first & other & 1 << at != 0);
            let lost = if loses_data { first.count_ones() as usize / 2 + 1 } else { 0 };
            // One is left that knows the group.
            of_both.skip(1).take(lost).for_each(|(_, server)| server.lose_all());
        };
        let clients = [(first, false), (first, false), (other, is_wrong), (other, is_wrong)];
        let clients = clients.map(|(list, is_wrong)| self.run(list, is_wrong).boxed());
        tokio::join!(join_all(clients), loss);
        self.seen
    }
}

/// Whether one of the lists has one node more, and all of the other.
fn is_step(one: List, other: List) -> bool {
    (one ^ other).count_ones() == 1
}

/// Sums over worlds: overlaps, locks, those of a wrong list, and refusals of strangers.
fn totals(has_group: bool, change: Change) -> [usize; 4] {
    let mut sums = [0; 4];
    for seed in 0..60 {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
        let seen = runtime.block_on(World::new(seed, has_group).go(change));
        let counts = [seen.overlaps, seen.locks, seen.wrong_locks, seen.strangers];
        let counts = counts.map(AtomicUsize::into_inner);
        assert!(!has_group || counts[0] == 0, "seed {seed}, {change:?}: two held it");
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    sums
}

#[test]
fn n2_in_worlds_where_one_node_comes_or_goes_under_locks_all_lock_and_no_two_hold() {
    let [_, locks, _, strangers] = totals(true, Change::Step);
    assert!(locks > 1_000 && strangers == 0, "{locks} locks, {strangers} refusals");
}

/// What `scene` returns, of a world whose clock is paused.
fn in_world<T>(scene: impl AsyncFnOnce(World) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(scene(World::new(7, true)))
}

#[test]
fn n2_another_list_is_one_event_for_each_node_that_keeps_it() {
    let told = told(|| {
        in_world(async |world| {
            for list in [0b111, 0b111, 0b1111, 0b1111, 0b1110, 0b1110] {
                world.found(list).await;
            }
        });
    });
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
#[test]
fn n2_a_question_has_no_node_keep_a_list() {
    in_world(async |world| {
        world.found(0b111).await;
        for list in [0b011, 0b001] {
            let client = world.client(list);
            for _ in 0..3 {
                client.check().await;
                drop(client.inspect("r").await);
                world.settle().await;
            }
        }
        assert_eq!(world.servers.iter().map(Server::list).collect::<String>(), "123123123");
        drop(world.client(0b111).lock("r").no_wait().await.unwrap());
    });
}

/// A node hangs from before the client begins. The votes of the others count at once.
#[test]
fn n4_no_vote_waits_for_a_node_that_hangs() {
    in_world(async |world| {
        world.found(0b111).await;
        world.servers[1].hangs.store(true, Ordering::SeqCst);
        let from = tokio::time::Instant::now();
        let guard = world.client(0b111).lock("r").no_wait().await.unwrap();
        assert!(from.elapsed() < 100 * MS, "{:?}", from.elapsed());
        drop(guard.release().await);
        // A list is written when all ids are known, by who then locks.
        let client = world.client(0b1111);
        drop(client.lock("r").no_wait().await.unwrap().release().await);
        world.settle().await;
        assert_eq!(world.servers[0].list(), "123");
        world.servers[1].hangs.store(false, Ordering::SeqCst);
        let client = world.client(0b1111);
        for _ in 0..2 {
            drop(client.lock("r").no_wait().await.unwrap().release().await);
            world.settle().await;
        }
        assert_eq!(world.servers.iter().map(Server::list).collect::<String>(), "1234".repeat(4));
    });
}

/// One has no memory left, and has it again later. Until then a client that has only this one in common is not noticed.
#[test]
fn n2_a_list_that_a_node_could_not_keep_is_written_again() {
    in_world(async |world| {
        world.servers[2].is_full.store(true, Ordering::SeqCst);
        let client = world.found(0b111).await;
        assert_eq!([0, 1, 2].map(|at| world.servers[at].list()), ["123", "123", ""]);
        world.servers[2].is_full.store(false, Ordering::SeqCst);
        sleep(1_000 * MS).await;
        drop(client.lock("r").no_wait().await.unwrap().release().await);
        world.settle().await;
        assert_eq!(world.servers[2].list(), "123");
    });
}

/// No node keeps a list, and one hangs. A win waits for it, but for no longer than a round.
#[test]
fn n4_the_first_lock_of_a_group_has_a_short_ttl_while_a_node_hangs() {
    in_world(async |world| {
        world.servers[2].hangs.store(true, Ordering::SeqCst);
        let request = world.client(0b111).lock("r").ttl(1_000 * MS).no_wait();
        assert!(request.await.unwrap().is_valid());
    });
}

/// Clients of a step have two nodes keep a list meanwhile. The third one never answers this client.
#[test]
fn n4_no_win_waits_for_a_node_that_hangs_once_the_others_keep_a_list() {
    in_world(async |world| {
        world.servers[2].hangs.store(true, Ordering::SeqCst);
        let client = world.client(0b111);
        drop(client.lock("r").no_wait().await.unwrap().release().await);
        world.found(0b011).await;
        sleep(1_000 * MS).await;
        // It reads the lists again, once a second.
        drop(client.lock("r").no_wait().await.unwrap().release().await);
        let from = tokio::time::Instant::now();
        let guard = client.lock("r").no_wait().await.unwrap();
        assert!(from.elapsed() < 100 * MS, "{:?}", from.elapsed());
        drop(guard.release().await);
    });
}

/// Three nodes without a list have granted, and their connections have ended. Another one, whose connection ends as well,
/// says nothing of its list. So the win waits for the last one.
#[test]
fn n4_a_win_of_nodes_without_a_list_waits_also_when_their_connections_have_ended() {
    in_world(async |world| {
        world.found(0b111_000).await;
        let client = world.client(0b011_111);
        let lock = |name| {
            let client = client.clone();
            tokio::spawn(async move { client.lock(name).no_wait().await })
        };
        let hang = |at: usize, hangs| world.servers[at].hangs.store(hangs, Ordering::SeqCst);
        let cut = |at: usize| world.servers[at].losses.fetch_add(1, Ordering::SeqCst);
        (3..5).for_each(|at| hang(at, true));
        let locks = lock("r");
        world.settle().await;
        (0..3).for_each(|at| hang(at, true));
        let fails = lock("s");
        world.settle().await;
        (0..3).for_each(|at| _ = cut(at));
        (0..3).for_each(|at| hang(at, false));
        sleep(2 * MS).await;
        // They are connected to again, and say nothing yet.
        (0..3).for_each(|at| hang(at, true));
        world.settle().await;
        cut(4);
        hang(4, false);
        world.settle().await;
        hang(3, false);
        let Err(LockError::NoQuorum(error)) = locks.await.unwrap() else { panic!("two holders") };
        assert!(error.to_string().contains("not a node of the group"), "{error}");
        (0..3).for_each(|at| hang(at, false));
        drop(fails.await);
    });
}

/// Another list was written meanwhile: a person has accepted it.
#[test]
fn n2_a_list_that_comes_late_does_not_replace_another_one() {
    in_world(async |world| {
        world.found(0b111).await;
        let hang = |at: usize, hangs| world.servers[at].hangs.store(hangs, Ordering::SeqCst);
        hang(3, true);
        let guard = world.client(0b1111).lock("r").no_wait().await.unwrap();
        hang(0, true);
        hang(3, false);
        world.settle().await;
        let lists = || world.servers.iter().map(Server::list).collect::<Vec<_>>();
        assert_eq!(lists()[..4], ["123", "1234", "1234", "1234"]);
        let Some(Value::String(text)) = world.servers[0].node.get(LIST) else { panic!("a list") };
        let accepted = text.split_inclusive(|byte| *byte == b'\n').take(2).collect::<Vec<_>>();
        world.servers[0].node.put(LIST, Value::String(accepted.concat()));
        let accepted = lists().remove(0);
        hang(0, false);
        world.settle().await;
        assert_eq!(lists()[0], accepted);
        drop(guard.release().await);
    });
}

/// The stranger votes first and the node whose list shows it last, or the other way round.
#[test]
fn n3_the_vote_of_a_stranger_counts_with_no_vote_that_shows_it_to_be_one() {
    in_world(async |world| {
        world.found(0b111).await;
        for (late, down) in [(0, 1), (1, 0), (3, 1), (3, 0)] {
            let hang = |at: usize, hangs| world.servers[at].hangs.store(hangs, Ordering::SeqCst);
            hang(late, true);
            hang(down, true);
            let wrong = world.client(0b1011);
            let asking = tokio::spawn(async move { wrong.lock("r").no_wait().await.map(drop) });
            sleep(50 * MS).await;
            hang(late, false);
            let error = asking.await.unwrap().unwrap_err().to_string();
            assert!(error.contains("not a node of the group g"), "{late} {down}: {error}");
            hang(down, false);
            world.settle().await;
        }
    });
}

/// A running client hears of the list that a person has accepted.
#[test]
fn n5_a_running_client_counts_an_accepted_node_within_two_seconds() {
    in_world(async |world| {
        let client = world.found(0b111).await;
        world.servers[2].lose_all();
        drop(client.lock("r").no_wait().await.unwrap().release().await);
        world.settle().await;
        let told = client.check().await.to_string();
        assert!(told.contains("it was replaced, or has lost its data"), "{told}");
        world.accept(0b111).await;
        for _ in 0..4 {
            sleep(500 * MS).await;
            drop(client.lock("r").no_wait().await.unwrap().release().await);
        }
        // The vote of the accepted node is needed.
        world.servers[0].hangs.store(true, Ordering::SeqCst);
        drop(client.lock("r").no_wait().await.unwrap());
    });
}

/// A vote is that of what the node was when it gave it.
#[test]
fn n3_a_vote_of_a_stranger_counts_no_more_when_its_connection_has_ended() {
    in_world(async |world| {
        world.found(0b00111).await;
        let client = world.client(0b11001);
        let lock = |name| {
            let client = client.clone();
            tokio::spawn(async move { client.lock(name).no_wait().await })
        };
        let hang = |at: usize, hangs| world.servers[at].hangs.store(hangs, Ordering::SeqCst);
        hang(0, true);
        hang(4, true);
        let locks = lock("r");
        world.settle().await;
        // The stranger has voted. Its connection ends in the middle of another call.
        hang(3, true);
        let fails = lock("s");
        world.settle().await;
        world.servers[3].losses.fetch_add(1, Ordering::SeqCst);
        hang(3, false);
        world.settle().await;
        hang(0, false);
        let Err(LockError::NoQuorum(error)) = locks.await.unwrap() else { panic!("two holders") };
        assert!(error.to_string().contains("not a node of the group"), "{error}");
        drop(fails.await);
    });
}

/// The other clients are a step away: their list does not have the node any more.
#[test]
fn n5_a_node_that_lost_its_data_during_a_step_has_no_vote() {
    in_world(async |world| {
        for list in [0b111, 0b110] {
            world.found(list).await;
        }
        drop(world.client(0b111).lock("r").no_wait().await.unwrap());
        world.found(0b110).await;
        world.servers[0].lose_all();
        world.servers[2].hangs.store(true, Ordering::SeqCst);
        let Err(error) = world.client(0b111).lock("s").no_wait().await else { panic!("a vote") };
        let text = error.to_string();
        assert!(text.contains("it was replaced, or has lost its data"), "{text}");
    });
}

/// Two strangers have granted while no node was there whose list shows that. Another lock hears of
/// the list.
#[test]
fn n3_a_lock_ends_when_another_one_shows_that_strangers_have_granted_it() {
    in_world(async |world| {
        world.found(0b00111).await;
        let client = world.client(0b11001);
        world.servers[0].hangs.store(true, Ordering::SeqCst);
        let guard = client.lock("r").no_wait().await.unwrap();
        world.servers[0].losses.fetch_add(1, Ordering::SeqCst);
        world.servers[0].hangs.store(false, Ordering::SeqCst);
        world.settle().await;
        assert!(guard.is_valid());
        drop(client.lock("s").no_wait().await);
        assert!(!guard.is_valid());
        let text = guard.lost().await.to_string();
        assert!(text.contains("not a node of the group g"), "{text}");
    });
}

/// The nodes are the same, and what the list calls them is not: it is no copy that answers at an
/// address.
#[test]
fn n5_a_person_accepts_the_new_addresses_of_nodes() {
    in_world(async |world| {
        world.found(0b111).await;
        let [a, b] = [0, 1].map(|at| world.servers[at].node.get("quorate:node:id").unwrap());
        world.servers[0].node.put("quorate:node:id", b);
        world.servers[1].node.put("quorate:node:id", a);
        world.servers[0].hangs.store(true, Ordering::SeqCst);
        let Err(error) = world.client(0b111).lock("r").no_wait().await else { panic!("a copy") };
        assert!(error.to_string().contains("it may be a copy"), "{error}");
        world.servers[0].hangs.store(false, Ordering::SeqCst);
        world.accept(0b111).await;
        world.servers[0].hangs.store(true, Ordering::SeqCst);
        drop(world.client(0b111).lock("r").no_wait().await.unwrap());
    });
}

#[test]
fn n5_a_copy_of_the_data_of_a_node_has_no_vote() {
    in_world(async |world| {
        world.found(0b111).await;
        world.servers[3].become_a_copy_of(&world.servers[0]);
        // The node itself answers late, or the third one, which shows that there are two.
        for late in [0, 1] {
            world.servers[late].hangs.store(true, Ordering::SeqCst);
            let client = world.client(0b1011);
            let asking = tokio::spawn(async move { client.lock("r").no_wait().await.map(drop) });
            sleep(50 * MS).await;
            world.servers[late].hangs.store(false, Ordering::SeqCst);
            let error = asking.await.unwrap().unwrap_err();
            assert!(error.to_string().contains(" id "), "{late}: {error}");
        }
    });
}

/// Rule N4.
#[test]
fn n3_in_worlds_where_some_have_a_wrong_list_no_two_hold() {
    let [_, locks, wrong, strangers] = totals(true, Change::WrongList);
    assert!(locks > 1_000 && strangers > 1_000, "{locks} locks, {strangers} refusals");
    assert!(wrong > 0, "a wrong list may have a majority that meets the others");
    let [overlaps, ..] = totals(false, Change::WrongList);
    assert!(overlaps > 100, "without a group: {overlaps}");
}

#[test]
fn n5_in_worlds_where_nodes_lose_their_data_no_two_hold() {
    let [_, locks, _, strangers] = totals(true, Change::StepAndLoss);
    assert!(locks > 500 && strangers > 0, "{locks} locks, {strangers} refusals");
    let [overlaps, ..] = totals(false, Change::StepAndLoss);
    assert!(overlaps > 0, "without a group: {overlaps}");
}

/// The client has the list of before two steps.
#[test]
fn n3_a_client_with_an_old_list_is_told_so() {
    in_world(async |world| {
        for list in [0b111, 0b1111, 0b11111] {
            world.found(list).await;
        }
        let Err(error) = world.client(0b111).lock("r").no_wait().await else { panic!("old") };
        let LockError::NoQuorum(_) = error else { panic!("{error}") };
        let text = error.to_string();
        assert!(text.contains("this client has an old list of the group g"), "{text}");
        assert!(!text.contains("replaced"), "{text}");
    });
}
