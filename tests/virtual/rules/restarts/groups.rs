//! Clients that form a group, in worlds whose lists of nodes change under locks: some clients have a wrong one.

#![expect(clippy::disallowed_methods, reason = "the clock is paused")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use quorate::runtime::TokioRuntime;
use quorate_core::backend::{AcquireOptions, Claim, ExtendOptions, ReleaseOptions, Reply};
use quorate_core::{BackendError, BackendErrorKind, LockBackend, LockManager};
use quorate_memory::{MemoryNode, Value};
use quorate_protocol::{Admission, Connection, Member, NodeGroup, Parts};
use quorate_tests::dice::Dice;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::telling::{of, told};
use crate::world::MS;

const NODES: usize = 6;

/// The nodes of a client, as bits.
type List = u32;

/// A node, as a client has it.
#[derive(Debug)]
struct Node {
    server: Server,
    /// Of which group it is; `None`: the client looks at no list.
    member: Option<Member>,
    admission: Mutex<Option<(Admission, usize)>>,
}

/// A server, with how often it has lost its data and its connections.
#[derive(Clone, Debug)]
struct Server {
    node: MemoryNode,
    losses: Arc<AtomicUsize>,
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

    /// A command of a group: `GET`, or `SET` with or without `NX`.
    fn execute(&self, command: &Parts) -> quorate_protocol::Value {
        let words: Vec<&[u8]> = command.iter().collect();
        let found = self.node.get(words[1]);
        match (words[0], words.len()) {
            (b"SET", 4) if found.is_some() => quorate_protocol::Value::Nil,
            (b"SET", _) => {
                self.node.put(words[1], Value::String(words[2].to_vec()));
                quorate_protocol::Value::Okay
            }
            _ => match found {
                Some(Value::String(text)) => quorate_protocol::Value::Text(text),
                _ => quorate_protocol::Value::Nil,
            },
        }
    }
}

/// A connection to a server is the server, as long as it has all of its data.
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
        sleep(self.server.dice.time(Duration::ZERO, 10 * MS)).await;
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

impl Node {
    /// Whether the client may ask this node for a vote. It connects first, if it has to.
    async fn admit(&self) -> Result<(), BackendError> {
        let Some(member) = &self.member else { return Ok(()) };
        let mut admission = self.admission.lock().await;
        let is_good = |(admission, age): &(Admission, usize)| {
            !admission.is_over() && *age == self.server.age()
        };
        if admission.as_ref().is_some_and(is_good) {
            return Ok(());
        }
        *admission = None;
        let connecting = async {
            sleep(self.server.dice.time(Duration::ZERO, 10 * MS)).await;
            Ok(Connected { server: self.server.clone(), age: self.server.age() })
        };
        let (connected, admitted) = member.admit(connecting).await?;
        *admission = Some((admitted, connected.age));
        if connected.is_closed() { Err(gone()) } else { Ok(()) }
    }
}

#[async_trait]
impl LockBackend for Node {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        self.admit().await?;
        self.server.node.acquire(claim, options).await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.admit().await?;
        self.server.node.extend(claim, options).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.server.node.release(claim, options).await
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
    /// The same, and no client has come before the others.
    Beginning,
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
        let server = |node| Server { node, losses: Arc::default(), dice: dice.clone() };
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
        let group = self.has_group.then(|| NodeGroup::new("g", false));
        let servers = self.servers.iter().enumerate().filter(|(at, _)| list & 1 << at != 0);
        let node = |(_, server): (usize, &Server)| Node {
            server: server.clone(),
            member: group.as_ref().map(|group| group.member(server.node.name(), 400 * MS)),
            admission: Mutex::default(),
        };
        let nodes: Vec<Node> = servers.map(node).collect();
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

    /// The group has a list, unless it is its beginning. Then other clients have another one. A wrong list beside a step or
    /// a loss is not noticed.
    async fn go(self, change: Change) -> Seen {
        let is_wrong = matches!(change, Change::WrongList | Change::Beginning);
        let loses_data = change == Change::StepAndLoss;
        let lists: Vec<List> = (1..1 << NODES).collect();
        let has_size = |list: &List| (3..=5).contains(&list.count_ones());
        let first = *self.dice.pick(&lists.iter().copied().filter(has_size).collect::<Vec<_>>());
        let is_other = |list: &List| match is_wrong {
            true => list & first != 0 && *list != first && !is_step(first, *list),
            false => has_size(list) && is_step(first, *list),
        };
        let other = *self.dice.pick(&lists.into_iter().filter(is_other).collect::<Vec<_>>());
        if change != Change::Beginning {
            drop(self.client(first).lock("r").no_wait().await.unwrap().release().await);
        }
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

/// A client has two connections to a node, and makes new ones. It joins each node by both, after the others or before.
async fn join_all_nodes(world: &World, list: List) {
    let group = NodeGroup::new("g", false);
    let servers = world.servers.iter().enumerate().filter(|(at, _)| list & 1 << at != 0);
    let join = |server: &Server| {
        let (member, server) = (group.member(server.node.name(), 400 * MS), server.clone());
        let connect = async move || Ok(Connected { age: server.age(), server: server.clone() });
        async move { member.admit(connect()).await.map(drop) }
    };
    let joins: Vec<_> = servers.flat_map(|(_, server)| [server; 2]).map(join).collect();
    for joined in join_all(joins).await {
        joined.unwrap();
    }
}

#[test]
fn n2_another_list_is_one_event_for_each_node_that_keeps_it() {
    let told = told(|| {
        in_world(async |world| {
            for list in [0b111, 0b111, 0b1111, 0b1111, 0b1110, 0b1110] {
                join_all_nodes(&world, list).await;
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

/// A node is down when the client begins. What the others were asked was not all.
#[test]
fn n4_a_list_that_is_complete_later_is_kept_by_all_nodes() {
    in_world(async |world| {
        let group = NodeGroup::new("g", false);
        let servers = &world.servers[..3];
        let members: Vec<_> =
            servers.iter().map(|server| group.member(server.node.name(), 400 * MS)).collect();
        let admit = async |at: usize, is_up: bool| {
            let server: &Server = &servers[at];
            let connected = Connected { age: server.age(), server: server.clone() };
            let connecting = async { if is_up { Ok(connected) } else { Err(gone()) } };
            members[at].admit(connecting).await.map(|(_, admission)| admission)
        };
        let lists =
            || servers.iter().filter(|it| it.node.get(b"quorate:group:g").is_some()).count();
        let (one, other, down) = tokio::join!(admit(0, true), admit(1, true), admit(2, false));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(down.is_err() && !one.is_over() && !other.is_over());
        assert_eq!(lists(), 0, "it is not complete");
        let third = admit(2, true).await.unwrap();
        assert!(one.is_over() && other.is_over() && !third.is_over(), "each is asked again");
        let [one, other] = [admit(0, true).await.unwrap(), admit(1, true).await.unwrap()];
        assert_eq!(lists(), 3);
        assert!(![one, other, third].iter().any(Admission::is_over));
    });
}

/// An operator has written it by hand, or another program. It is no list that is new: a client would have it kept only if
/// there were none.
#[test]
fn n3_a_node_whose_list_is_garbage_has_no_vote_until_there_is_a_new_list() {
    for garbage in ["", "x", "\n", "by hand\nx", "\u{0}"] {
        in_world(async |world| {
            join_all_nodes(&world, 0b111).await;
            let key = b"quorate:group:g";
            let list = world.servers[2].node.get(key);
            world.servers[2].node.put(key, Value::String(garbage.into()));
            let from = tokio::time::Instant::now();
            let client = world.client(0b111);
            let guard = client.lock("r").no_wait().await.unwrap();
            assert!(from.elapsed() < 400 * MS, "{garbage:?}: {:?}", from.elapsed());
            let told = client.check().await.to_string();
            assert!(told.contains("no list of nodes at quorate:group:g"), "{garbage:?}: {told}");
            assert!(world.servers[2].node.get("r").is_none());
            guard.release().await.unwrap();
            // A new list takes its place.
            let group = NodeGroup::new("g", true);
            let members = world.servers[..3].iter().map(async |server| {
                let member = group.member(server.node.name(), 400 * MS);
                let connecting =
                    async { Ok(Connected { age: server.age(), server: server.clone() }) };
                member.admit(connecting).await.map(drop)
            });
            assert!(join_all(members).await.iter().all(Result::is_ok), "{garbage:?}");
            assert_eq!(world.servers[2].node.get(key), list, "{garbage:?}");
        });
    }
}

#[test]
fn n3_in_worlds_where_some_have_a_wrong_list_no_two_hold() {
    let [_, locks, wrong, strangers] = totals(true, Change::WrongList);
    assert!(locks > 1_000 && strangers > 1_000, "{locks} locks, {strangers} refusals");
    assert!(wrong > 0, "a wrong list may have a majority that meets the others");
    let [overlaps, ..] = totals(false, Change::WrongList);
    assert!(overlaps > 100, "without a group: {overlaps}");
}

#[test]
fn n3_in_worlds_where_lists_begin_at_once_no_two_hold() {
    let [_, locks, ..] = totals(true, Change::Beginning);
    assert!(locks > 500, "{locks} locks");
    let [overlaps, ..] = totals(false, Change::Beginning);
    assert!(overlaps > 100, "without a group: {overlaps}");
}

#[test]
fn n5_in_worlds_where_nodes_lose_their_data_no_two_hold() {
    let [_, locks, _, strangers] = totals(true, Change::StepAndLoss);
    assert!(locks > 500 && strangers > 0, "{locks} locks, {strangers} refusals");
    let [overlaps, ..] = totals(false, Change::StepAndLoss);
    assert!(overlaps > 0, "without a group: {overlaps}");
}
