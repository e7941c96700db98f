//! Explores, and tells what was found.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker as _, HasDiscoveries, Model as _, Path};

use crate::case::Case;
use crate::client::NODES;
use crate::node::Request;
use crate::world::{ALL_CONFIRMED, Step, World};

/// What came of an exploration.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Report {
    /// The case.
    pub name: &'static str,
    /// How many states it has, none twice.
    pub states: usize,
    /// How many steps were tried.
    pub steps: usize,
    /// The most steps from the beginning.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// What is violated, each with a run that shows it.
    pub violated: Vec<(&'static str, String)>,
    /// What some run reached, of all that some run should.
    pub reached: BTreeSet<&'static str>,
}

/// Explores all states, those that differ only in the names of nodes once.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "it tells how long it took")]
pub fn explore<const A: usize>(case: &Case<A>) -> Report {
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = case.clone().checker().threads(threads).symmetry_fn(World::representative);
    report(case, start, &checker.spawn_dfs().join())
}

/// Looks for one violation, nearly as short as there is one; without one, explores all states.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "it tells how long it took")]
pub fn search<const A: usize>(case: &Case<A>, property: &'static str) -> Report {
    let start = Instant::now();
    let wanted = HasDiscoveries::AllOf([property].into());
    // More threads find longer ones, and others each time.
    report(case, start, &case.clone().checker().finish_when(wanted).spawn_bfs().join())
}

#[expect(clippy::disallowed_methods, reason = "it tells how long it took")]
fn report<const A: usize>(
    case: &Case<A>,
    start: Instant,
    checker: &impl stateright::Checker<Case<A>>,
) -> Report {
    let took = start.elapsed();
    let mut violated = Vec::new();
    let mut reached = BTreeSet::new();
    for (name, path) in checker.discoveries() {
        let property = case.property(name);
        if property.expectation.discovery_is_failure() {
            violated.push((name, tell(case, path, property.condition)));
        } else {
            reached.insert(name);
        }
    }
    violated.sort_unstable();
    Report {
        name: case.name,
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        took,
        violated,
        reached,
    }
}

impl Report {
    /// The run that shows a violation.
    #[must_use]
    pub fn run(&self, property: &str) -> Option<&str> {
        let found = self.violated.iter().find(|(name, _)| *name == property);
        found.map(|(_, run)| run.as_str())
    }

    /// Whether it proves something: nothing is violated, and not because nothing happened.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        self.violated.is_empty() && self.reached.contains(ALL_CONFIRMED)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, states, steps, depth, took, violated, .. } = self;
        let took = took.as_secs_f32();
        write!(
            f,
            "{name:<44} {states:>9} states {steps:>10} steps, depth {depth:>3}, {took:>6.1} s: "
        )?;
        let names: Vec<_> = violated.iter().map(|(name, _)| *name).collect();
        match names[..] {
            [] => f.write_str("nothing violated"),
            _ => write!(f, "violated: {}", names.join(", ")),
        }
    }
}

/// A run, a step a line: who, what, at which node, with which answer; then the nodes' keys and numbers.
/// It ends where the condition does.
fn tell<const A: usize>(
    case: &Case<A>,
    path: Path<World<A>, Step>,
    condition: fn(&Case<A>, &World<A>) -> bool,
) -> String {
    let mut text = String::new();
    let steps = path.into_vec();
    for (at, (world, step)) in steps.iter().enumerate() {
        let after = steps.get(at + 1).map_or(world, |(after, _)| after);
        let what = step.map_or_else(String::new, |step| tell_step(case, world, after, step));
        if !condition(case, world) {
            break;
        }
        if at == 0 {
            text += &format!("{:>4}  {:44}{}\n", "", "", tell_nodes(world));
        }
        if step.is_some() {
            text += &format!("{:>4}  {what:44}{}\n", at + 1, tell_nodes(after));
        }
    }
    text
}

fn tell_nodes<const A: usize>(world: &World<A>) -> String {
    let nodes = (0..NODES).map(|at| {
        let node = world.places[at].node;
        format!("n{at} {} {}", node.key.map_or('-', letter), node.fence)
    });
    nodes.collect::<Vec<_>>().join("   ")
}

fn tell_step<const A: usize>(
    case: &Case<A>,
    before: &World<A>,
    after: &World<A>,
    step: Step,
) -> String {
    let change = |from: usize| match (before.attempts[from].client, after.attempts[from].client) {
        (old, new) if old.token == new.token => String::new(),
        (_, new) => new
            .token
            .map_or_else(String::new, |token| format!("; {}'s TOKEN IS {token}", letter(from))),
    };
    match step {
        Step::Begin(from) => {
            let hint = after.attempts[from].hint;
            format!("{} begins, its clock says {hint}", letter(from))
        }
        Step::Raise(from) => {
            let wanted = after.attempts[from].client.wanted;
            format!("{} wants {wanted}{}", letter(from), change(from))
        }
        Step::End(from) => format!("{} ends", letter(from)),
        Step::Vanish(node) => format!("n{node}: the key vanishes"),
        Step::Lose(node) => format!("n{node}: all data is lost"),
        Step::Arrive { from, node, request, is_heard } => {
            let place = before.places[node].node;
            let (_, reply) = case.answer(place, from, request);
            let heard = if is_heard { "" } else { " (lost)" };
            let resent = match request {
                Request::Acquire { .. } if before.places[node].granted.has(from) => "again ",
                _ => "",
            };
            format!("{}->n{node} {resent}{request}: {reply}{heard}{}", letter(from), change(from))
        }
    }
}

fn letter(attempt: usize) -> char {
    char::from(b'A'.saturating_add(u8::try_from(attempt).unwrap_or(0)))
}
