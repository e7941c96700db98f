//! What kills waiters, and breaks the nodes that keep their queues.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use quorate_core::Runtime;
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule};

use super::crowd::Crowd;
use super::plan::MS;
use crate::history::AttemptId;
use crate::plan::{Ability, Class};
use crate::process::Process;
use crate::world::{attempt_at, lock, name};

/// Kills processes and breaks nodes until the world is over, as its class says.
pub(crate) async fn run(crowd: Crowd) {
    crowd.sim.sleep(crowd.dice.time(MS * 200, MS * 3_000)).await;
    while !crowd.is_over() {
        match crowd.plan.class {
            Class::Kills => kill_some(&crowd),
            Class::Gate => break_one(&crowd).await,
            _ => return,
        }
        crowd.sim.sleep(crowd.dice.scaled_time(MS * 30_000)).await;
    }
}

/// The second and the fourth in line, or any two.
fn kill_some(crowd: &Crowd) {
    let dice = &crowd.dice;
    let line = crowd.board().line(0);
    let places: BTreeSet<usize> = match dice.percent(60) {
        true => [1, 3].iter().filter_map(|place| line.get(*place).copied()).collect(),
        false => (0..1 + dice.below(2)).map(|_| dice.below(crowd.plan.processes)).collect(),
    };
    crowd.note(format!("in line: {line:?}"));
    for place in places {
        let Some(member) = crowd.kill(place) else { continue };
        crowd.count("process killed");
        crowd.board().killed(crowd.sim.elapsed(), member.who.client);
        let (later, all) = (dice.percent(30), crowd.clone());
        crowd.sim.spawn(Box::pin(async move {
            // What it has sent arrives.
            all.sim.sleep(all.plan.round_trip()).await;
            see_what_is_left(&all, &member.process);
            if later {
                all.sim.sleep(all.dice.time(Duration::ZERO, MS * 1_000)).await;
                all.start(place);
            }
        }));
        if !later {
            crowd.start(place);
        }
    }
}

/// Locks of processes that are gone block a key until a quorum of nodes has none of them.
fn see_what_is_left(crowd: &Crowd, process: &Process) {
    let theirs = {
        let mut shared = lock(&crowd.shared);
        shared.dead.extend(process.all_drawn());
        shared.dead.clone()
    };
    let now = crowd.sim.elapsed();
    for (key, name) in (0..crowd.plan.keys).map(|key| (key, name(key))) {
        let left = |node: &MemoryNode| {
            let attempt = attempt_at(node, &name)?;
            node.time_left(&name).filter(|_| theirs.contains(&attempt))
        };
        let mut left: Vec<Duration> = crowd.nodes.iter().filter_map(left).collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(longest) = left.first() {
            crowd.board().is_stale(key, now + *longest);
        }
        if let Some(until) = left.get(crowd.spare()) {
            crowd.note(format!("what was killed keeps {name} for {until:?}"));
            crowd.board().is_blocked(now, key, now + *until);
        }
    }
}

/// One node hangs or dies for up to 5 s, or forgets; or all lose notifications.
async fn break_one(crowd: &Crowd) {
    let dice = &crowd.dice;
    let node = dice.pick(&crowd.nodes);
    let lasting = dice.scaled_time(MS * 5_000);
    let spare = crowd.nodes.len() > 2;
    let (kind, fault) = match dice.below(5) {
        0 if spare => ("hung", Some(Fault::Hung)),
        1 if spare => ("down", Some(Fault::Down)),
        2 if spare => {
            lock(&crowd.shared).forgot = true;
            node.restart();
            ("restarted empty", None)
        }
        3 => {
            let is_queue = |key: &Vec<u8>| key.windows(9).any(|part| part == b":quorate:");
            node.keys().iter().filter(|key| is_queue(key)).for_each(|key| node.expire(key));
            ("forgot the queue", None)
        }
        _ => {
            let chance = *dice.pick(&[50_000, 200_000, 1_000_000]);
            for node in &crowd.nodes {
                let lost = Rule::new(Effect::DropReply).on(Operation::Watch);
                node.add_rule(lost.chance(chance));
            }
            ("notifications lost", None)
        }
    };
    crowd.count(kind);
    crowd.note(format!("{} {kind}", node.name()));
    crowd.board().is_disturbed(crowd.sim.elapsed(), lasting + crowd.plan.node_timeout() * 2);
    fault.into_iter().for_each(|fault| node.inject(fault));
    crowd.sim.sleep(lasting).await;
    heal(crowd);
}

/// All is well again, but for the data that was forgotten.
pub(crate) fn heal(crowd: &Crowd) {
    for node in &crowd.nodes {
        node.heal();
        crowd.calm(node);
    }
    crowd.note("all nodes are well");
}

/// Notes keys that stay at a node though the lock is not held: W1 lets a waiter wait for them.
pub(crate) async fn look_for_stale_keys(crowd: Crowd) {
    let mut before = HashSet::new();
    if crowd.plan.ability != Ability::Queue {
        return;
    }
    loop {
        crowd.sim.sleep(MS * 50).await;
        let mut found = HashSet::new();
        let now = crowd.sim.elapsed();
        for key in (0..crowd.plan.keys).filter(|key| !crowd.board().is_held(*key)) {
            let attempts = crowd.nodes.iter().filter_map(|node| attempt_at(node, &name(key)));
            let attempts: Vec<AttemptId> = attempts.collect();
            if attempts.iter().any(|attempt| before.contains(attempt)) {
                crowd.board().is_blocked(now, key, now);
            }
            found.extend(attempts);
        }
        before = found;
    }
}
