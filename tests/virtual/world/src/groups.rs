//! Worlds in which clients of a group have different lists of nodes.
//!
//! Each node keeps an id of its data and the list of its group, and a connection reads both once
//! (N1 to N5). Some clients have the list, some one node more or less, or one of them a wrong list.
//! Clients are cut off nodes, connections end, and a node loses its data, which a person accepts
//! when the longest ttl has passed. No two may hold the lock at a time. A wrong list has so few
//! nodes without a list that they are no quorum: else nobody could notice it.

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use quorate_core::backend::{
    AcquireOptions, Call, Claim, ExtendOptions, ListTask, Listed, Membership, NotSent,
    ReleaseOptions, Reply, ask, async_trait,
};
use quorate_core::{BackendError, BackendErrorKind, LockBackend, LockManager, Runtime};
use quorate_memory::{MemoryNode, Sim, Value};

use crate::plan::{Class, Plan};
use crate::process::Process;
use crate::run::{Outcome, Scene};
use crate::world::{dice_of, lock, name};

const ID: &str = "quorate:node:id";
const LIST: &str = "quorate:group:g";

/// Nodes as bits.
type List = u32;

/// The servers, with how often the connections of each have ended, and the next id.
#[derive(Debug, Default)]
struct Servers {
    ages: Vec<AtomicUsize>,
    ids: AtomicUsize,
}

/// A node as a client of the group has it.
#[derive(Debug)]
struct Grouped {
    node: MemoryNode,
    at: usize,
    servers: Arc<Servers>,
    is_new_list: bool,
    runtime: Process,
    /// What it has said, and on which connection.
    said: Mutex<Option<(usize, Arc<Membership>)>>,
}

impl Grouped {
    fn text(&self, key: &str) -> Option<String> {
        match self.node.get(key) {
            Some(Value::String(text)) => String::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// The id and the list that the server has now.
    fn read(&self) -> Membership {
        let id = self.text(ID).unwrap_or_else(|| {
            let id = self.servers.ids.fetch_add(1, Ordering::Relaxed).to_string();
            self.node.put(ID, Value::String(id.clone().into_bytes()));
            id
        });
        let line = |line: &str| {
            let (id, name) = line.split_once(' ')?;
            Some(Listed { id: id.into(), name: name.into() })
        };
        let stored = self.text(LIST);
        let lines = || stored.as_deref().unwrap_or_default().lines();
        let list = lines().filter(|text| !text.starts_with('-')).filter_map(line).collect();
        let gone = lines().filter_map(|text| line(text.strip_prefix('-')?)).collect();
        let (group, is_new_list) = ("g".into(), self.is_new_list);
        let stored = stored.as_deref().map(|text| text.as_bytes().into());
        Membership { group, id: id.into(), list, gone, stored, is_new_list }
    }

    /// What the server has said on the present connection, after what the call asks of its list.
    fn says(&self, task: &ListTask) -> Arc<Membership> {
        let age = self.servers.ages[self.at].load(Ordering::Relaxed);
        let mut said = lock(&self.said);
        if let ListTask::Keep { list, gone, before } = task
            && self.read().stored == before.stored
        {
            let line = |sign, node: &Listed| format!("{sign}{} {}\n", node.id, node.name);
            let list = list.iter().map(|node| line("", node));
            let text = list.chain(gone.iter().map(|node| line("-", node))).collect::<String>();
            self.node.put(LIST, Value::String(text.into_bytes()));
        }
        if !matches!(task, ListTask::Nothing) || said.as_ref().is_none_or(|(of, _)| *of != age) {
            *said = Some((age, Arc::new(self.read())));
        }
        let (_, says) = said.get_or_insert_with(|| (age, Arc::new(self.read())));
        Arc::clone(says)
    }

    async fn carry_out(&self, call: Call) {
        let age = || self.servers.ages[self.at].load(Ordering::Relaxed);
        let (begun, says) = (age(), self.says(call.list_task()));
        let operation = call.operation().clone();
        let asked = ask(operation, self.runtime.client().now(), |call| {
            Arc::new(self.node.clone()).begin(call, &self.runtime)
        });
        let Some(mut result) = unless(call.given_up(), asked).await else { return };
        if age() != begun {
            let text = "the connection ended";
            result = Err(BackendError::new(BackendErrorKind::Connection, text));
        }
        match &result {
            Err(error) if error.kind() == BackendErrorKind::Connection => *lock(&self.said) = None,
            _ => call.note_membership(&says),
        }
        call.answer(result);
    }
}

/// What `future` returns; `None` if `end` comes first.
async fn unless<T>(end: impl Future<Output = ()>, future: impl Future<Output = T>) -> Option<T> {
    let (mut end, mut future) = (pin!(end), pin!(future));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(context).map(|()| None),
    })
    .await
}

#[async_trait]
impl LockBackend for Grouped {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        self.node.acquire(claim, options).await
    }

    async fn extend(&self, claim: &Claim, options: ExtendOptions) -> Result<Reply, BackendError> {
        self.node.extend(claim, options).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.node.release(claim, options).await
    }

    fn name(&self) -> Cow<'_, str> {
        self.node.name().into()
    }

    fn begin(self: Arc<Self>, call: Call, runtime: &dyn Runtime) -> Result<(), NotSent> {
        runtime.spawn(Box::pin(async move { self.carry_out(call).await }));
        Ok(())
    }
}

/// What all clients of a world share.
struct Field {
    scene: Arc<Scene>,
    servers: Arc<Servers>,
    /// The list of the group.
    group: List,
    /// The node that loses its data.
    lost: usize,
}

/// Runs the world of `seed`.
pub(crate) fn run(seed: u64) -> Outcome {
    let sim = Sim::shuffled(seed);
    let dice = dice_of(&sim);
    let plan = Plan::of_one_lock(seed, &dice, Class::Groups);
    let plan = Plan { nodes: 7, clients: 3 + dice.below(3), chaos: plan.ttl * 16, ..plan };
    let ttl = plan.ttl;
    let scene = Scene::new_calm(&sim, plan);
    let lists: Vec<List> = (1..1 << scene.plan.nodes).collect();
    let of_size = |sizes: &[u32]| -> Vec<List> {
        lists.iter().copied().filter(|list| sizes.contains(&list.count_ones())).collect()
    };
    let group = *dice.pick(&of_size(&[3, 3, 5]));
    let lost = *dice.pick(&places(group));
    let ages = scene.nodes.iter().map(|_| AtomicUsize::default()).collect();
    let servers = Arc::new(Servers { ages, ids: AtomicUsize::default() });
    let field = Arc::new(Field { scene: Arc::clone(&scene), servers, group, lost });
    // The group has its list before other clients come.
    sim.block_on(field.accept());
    let has_wrong = dice.percent(50);
    let mut others = of_size(&[3, 4, 5, 6]);
    others.retain(|list| if has_wrong { field.is_wrong(*list) } else { is_step(group, *list) });
    let list_of = |client: usize| match client {
        0 | 1 => group,
        _ if has_wrong && client > 2 => group,
        _ => *dice.pick(&others),
    };
    let lists: Vec<List> = (0..scene.plan.clients).map(list_of).collect();
    let build = |client: usize| field.manager(client, lists[client], false);
    let managers: Vec<_> = (0..scene.plan.clients).filter_map(build).collect();
    scene.note(format!("the group is {group:b}, the lists are {lists:?}"));
    let of = Arc::clone(&field);
    sim.spawn(Box::pin(Arc::clone(&scene).cut(places(group), [ttl / 10, ttl * 2], move |at| {
        let ends = of.scene.dice.percent(30);
        if ends {
            of.servers.ages[at].fetch_add(1, Ordering::Relaxed);
            of.scene.count("connections ended");
        }
        ends
    })));
    sim.spawn(Box::pin(Arc::clone(&field).lose()));
    // No two hold the lock.
    let of = Arc::clone(&scene);
    scene.hold_all(&managers, ttl * 3, move || {
        let valid = of.holding();
        of.wrong_if(valid.len() > 1, format!("clients {valid:?} hold together,"));
    });
    for (client, manager) in managers.iter().enumerate().filter(|(at, _)| lists[*at] == group) {
        let lock = || sim.block_on(manager.lock(name(0)).timeout(ttl * 8));
        // The first request may be the one that has the lists read again, at most once a second.
        let locked = lock().or_else(|error| {
            scene.note(format!("client {client} has no lock at once: {error}"));
            sim.advance(Duration::from_secs(1));
            lock()
        });
        let why = locked.as_ref().err().map_or_else(String::new, ToString::to_string);
        scene.wrong_if(
            locked.is_err(),
            format!("all is well, but client {client} has no lock: {why}"),
        );
        if let Ok(guard) = locked {
            let _ = sim.block_on(guard.release());
        }
    }
    scene.end(format!("{:?}", scene.plan))
}

fn places(list: List) -> Vec<usize> {
    (0..32).filter(|at| list & 1 << at != 0).collect()
}

/// Whether one of the lists has one node more, and all of the other.
fn is_step(one: List, other: List) -> bool {
    (one ^ other).count_ones() == 1
}

impl Field {
    /// Whether a list is none of those that may meet, and can be noticed by each of its quorums.
    fn is_wrong(&self, list: List) -> bool {
        let without = (list & !self.group | list & 1 << self.lost).count_ones();
        list != self.group && !is_step(self.group, list) && without < list.count_ones() / 2 + 1
    }

    fn manager(&self, client: usize, list: List, is_new_list: bool) -> Option<LockManager> {
        let (scene, process) = (&self.scene, &self.scene.processes[client]);
        let node = |at: usize| Grouped {
            node: scene.nodes[at].seen_by(process.client()),
            at,
            servers: Arc::clone(&self.servers),
            is_new_list,
            runtime: process.clone(),
            said: Mutex::default(),
        };
        let builder = LockManager::builder(places(list).into_iter().map(node));
        builder.runtime(process.clone()).ttl(scene.plan.ttl).build().ok()
    }

    /// A person makes the nodes of the group its list, in a client of its own.
    async fn accept(&self) {
        let (scene, ttl) = (&self.scene, self.scene.plan.ttl);
        let Some(client) = self.manager(0, self.group, true) else { return };
        for _ in 0..4 {
            if let Ok(guard) = client.lock("accepted").timeout(ttl).await {
                drop(guard.release().await);
            }
            scene.sleep(ttl / 4).await;
        }
        scene.count("list accepted");
    }

    /// A node loses its data. When no holder can rely on what it had, a person accepts it.
    async fn lose(self: Arc<Self>) {
        let (scene, ttl) = (&self.scene, self.scene.plan.ttl);
        scene.sleep(scene.dice.time(Duration::ZERO, scene.plan.chaos / 2)).await;
        self.servers.ages[self.lost].fetch_add(1, Ordering::Relaxed);
        scene.nodes[self.lost].restart();
        scene.count("node lost its data");
        scene.note(format!("{} loses its data", scene.nodes[self.lost].name()));
        scene.sleep(scene.dice.time(ttl * 2, ttl * 8)).await;
        self.accept().await;
        // Who was cut off meanwhile.
        scene.sleep(scene.plan.chaos.saturating_sub(scene.sim.elapsed())).await;
        self.accept().await;
    }
}
