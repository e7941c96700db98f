//! What breaks, and when: nodes, networks and clients until the chaos ends, and then all is mended.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::{BackendError, BackendErrorKind, LockManager, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule};

use crate::plan::Class;
use crate::process::Process;
use crate::run::Scene;
use crate::world::{lock, name};

pub(crate) async fn run(scene: Arc<Scene>) {
    let idle = match scene.plan.class {
        // Waiters are in order again before the next fault.
        Class::Gate => scene.plan.ttl * 4,
        _ => scene.plan.ttl / 2 + scene.plan.thinking / 4,
    };
    while scene.sim.elapsed() < scene.plan.chaos {
        scene.sleep(scene.dice.scaled_time(idle)).await;
        let lasting = scene.dice.scaled_time(scene.plan.ttl * 2);
        match (scene.dice.below(10), scene.plan.class) {
            (0..=7, Class::Gate) | (0..=4, _) => break_node(&scene, lasting).await,
            (_, Class::Gate) => lose_pushes(&scene, lasting).await,
            (5 | 6, _) => part(&scene, lasting).await,
            _ => pause(&scene, lasting),
        }
    }
    for node in &scene.nodes {
        node.heal();
        scene.calm(node);
    }
    scene.note("the chaos is over");
}

/// Sets the wall clocks of clients until the chaos ends. It is only the order of tokens, after a
/// loss of data, that may suffer from it.
pub(crate) async fn set_wall_clocks(scene: Arc<Scene>, most: Duration) {
    let most = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
    let set = |process: &Process| {
        let ahead = i64::from(scene.dice.signed(most)) * 1_000;
        process.set_wall_clock(ahead);
        scene.count("wall clock set");
        let client = process.client().id();
        scene.note(format!("the wall clock of client {client} is {ahead} µs ahead"));
    };
    scene.processes.iter().for_each(set);
    while scene.sim.elapsed() < scene.plan.chaos {
        scene.sleep(scene.dice.time(Duration::ZERO, scene.plan.ttl * 2)).await;
        set(scene.dice.pick(&scene.processes));
    }
}

/// Keys vanish until the chaos ends, some of them before their holder has the reply.
pub(crate) async fn lose_keys(scene: Arc<Scene>) {
    while scene.sim.elapsed() < scene.plan.chaos {
        scene.sleep(scene.dice.scaled_time(scene.plan.ttl / 2)).await;
        let node = scene.dice.pick(&scene.nodes);
        node.expire(name(scene.dice.below(scene.plan.resources)));
        scene.count("key gone");
    }
}

/// Locks are revoked until the chaos ends, by any client.
pub(crate) async fn revoke(scene: Arc<Scene>, managers: Vec<LockManager>) {
    while scene.sim.elapsed() < scene.plan.chaos && !managers.is_empty() {
        scene.sleep(scene.dice.scaled_time(scene.plan.ttl / 2)).await;
        if scene.dice.percent(50) {
            scene.dice.pick(&scene.nodes).push_for_nothing();
            scene.count("push for nothing");
        }
        let name = name(scene.dice.below(scene.plan.resources));
        let note = match scene.dice.pick(&managers).revoke(name.as_str()).await {
            Ok(revocation) => {
                if revocation.is_effective() {
                    scene.count("lock revoked");
                }
                format!("{name}: {revocation}")
            }
            Err(error) => format!("{name}: {error}"),
        };
        scene.note(note);
    }
}

/// What a node can answer to each call.
const ERRORS: [BackendErrorKind; 5] = [
    BackendErrorKind::ReadOnly,
    BackendErrorKind::Loading,
    BackendErrorKind::OutOfMemory,
    BackendErrorKind::Misconfigured,
    BackendErrorKind::Auth,
];

/// All faults of a node, each with its word. A node that is dead has lost its data.
pub(crate) fn faults(delay: Duration, error: BackendErrorKind) -> [(&'static str, Fault); 10] {
    [
        ("hung", Fault::Hung),
        ("down", Fault::Down),
        ("slow", Fault::Slow(delay)),
        ("late", Fault::Late(delay)),
        ("error", Fault::Failing(BackendError::new(error, "an error"))),
        ("evicting", Fault::Evicting),
        ("full", Fault::Full),
        ("hides its id", Fault::NoInfo),
        ("two servers in turn", Fault::Flapping),
        ("dead", Fault::Dead),
    ]
}

async fn break_node(scene: &Arc<Scene>, lasting: Duration) {
    let (plan, dice) = (&scene.plan, &scene.dice);
    let node = dice.pick(&scene.nodes);
    let small = dice.scaled_time(plan.ttl / 2);
    let kinds = match plan.class {
        Class::Broken | Class::Guarded => 9,
        Class::Storm => 6,
        Class::Gate => 4,
        _ => 5,
    };
    let draw = match (dice.below(kinds), plan.class) {
        (5, Class::Storm) => 7,
        (7, Class::Guarded) => 9,
        (3, Class::Gate) => 10,
        // Without its only node no process gets a lock.
        (_, Class::Gate) if scene.spare() == 0 => 10,
        (2, Class::Gate) => 5,
        (draw, _) => draw,
    };
    let mut fault = None;
    let ((), kind) = match draw {
        0..=4 => {
            // Not each error is one of all calls.
            let odd = if draw == 4 { dice.below(9) } else { 0 };
            let (kind, drawn) = faults(small, ERRORS[odd.min(draw)])[odd.max(draw)].clone();
            (_ = fault.insert(drawn), kind)
        }
        5 => (node.restart(), "restarted empty"),
        6 => (node.restart_from_save(), "restarted from an old save"),
        7 => (node.jump(dice.time(Duration::ZERO, plan.ttl * 2)), "clock jumped"),
        9 => (node.flush(), "flushed"),
        10 => (queues(node).iter().for_each(|key| node.expire(key)), "forgot the queue"),
        _ => return node.save(),
    };
    scene.count(kind);
    scene.note(format!("{} {kind}", node.name()));
    scene.is_broken_for(lasting);
    let Some(fault) = fault else { return };
    node.inject(fault);
    let (all, node) = (Arc::clone(scene), node.clone());
    let end = async move {
        all.sleep(lasting).await;
        node.heal();
        all.note(format!("{} is well", node.name()));
    };
    // Several nodes can be broken at once: not every one is waited for. W1 allows for one silent gate.
    if plan.class != Class::Gate && dice.percent(70) {
        scene.sim.spawn(Box::pin(end))
    } else {
        end.await
    }
}

/// The keys of the wait queues at a node.
pub(crate) fn queues(node: &MemoryNode) -> Vec<Vec<u8>> {
    let mut keys = node.keys();
    keys.retain(|key| key.windows(9).any(|part| part == b":quorate:"));
    keys
}

async fn lose_pushes(scene: &Scene, lasting: Duration) {
    let chance = *scene.dice.pick(&[50_000, 200_000, 1_000_000]);
    let lost = || Rule::new(Effect::DropReply).on(Operation::Watch).chance(chance);
    scene.nodes.iter().for_each(|node| node.add_rule(lost()));
    scene.count("notifications lost");
    scene.note("notifications are lost");
    scene.is_broken_for(lasting);
    scene.sleep(lasting).await;
    scene.nodes.iter().for_each(|node| lossy(scene, node));
    scene.note("notifications arrive");
}

/// Cuts a client off some nodes, in one direction or in both.
async fn part(scene: &Scene, lasting: Duration) {
    let client = scene.dice.pick(&scene.processes).client();
    let effects: &[Effect] = match scene.dice.below(3) {
        0 => &[Effect::DropRequest],
        1 => &[Effect::DropReply],
        _ => &[Effect::DropRequest, Effect::DropReply],
    };
    scene.count(if effects.len() == 2 { "partition" } else { "one-way partition" });
    let mut parted = Vec::new();
    for node in scene.nodes.iter().filter(|_| scene.dice.percent(50)) {
        for effect in effects {
            node.add_rule(Rule::new(*effect).client(client));
        }
        parted.push(node.name());
    }
    scene.note(format!("client {} is cut off {parted:?}: {effects:?}", client.id()));
    scene.sleep(lasting).await;
    scene.nodes.iter().for_each(|node| lossy(scene, node));
    scene.note(format!("client {} is back", client.id()));
}

fn pause(scene: &Scene, lasting: Duration) {
    let client = scene.dice.pick(&scene.processes).client();
    scene.count("client paused");
    let start = scene.sim.elapsed();
    scene.note(format!("client {} stands still for {lasting:?}", client.id()));
    client.pause(lasting);
    lock(&scene.pauses).push((client.id(), start, start + lasting));
}

/// The network as it is while the chaos lasts.
pub(crate) fn lossy(scene: &Scene, node: &MemoryNode) {
    scene.calm(node);
    if scene.plan.loss > 0 {
        let late = scene.plan.ttl / 2;
        let (twice, reorder) = (Effect::Duplicate(late), Effect::Reorder(late));
        for effect in [Effect::DropRequest, Effect::DropReply, Effect::Cut, twice, reorder] {
            node.add_rule(Rule::new(effect).chance(scene.plan.loss));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::run;
    use crate::world::Faults;

    /// The next one that a node can have is missing here until it is in the table.
    #[test]
    fn each_fault_of_a_node_is_drawn() {
        let source = include_str!("../../../../crates/quorate-memory/src/fault.rs");
        let (_, there) = source.split_once("pub enum Fault {").unwrap();
        let first = |line: &'static str| line.trim().split(['(', ',']).next().unwrap();
        let is_fault = |name: &&str| name.starts_with(|c: char| c.is_ascii_uppercase());
        let mut there: Vec<&str> = there.lines().map(first).filter(is_fault).collect();
        let all = faults(Duration::ZERO, ERRORS[0]);
        let mut known = all.clone().map(|(_, fault)| format!("{fault:?}"));
        known.iter_mut().for_each(|name| name.truncate(name.find('(').unwrap_or(name.len())));
        there.sort_unstable();
        known.sort_unstable();
        assert_eq!(there, known);
        let drawn: Faults = (1..=200).flat_map(|seed| run(seed, Class::Promised).faults).collect();
        let missing = all.iter().filter(|(word, _)| !drawn.contains_key(word));
        assert_eq!(missing.map(|(word, _)| *word).collect::<Vec<_>>(), [""; 0]);
    }
}
