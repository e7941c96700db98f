//! What is explored, and what must be found.

use crate::explore::{Order, Report, explore};
use crate::judge::{IN_TENURE, IN_TIME, UNIQUE};
use crate::place::LATE_EFFECT;
use crate::scope::{Beginning, Fencing, Hints, NODES, Replies, Scope, Time};

/// How much is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a part of the tests")]
pub enum Size {
    /// For the ordinary test run: some scopes to a number of states only, and not all of fencing.
    Usual,
    /// For the scheduled job.
    Large,
}

/// One exploration.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    scope: Scope,
    limit: usize,
    /// The violation that must be found; `None` if there must be none.
    expected: Option<&'static str>,
}

/// So many states of a large scope are explored in the ordinary test run, the nearest ones first.
const USUAL: usize = 100_000;

/// The scopes with one clock, one attempt or two that compete, and whether the ordinary test run explores
/// them to a limit.
fn scopes(is_ordered: bool) -> [(Scope, bool); 19] {
    let new = |name| Scope::new(name, is_ordered);
    let under_way = Some([2, 0]);
    let extended = |name| Scope { extensions: 1, ..new(name) };
    let longer = |name| Scope { extension_ttl: 2, ..extended(name) };
    let vanishing = |name| Scope { keys_vanish: true, ..extended(name) };
    let fencing = Some(Fencing { numbers: [0, 0, 1], hints: Hints::Given([0; 3]) });
    let told = |name| {
        let (has_pushes, under_way) = (is_ordered, Some([3, 0]));
        Scope { has_pushes, revokes: 3, under_way, ..vanishing(name) }
    };
    let two = |name| Scope { attempts: 2, under_way, ..new(name) };
    let again = Scope { is_again: true, has_foreign: true, ..two("again") };
    let is_cancelled = true;
    [
        (Scope { drops: 1, is_cancelled, is_delivered_late: true, ..new("delivered late") }, false),
        (Scope { time: Time::LateTimers, is_cancelled, ..extended("late timers") }, false),
        (Scope { extensions: 2, under_way, ..new("renewed") }, false),
        (Scope { drops: 2, replies: Replies::Shuffled, under_way, ..extended("released") }, true),
        (Scope { beginning: Beginning::Adopt, is_cancelled, ..vanishing("adopted") }, false),
        (two("two"), false),
        (Scope { has_errors: true, is_cancelled, ..new("errors") }, true),
        (Scope { drops: 1, ..longer("extended") }, true),
        (Scope { has_foreign: true, ..vanishing("keys vanish") }, true),
        (Scope { fencing, is_cancelled, has_errors: true, ..new("fenced") }, true),
        (Scope { fencing, has_foreign: true, ..new("contested") }, true),
        (Scope { hold_limit: Some(1), is_cancelled, ..extended("hold limit") }, true),
        (Scope { is_closed: true, is_cancelled, ..extended("closed") }, true),
        (Scope { keys_vanish: true, under_way, ..longer("lapsed") }, true),
        (Scope { under_way: Some([0, 0]), ..again }, true),
        (told("told"), true),
        (Scope { replies: Replies::Shuffled, ..told("told in any order") }, true),
        (Scope { extensions: 2, drops: 1, under_way: Some([3, 0]), ..vanishing("cut off") }, true),
        (Scope { revokes: 1, ..two("revoked from two") }, false),
    ]
}

/// Attempts that compete for fencing tokens. Keys vanish at any moment, and clocks have any rate.
fn race(name: &'static str, numbers: [u8; NODES], hints: Hints) -> Scope {
    Scope {
        attempts: 2,
        fencing: Some(Fencing { numbers, hints }),
        time: Time::Any,
        keys_vanish: true,
        replies: Replies::AtOnce,
        is_cancelled: true,
        ..Scope::new(name, false)
    }
}

/// Clocks behind the nodes' numbers, between them and ahead of them.
const CLOCKS: [[u8; 3]; 8] =
    [[0, 0, 0], [0, 3, 0], [3, 0, 0], [3, 3, 0], [0, 4, 0], [4, 0, 0], [3, 4, 0], [4, 3, 0]];

/// Numbers that are equal, apart, and far apart.
const NUMBERS: [[u8; NODES]; 6] =
    [[1, 1, 1], [1, 1, 2], [1, 2, 2], [1, 1, 3], [1, 2, 3], [1, 3, 3]];

/// One attempt on ordered connections or on a pool, and two that compete: no promise is broken.
#[must_use]
pub fn promises(size: Size, is_ordered: bool) -> Vec<Case> {
    let case = |(scope, is_large)| {
        let limit = if is_large && size == Size::Usual { USUAL } else { usize::MAX };
        Case { scope, limit, expected: None }
    };
    scopes(is_ordered).map(case).to_vec()
}

/// Fencing tokens are unique and in order, whatever is late or lost.
#[must_use]
pub fn tokens(size: Size) -> Vec<Case> {
    let case = |scope| Case { scope, limit: usize::MAX, expected: None };
    let given = |numbers: [u8; NODES], clocks| {
        case(race("two attempts, tokens", numbers, Hints::Given(clocks)))
    };
    let all = NUMBERS.into_iter().flat_map(|it| CLOCKS.map(|clocks| given(it, clocks)));
    if size == Size::Usual {
        return all.collect();
    }
    let loses = |name, hints| Scope { losses: 1, ..race(name, [1, 1, 1], hints) };
    let extended = race("two attempts, extensions", [1, 2, 3], Hints::Given([0; 3]));
    let repeated = race("two attempts, executed twice", [1, 1, 1], Hints::Given([0; 3]));
    let three = race("three attempts, nothing lost", [1, 1, 1], Hints::Given([0; 3]));
    let more = [
        Scope { extensions: 1, ..extended },
        Scope { repeats: 2, ..repeated },
        loses("a node loses its data, hints on arrival", Hints::Arrival),
        loses("a node loses its data, restart guard", Hints::Quarantine),
        Scope { attempts: 3, replies: Replies::Certain, ..three },
    ];
    all.chain(more.map(case)).collect()
}

/// A node that loses its data is no part of the promise: each judge of tokens sees what comes of it.
#[must_use]
pub fn near_misses() -> Vec<Case> {
    let given = Hints::Given([0; 3]);
    [
        ("lost data, no hints", given, UNIQUE),
        ("lost data, no hints", given, IN_TIME),
        ("lost data, hints from before", Hints::Begin, UNIQUE),
        ("lost data, hints from before", Hints::Begin, IN_TENURE),
    ]
    .map(|(name, hints, expected)| {
        let scope = Scope { losses: 1, ..race(name, [1, 1, 1], hints) };
        Case { scope, limit: 1_000_000, expected: Some(expected) }
    })
    .to_vec()
}

/// Keys that no client can prevent (rule C3): each is possible, and lives for one ttl.
#[must_use]
pub fn limits() -> Vec<Case> {
    let case = |scope| Case { scope, limit: 1_000_000, expected: Some(LATE_EFFECT) };
    let given_up =
        Scope { is_strict: true, ..Scope::new("a call is given up at the bound", false) };
    let delivered = Scope { drops: 1, is_delivered_late: true, ..given_up };
    let newer = Scope { is_ordered: true, is_strict: false, reads_new_first: true, ..delivered };
    vec![
        case(given_up),
        case(Scope { name: "a call had reached the node", ..delivered }),
        case(Scope { name: "a node reads the newer connection first", ..newer }),
    ]
}

impl Case {
    /// Explores it.
    #[must_use]
    pub fn run(&self) -> Report {
        let is_short = self.expected.is_some() || self.limit < usize::MAX;
        let order = if is_short { Order::BreadthFirst } else { Order::DepthFirst };
        explore(&self.scope, self.expected, order, self.limit)
    }

    /// Whether a report proves what it should: the violation that is looked for, or none although
    /// attempts have won.
    #[must_use]
    pub fn is_as_expected(&self, report: &Report) -> bool {
        let violated = report.violation.as_ref().map(|(what, _)| *what);
        let winners = if self.scope.is_again { 1 } else { self.scope.attempts };
        let is_real = self.expected.is_some() || report.won == winners;
        violated == self.expected && is_real
    }
}
