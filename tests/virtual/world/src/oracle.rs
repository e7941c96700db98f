//! The judge of a history: one holder at a time, and no client relies on a lock that is over.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::history::{Event, LockId, What};

mod tokens;

pub(crate) use self::tokens::{Forgetting, judge_order, judge_tokens};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) breach: Breach,
    pub(crate) at: Duration, // Until when it lasted, or when it was seen.
    pub(crate) locks: Vec<LockId>,
    pub(crate) what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    Overlap,      // Two locks of one resource were valid at the same time.
    TooLate,      // A holder relied on a lock that was over, or prolonged it.
    SameToken,    // Two attempts had one fencing token.
    AskedLater, // A later holder had the lower token: its attempt began after the other had its token.
    HeldLater,  // The same: it could rely on the lock after the other could.
    GrantedLater, // The same: on every node that both had, it came after the other.
    UnderHint,  // A token is lower than the hint that its attempt began with.
    Other,
}

impl Violation {
    pub(crate) fn other(at: Duration, what: impl Into<String>) -> Self {
        Self { breach: Breach::Other, at, locks: Vec::new(), what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.6}s", self.what, self.at.as_secs_f64())
    }
}

#[derive(Clone, Debug)]
struct Tenure {
    lock: LockId,
    client: usize,
    resource: String,
    start: Duration,
    end: Duration, // The end as the holder knows it, moved by extensions and by giving it up.
    /// Until when no other may hold it: the end, and the margin after it unless it was given up before.
    kept: Duration,
    reads: bool,
}

/// Judges the events of a [`History`](crate::history::History).
///
/// A lock is held from when it was granted until its validity ends or its holder begins to give it
/// up, whichever is first. A lock that ended by time and was not given up keeps out all others for `margin`
/// more (H4). What was never acknowledged is held by no client. Returns how many readers met another
/// one, too.
pub(crate) fn judge(events: &[Event], margin: Duration) -> (Vec<Violation>, usize) {
    let mut tenures: Vec<Tenure> = Vec::new();
    let mut places: HashMap<LockId, usize> = HashMap::new();
    let mut violations = Vec::new();
    for Event { at, client, what } in events {
        let (at, client) = (*at, *client);
        let lock = match what {
            What::Granted { lock, resource, until, reads } => {
                places.insert(*lock, tenures.len());
                let (end, kept, resource) = (*until, *until + margin, resource.clone());
                let (lock, reads) = (*lock, *reads);
                tenures.push(Tenure { lock, client, resource, start: at, end, kept, reads });
                continue;
            }
            What::Extended(lock, _) | What::Relied(lock) | What::Ended(lock) => lock,
            _ => continue,
        };
        let Some(tenure) = places.get(lock).map(|place| &mut tenures[*place]) else { continue };
        match what {
            What::Ended(_) => {
                (tenure.end, tenure.kept) = (tenure.end.min(at), tenure.kept.min(at));
            }
            _ if at >= tenure.end => {
                let end = tenure.end.as_secs_f64();
                let what = format!("client {client} relies on {lock:?}, over at {end:.6}s,");
                let locks = vec![*lock];
                violations.push(Violation { breach: Breach::TooLate, at, locks, what });
            }
            What::Extended(_, until) => (tenure.end, tenure.kept) = (*until, *until + margin),
            _ => {}
        }
    }
    let (overlaps, together) = overlaps(tenures);
    violations.extend(overlaps);
    (violations, together)
}

fn overlaps(mut tenures: Vec<Tenure>) -> (Vec<Violation>, usize) {
    tenures.retain(|tenure| tenure.start < tenure.end);
    tenures.sort_by(|a, b| (&a.resource, a.start).cmp(&(&b.resource, b.start)));
    let (mut violations, mut together) = (Vec::new(), 0);
    // The tenure that keeps others out longest of all earlier ones, for each resource: of writers, and of readers.
    let mut latest: [Option<Tenure>; 2] = [None, None];
    for tenure in tenures {
        for before in latest.iter().flatten().filter(|before| before.resource == tenure.resource) {
            let is_shared = before.reads && tenure.reads;
            together += usize::from(is_shared && tenure.start < before.end);
            if tenure.start < before.kept && !is_shared {
                let what = format!(
                    "two holders of {}: {:?} of client {}, and {:?} of client {} from {:.6}s,",
                    tenure.resource,
                    before.lock,
                    before.client,
                    tenure.lock,
                    tenure.client,
                    tenure.start.as_secs_f64(),
                );
                let (locks, at) = (vec![before.lock, tenure.lock], before.kept);
                violations.push(Violation { breach: Breach::Overlap, at, locks, what });
            }
        }
        let same = &mut latest[usize::from(tenure.reads)];
        let outlives =
            |before: &Tenure| before.resource == tenure.resource && before.kept >= tenure.kept;
        if !same.as_ref().is_some_and(outlives) {
            *same = Some(tenure);
        }
    }
    (violations, together)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;

    /// A lock on a resource, from when until when, and what became of it.
    type Line = (&'static str, u64, u64, &'static [(char, u64, u64)]);

    /// How often two held one resource, and how often a holder was late.
    fn judged(margin: u64, lines: &[Line]) -> [usize; 2] {
        let (history, at) = (History::default(), Duration::from_secs);
        for (resource, from, until, then) in lines {
            let lock = history.granted(at(*from), 1, *resource, at(*until), false);
            for (what, when, until) in *then {
                let what = match what {
                    'x' => What::Extended(lock, at(*until)),
                    'r' => What::Relied(lock),
                    _ => What::Ended(lock),
                };
                history.add(at(*when), 1, what);
            }
        }
        let (found, _) = judge(&history.events(), at(margin));
        [Breach::Overlap, Breach::TooLate]
            .map(|breach| found.iter().filter(|violation| violation.breach == breach).count())
    }

    #[test]
    fn two_holders_and_late_ones_are_seen() {
        let after_each_other: &[Line] = &[
            ("r", 0, 10, &[('r', 3, 0), ('x', 5, 15), ('e', 12, 0)]),
            ("r", 12, 22, &[('e', 40, 0)]),
            ("s", 12, 22, &[]),
            ("r", 22, 30, &[]),
        ];
        assert_eq!(judged(0, after_each_other), [0, 0]);
        let behind_a_third: &[Line] = &[("r", 0, 100, &[]), ("r", 10, 20, &[]), ("r", 30, 40, &[])];
        assert_eq!(judged(0, behind_a_third), [2, 0]);
        // The first relies on it at its end and extends it, the second relies on it after giving it up.
        // A writer behind a reader that outlives another one, and a reader behind a writer.
        let shared: &[Line] = &[("r", 0, 30, &[]), ("r", 5, 10, &[])];
        let history = History::default();
        let at = Duration::from_secs;
        for (from, until, reads) in
            [(0, 30, true), (5, 10, true), (20, 40, false), (35, 50, true), (36, 45, true)]
        {
            history.granted(at(from), 1, "r", at(until), reads);
        }
        let (found, together) = judge(&history.events(), Duration::ZERO);
        assert_eq!((found.len(), together, judged(0, shared)), (3, 2, [1, 0]), "{found:?}");
        let late: &[Line] = &[
            ("r", 0, 10, &[('r', 10, 0), ('x', 11, 20)]),
            ("s", 50, 60, &[('e', 51, 0), ('r', 52, 0)]),
        ];
        assert_eq!(judged(0, late), [0, 3]);
    }

    #[test]
    fn h4_the_margin_after_an_end_by_time_keeps_others_out() {
        let lines: &[Line] = &[
            ("r", 0, 10, &[]),
            ("r", 11, 20, &[]),
            ("r", 30, 40, &[('e', 41, 0)]),
            ("r", 41, 50, &[('x', 49, 60)]),
            ("r", 61, 70, &[]),
        ];
        assert_eq!([0, 1, 2].map(|margin| judged(margin, lines)[0]), [0, 0, 2]);
    }
}
