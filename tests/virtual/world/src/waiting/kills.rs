//! Processes that are killed and start again, and keys that stay where no process holds the lock.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use quorate_core::Runtime;
use quorate_memory::MemoryNode;

use super::crowd::Crowd;
use super::plan::MS;
use crate::history::AttemptId;
use crate::nemesis::queues;
use crate::plan::Ability;
use crate::world::{attempt_at, name};

/// Kills processes until the chaos ends: the second and the fourth in line, or any two.
pub(crate) async fn kill_waiters(crowd: Crowd) {
    let dice = &crowd.dice;
    crowd.sleep(dice.time(MS * 200, MS * 3_000)).await;
    while !crowd.is_over() {
        let line = crowd.board().line(0);
        let places: BTreeSet<usize> = match dice.percent(60) {
            true => [1, 3].iter().filter_map(|place| line.get(*place).copied()).collect(),
            false => (0..1 + dice.below(2)).map(|_| dice.below(crowd.plan.clients)).collect(),
        };
        crowd.note(format!("in line: {line:?}"));
        for place in places.into_iter().filter(|place| crowd.kill(*place)) {
            let (later, all) = (dice.percent(30), crowd.clone());
            crowd.sim.spawn(Box::pin(async move {
                // What it has sent arrives.
                all.sleep(all.habits.round_trip()).await;
                see_what_is_left(&all);
                if later {
                    all.sleep(all.dice.time(Duration::ZERO, MS * 1_000)).await;
                    all.start(place);
                }
            }));
            if !later {
                crowd.start(place);
            }
        }
        crowd.sleep(dice.scaled_time(MS * 30_000)).await;
    }
}

/// Locks of processes that are gone block a key until a quorum of nodes has none of them, nor the gate.
fn see_what_is_left(crowd: &Crowd) {
    let (theirs, now) = (crowd.drawn_by_the_dead(), crowd.sim.elapsed());
    for (key, name) in (0..crowd.plan.resources).map(|key| (key, name(key))) {
        let left = |node: &MemoryNode| {
            let attempt = attempt_at(node, &name)?;
            node.time_left(&name).filter(|_| theirs.contains(&attempt))
        };
        let gates = crowd.nodes.iter().filter(|node| !queues(node).is_empty());
        let at_gates = gates.filter_map(left).max();
        let mut left: Vec<Duration> = crowd.nodes.iter().filter_map(left).collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        if let Some(longest) = left.first() {
            crowd.board().is_stale(key, now + *longest);
        }
        if let Some(until) = left.get(crowd.spare()).copied().max(at_gates) {
            crowd.note(format!("what was killed keeps {name} for {until:?}"));
            crowd.board().is_blocked(now, key, now + until);
        }
    }
}

/// Notes keys that stay at a node though the lock is not held: W1 lets a waiter wait for them.
pub(crate) async fn look_for_stale_keys(crowd: Crowd) {
    let mut before = HashSet::new();
    if crowd.plan.ability != Ability::Queue {
        return;
    }
    loop {
        crowd.sleep(MS * 50).await;
        let mut found = HashSet::new();
        let now = crowd.sim.elapsed();
        for key in (0..crowd.plan.resources).filter(|key| !crowd.board().is_held(*key)) {
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
