//! What breaks, and when: nodes, networks and clients until the chaos ends, and then all is mended.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::{BackendError, BackendErrorKind, LockManager, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Rule};

use crate::plan::Class;
use crate::process::Process;
use crate::run::Scene;
use crate::world::{lock, name};

pub(crate) async fn run(scene: Arc<Scene>) {
    let idle = scene.plan.ttl / 2 + scene.plan.thinking / 4;
    while scene.sim.elapsed() < scene.plan.chaos {
        scene.sleep(scene.dice.scaled_time(idle)).await;
        let lasting = scene.dice.scaled_time(scene.plan.ttl * 2);
        match scene.dice.below(10) {
            0..=4 => break_node(&scene, lasting).await,
            5 | 6 => part(&scene, lasting).await,
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

async fn break_node(scene: &Arc<Scene>, lasting: Duration) {
    let (plan, dice) = (&scene.plan, &scene.dice);
    let node = dice.pick(&scene.nodes);
    let small = dice.scaled_time(plan.ttl / 2);
    let kinds = match plan.class {
        Class::Broken | Class::Guarded => 9,
        Class::Storm => 6,
        _ => 5,
    };
    let draw = match (dice.below(kinds), plan.class) {
        (5, Class::Storm) => 7,
        (7, Class::Guarded) => 9,
        (draw, _) => draw,
    };
    let (kind, fault) = match draw {
        0 => ("hung", Some(Fault::Hung)),
        1 => ("down", Some(Fault::Down)),
        2 => ("slow", Some(Fault::Slow(small))),
        3 => ("late", Some(Fault::Late(small))),
        4 => {
            let kind = *dice.pick(&[
                BackendErrorKind::ReadOnly,
                BackendErrorKind::Loading,
                BackendErrorKind::OutOfMemory,
                BackendErrorKind::Misconfigured,
                BackendErrorKind::Auth,
            ]);
            ("error", Some(Fault::Failing(BackendError::new(kind, "an error"))))
        }
        5 => ("restarted empty", None),
        6 => ("restarted from an old save", None),
        7 => ("clock jumped", None),
        9 => ("flushed", None),
        _ => return node.save(),
    };
    match draw {
        5 => node.restart(),
        6 => node.restart_from_save(),
        7 => node.jump(dice.time(Duration::ZERO, plan.ttl * 2)),
        9 => node.flush(),
        _ => {}
    }
    scene.count(kind);
    scene.note(format!("{} {kind}", node.name()));
    let Some(fault) = fault else { return };
    node.inject(fault);
    let (all, node) = (Arc::clone(scene), node.clone());
    let end = async move {
        all.sleep(lasting).await;
        node.heal();
        all.note(format!("{} is well", node.name()));
    };
    // Several nodes can be broken at once: not every one is waited for.
    if dice.percent(70) { scene.sim.spawn(Box::pin(end)) } else { end.await }
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
