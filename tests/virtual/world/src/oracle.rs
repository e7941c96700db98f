//! The judge of a history: one holder at a time, and no client relies on a lock that is over.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use quorate_memory::Sim;

use crate::history::{Event, LockId, What};

mod tokens;

pub(crate) use self::tokens::{Forgetting, judge_order, judge_tokens};

/// Something that a lock must not let happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Which rule it breaks.
    pub(crate) breach: Breach,
    /// Until when it lasted, or when it was seen.
    pub(crate) at: Duration,
    /// The locks that it is about.
    pub(crate) locks: Vec<LockId>,
    /// The same for the reader.
    pub(crate) what: String,
}

/// A rule of the judge, and its opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// Two locks of one resource were valid at the same time.
    Overlap,
    /// A holder relied on a lock that was over, or prolonged it.
    TooLate,
    /// Two attempts had one fencing token.
    SameToken,
    /// A later holder had the lower token.
    WrongOrder(Later),
    /// A token is lower than the hint that its attempt began with.
    UnderHint,
    /// Something else that an observer of the world found wrong.
    Other,
}

impl Violation {
    /// Something that is wrong now.
    pub(crate) fn other(sim: &Sim, what: impl Into<String>) -> Self {
        Self::at(sim.elapsed(), what)
    }

    /// Something that was wrong then.
    pub(crate) fn at(at: Duration, what: impl Into<String>) -> Self {
        Self { breach: Breach::Other, at, locks: Vec::new(), what: what.into() }
    }

    /// Something that is wrong with these locks.
    fn of(breach: Breach, locks: impl Into<Vec<LockId>>, at: Duration, what: String) -> Self {
        Self { breach, at, locks: locks.into(), what }
    }
}

/// How one holder comes after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// Its attempt began after the other had its token.
    Asked,
    /// It could rely on the lock after the other could.
    Held,
    /// On every node that both had, it came after the other.
    Granted,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.6}s", self.what, self.at.as_secs_f64())
    }
}

/// How long a holder could rely on a lock.
#[derive(Clone, Debug)]
struct Tenure {
    lock: LockId,
    client: usize,
    resource: String,
    start: Duration,
    /// The end as the holder knows it, moved by extensions and by giving it up.
    end: Duration,
    /// Until when no other may hold it: the end, and the margin after it unless it was given up before.
    kept: Duration,
}

/// Judges the events of a [`History`](crate::history::History).
///
/// A lock is held from when it was granted until its validity ends or its holder begins to give it
/// up, whichever is first. A lock that ended by time and was not given up keeps out all others for `margin`
/// more (H4). What was never acknowledged is held by no client.
pub(crate) fn judge(events: &[Event], margin: Duration) -> Vec<Violation> {
    let mut tenures: Vec<Tenure> = Vec::new();
    let mut places: HashMap<LockId, usize> = HashMap::new();
    let mut violations = Vec::new();
    for event in events {
        let (at, client) = (event.at, event.client);
        match &event.what {
            What::Granted { lock, resource, until } => {
                places.insert(*lock, tenures.len());
                let resource = resource.clone();
                let (end, kept) = (*until, *until + margin);
                tenures.push(Tenure { lock: *lock, client, resource, start: at, end, kept });
            }
            What::Extended { lock, .. } | What::Relied { lock } | What::Ended { lock } => {
                let Some(tenure) = places.get(lock).and_then(|place| tenures.get_mut(*place))
                else {
                    continue;
                };
                let is_over = at >= tenure.end;
                match &event.what {
                    What::Ended { .. } => {
                        (tenure.end, tenure.kept) = (tenure.end.min(at), tenure.kept.min(at));
                    }
                    _ if is_over => {
                        let end = tenure.end.as_secs_f64();
                        let what = format!("client {client} relies on {lock}, over at {end:.6}s,");
                        violations.push(Violation::of(Breach::TooLate, [*lock], at, what));
                    }
                    What::Extended { until, .. } => {
                        (tenure.end, tenure.kept) = (*until, *until + margin);
                    }
                    _ => {}
                }
            }
            What::Fenced { .. } | What::Taken { .. } | What::Forgot { .. } | What::Note(_) => {}
        }
    }
    violations.extend(overlaps(tenures));
    violations
}

fn overlaps(mut tenures: Vec<Tenure>) -> Vec<Violation> {
    tenures.retain(|tenure| tenure.start < tenure.end);
    tenures.sort_by(|a, b| (&a.resource, a.start).cmp(&(&b.resource, b.start)));
    let mut violations = Vec::new();
    // The tenure that keeps others out longest of those that began earlier, for each resource.
    let mut latest: Option<Tenure> = None;
    for tenure in tenures {
        if let Some(before) = latest.as_ref().filter(|before| before.resource == tenure.resource) {
            if tenure.start < before.kept {
                let what = format!(
                    "two holders of {}: {} of client {}, and {} of client {} from {:.6}s,",
                    tenure.resource,
                    before.lock,
                    before.client,
                    tenure.lock,
                    tenure.client,
                    tenure.start.as_secs_f64(),
                );
                let locks = [before.lock, tenure.lock];
                violations.push(Violation::of(Breach::Overlap, locks, before.kept, what));
            }
            if tenure.kept <= before.kept {
                continue;
            }
        }
        latest = Some(tenure);
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_after_the_other_is_fine() {
        let history = History::new();
        let first = history.granted(at(0), 1, "r", at(10));
        history.relied(at(3), 1, first);
        history.extended(at(5), 1, first, at(15));
        history.ended(at(12), 1, first);
        let second = history.granted(at(12), 2, "r", at(22));
        history.granted(at(12), 3, "other", at(22));
        history.granted(at(22), 1, "r", at(30));
        history.ended(at(40), 2, second);
        assert_eq!(judge(&history.events(), Duration::ZERO), []);
    }

    #[test]
    fn two_at_once_are_seen_even_behind_a_third() {
        let history = History::new();
        let first = history.granted(at(0), 1, "r", at(100));
        let second = history.granted(at(10), 2, "r", at(20));
        let third = history.granted(at(30), 3, "r", at(40));
        let found = judge(&history.events(), Duration::ZERO);
        assert!(found.iter().all(|violation| violation.breach == Breach::Overlap), "{found:?}");
        let pairs: Vec<_> = found.into_iter().map(|violation| violation.locks).collect();
        assert_eq!(pairs, [[first, second], [first, third]]);
    }

    #[test]
    fn h4_the_margin_after_an_end_by_time_keeps_others_out() {
        let history = History::new();
        history.granted(at(0), 1, "r", at(10));
        history.granted(at(11), 2, "r", at(20));
        let given_up = history.granted(at(30), 1, "r", at(40));
        history.ended(at(41), 1, given_up);
        let extended = history.granted(at(41), 2, "r", at(50));
        history.extended(at(49), 2, extended, at(60));
        history.granted(at(61), 1, "r", at(70));
        let overlaps = |margin| judge(&history.events(), at(margin)).len();
        assert_eq!([0, 1, 2].map(overlaps), [0, 0, 2]);
    }

    #[test]
    fn relying_on_what_is_over_is_seen() {
        let history = History::new();
        let lock = history.granted(at(0), 1, "r", at(10));
        history.relied(at(10), 1, lock);
        history.extended(at(11), 1, lock, at(20));
        let given_up = history.granted(at(50), 1, "s", at(60));
        history.ended(at(51), 1, given_up);
        history.relied(at(52), 1, given_up);
        let found = judge(&history.events(), Duration::ZERO);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|violation| violation.breach == Breach::TooLate));
    }
}
