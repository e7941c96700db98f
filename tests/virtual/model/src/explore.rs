//! Explores all states of a scope, and shows the way to a violation.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use foldhash::quality::FixedState;

use crate::scope::{Beginning, Scope, Time};
use crate::step::{Next, Step};
use crate::world::World;

/// What came of an exploration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What was explored.
    pub name: String,
    /// How many states it has. States that differ only in the names of nodes count once.
    pub states: usize,
    /// How many steps were tried.
    pub steps: usize,
    /// How long it took.
    pub took: Duration,
    /// What was violated first, and the way to it, a step a line.
    pub violation: Option<(&'static str, String)>,
    /// Whether there are more states than the limit.
    pub is_cut: bool,
    /// The most attempts that had a fencing token, or a lease, in one run.
    pub won: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, states, steps, took, violation, is_cut, .. } = self;
        let took = took.as_secs_f32();
        let cut = if *is_cut { ", cut" } else { "" };
        let violated = violation.as_ref().map_or("no violation", |(what, _)| what);
        write!(f, "{name:<44} {states:>9} states {steps:>10} steps {took:>6.1} s{cut}: {violated}")
    }
}

/// Where a state was reached from, and where it goes if everything is answered, and if nothing is.
struct Way {
    from: u64,
    answered: u64,
    silent: u64,
}

type Ways = HashMap<u64, Way, FixedState>;

/// No state.
const NONE: u64 = 0;

/// In which order states are explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Finds a short way to a violation.
    BreadthFirst,
    /// Needs less memory.
    DepthFirst,
}

/// Explores at most `limit` states. With `wanted`, no other violation counts.
#[expect(clippy::disallowed_methods, reason = "an origin, and how long it took")]
pub(crate) fn explore(
    scope: &Scope,
    wanted: Option<&'static str>,
    order: Order,
    limit: usize,
) -> Report {
    let start = Instant::now();
    let mut ways = Ways::default();
    let mut open: VecDeque<(u64, World)> = VecDeque::new();
    let mut ended = HashSet::with_hasher(FixedState::default());
    for world in World::initial(scope, start) {
        let hash = world.fingerprint();
        ways.insert(hash, Way { from: NONE, answered: NONE, silent: NONE });
        open.push_back((hash, world));
    }
    let (mut steps, mut won, mut violation) = (0, 0, None);
    let next_of = |open: &mut VecDeque<_>| match order {
        Order::BreadthFirst => open.pop_front(),
        Order::DepthFirst => open.pop_back(),
    };
    while let Some((hash, world)) = next_of(&mut open).filter(|_| ways.len() < limit) {
        if world.begun().all(|(_, client)| client.is_quiescent()) {
            ended.insert(hash);
        }
        won = won.max(world.begun().filter(|(_, client)| client.has_won).count());
        let (mut answered, mut silent) = ((u8::MAX, NONE), (u8::MAX, NONE));
        for Next { step, world: next, wrong } in world.steps(scope) {
            steps += 1;
            let after = next.fingerprint();
            let order = step.order_if_answered();
            // The other one if nothing is answered.
            let quiet = order.filter(|_| matches!(step, Step::Timeout(_) | Step::Tick));
            for (best, order) in [(&mut answered, order), (&mut silent, quiet)] {
                if let Some(order) = order.filter(|order| *order < best.0) {
                    *best = (order, after);
                }
            }
            let wrong = wrong.or_else(|| next.judge(scope, wanted));
            if let Some(what) = wrong.filter(|what| wanted.is_none_or(|wanted| wanted == *what)) {
                let last = format!("{step}\n");
                violation = Some((what, tell(scope, start, &ways, hash) + &last));
                break;
            }
            ways.entry(after).or_insert_with(|| {
                open.push_back((after, next));
                Way { from: hash, answered: NONE, silent: NONE }
            });
        }
        if violation.is_some() {
            break;
        }
        if let Some(way) = ways.get_mut(&hash) {
            (way.answered, way.silent) = (answered.1, silent.1);
        }
    }
    let is_cut = violation.is_none() && ways.len() >= limit;
    let judges_ends = violation.is_none() && !is_cut && wanted.is_none();
    if judges_ends && scope.time != Time::Any {
        violation = never_ends(&ways, &ended, |way| way.answered)
            .map(|hash| ("liveness: it does not end although everything is answered", hash))
            .or_else(|| {
                let hash = never_ends(&ways, &ended, |way| way.silent)?;
                Some(("liveness: it does not end when nothing is answered", hash))
            })
            .filter(|(what, _)| scope.under_way.is_none() || !what.contains("nothing"))
            .map(|(what, hash)| (what, tell(scope, start, &ways, hash)));
    }
    let (name, states, took) = (scope.title(), ways.len(), start.elapsed());
    Report { name, states, steps, took, violation, is_cut, won }
}

/// A state from which no end is reached by the steps that `next` chooses.
fn never_ends(
    ways: &Ways,
    ended: &HashSet<u64, FixedState>,
    next: impl Fn(&Way) -> u64,
) -> Option<u64> {
    let mut good = ended.clone();
    for first in ways.keys() {
        let (mut chain, mut hash) = (Vec::new(), *first);
        while !good.contains(&hash) {
            let way = ways.get(&hash).filter(|_| chain.len() < 300);
            chain.push(hash);
            hash = way.map_or(NONE, &next);
            if hash == NONE {
                return Some(*first);
            }
        }
        good.extend(chain);
    }
    None
}

/// The way to a state, a step a line.
fn tell(scope: &Scope, start: Instant, ways: &Ways, last: u64) -> String {
    let mut hashes = vec![last];
    while let Some(way) = ways.get(hashes.last().unwrap_or(&NONE)).filter(|way| way.from != NONE) {
        hashes.push(way.from);
    }
    let first = hashes.pop();
    let mut worlds = World::initial(scope, start).into_iter();
    let Some(mut world) = worlds.find(|world| Some(world.fingerprint()) == first) else {
        return "the beginning is not found".to_owned();
    };
    let mut text = String::new();
    while let Some(hash) = hashes.pop() {
        let next = world.steps(scope).into_iter().find(|next| next.world.fingerprint() == hash);
        let Some(next) = next else { return text + "the next step is not found" };
        text += &format!("{}\n", next.step);
        world = next.world;
    }
    text
}

impl World {
    /// All beginnings: one attempt has begun.
    fn initial(scope: &Scope, start: Instant) -> Vec<Self> {
        let new = Self::new(scope, start);
        if scope.fencing.is_some() && scope.attempts > 1 {
            return vec![new];
        }
        let keys = if scope.beginning == Beginning::Adopt { 0..=3 } else { 0..=0 };
        keys.map(|keys| {
            let mut world = new.drive_new(scope, 0).world;
            for at in 0..keys {
                let place = world.place(at);
                (place.owner, place.left) = (Some(0), 2);
            }
            world
        })
        .collect()
    }
}
