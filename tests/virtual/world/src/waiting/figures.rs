//! Processes in a tight loop, and their figures: to be compared with those of the specification.

use std::fmt;
use std::time::Duration;

use quorate_memory::{MemoryNode, Sim};

use super::counts::Waits;
use super::plan::Plan;
use super::run::run_plan;
use crate::ability::Ability;
use crate::dice::Dice;
use crate::plan::Class;

/// Some processes that lock one key in a tight loop on five nodes.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Figures {
    /// How many processes, and how many tasks each has.
    pub crowd: (usize, usize),
    /// Whether the nodes are pools.
    pub is_pooled: bool,
    /// What the processes can use of the nodes.
    pub ability: Ability,
    /// What came of it.
    pub waits: Waits,
    /// How many rules were violated.
    pub violations: usize,
}

/// How long each case lasts.
const LASTING: Duration = Duration::from_secs(5);

/// Measures the cases of the specification.
pub fn measure() -> impl Iterator<Item = Figures> {
    let queue = Ability::Queue;
    let cases = [
        (8, 1, false, queue),
        (8, 3, false, queue),
        (8, 3, true, queue),
        (1, 1, false, queue),
        (1, 3, false, queue),
        (1, 16, false, queue),
        (1, 16, true, queue),
        (2, 16, false, queue),
        (8, 1, false, Ability::Polled),
        (8, 1, false, Ability::Nothing),
    ];
    cases.into_iter().map(|(processes, tasks, is_pooled, ability)| {
        let sim = Sim::shuffled(1);
        let dice = Dice::new(sim.clone());
        let plan = Plan {
            class: Class::Line,
            nodes: 5,
            processes,
            tasks,
            keys: 1,
            // A round trip takes 0.4 ms on average.
            latency: Duration::from_micros(240),
            ttl: Duration::from_secs(10),
            // A hold takes 1 ms on average: between a half of this and all of it.
            hold: Duration::from_micros(1_333),
            thinking: Duration::ZERO,
            mixed: false,
            ability,
            others: 0,
            holds: u64::MAX,
            lasting: LASTING,
        };
        let nodes = MemoryNode::cluster(plan.nodes, sim.clone()).into_iter();
        let nodes = nodes.map(|node| if is_pooled { node.unordered() } else { node });
        let nodes: Vec<MemoryNode> = nodes.map(|node| ability.of(node)).collect();
        let outcome = run_plan(1, &sim, &dice, &plan, &nodes);
        let violations = outcome.violations.len();
        Figures { crowd: (processes, tasks), is_pooled, ability, waits: outcome.waits, violations }
    })
}

impl fmt::Display for Figures {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (processes, tasks) = self.crowd;
        let Waits { holds, contested, to_another, least_share, commands, .. } = &self.waits;
        let per_hold = |count: u64| count as f64 / (*holds).max(1) as f64;
        let is_waiting = |kind: &str| matches!(kind, "queue" | "watch" | "hint");
        let waiting = commands.iter().filter(|(kind, _)| is_waiting(kind)).map(|(_, count)| count);
        write!(
            f,
            "{processes} × {tasks} ({}, {:?}): {:.0} holds/s; least share {:.2}; {to_another} of {contested} to \
             another process; {:.1} commands a hold, {:.1} for waiting; longest wait {:.2} s; {} violations",
            if self.is_pooled { "pools" } else { "ordered" },
            self.ability,
            *holds as f64 / LASTING.as_secs_f64(),
            least_share.unwrap_or(f64::NAN),
            per_hold(commands.values().sum()),
            per_hold(waiting.sum()),
            self.waits.longest_wait.0.as_secs_f64(),
            self.violations,
        )
    }
}
