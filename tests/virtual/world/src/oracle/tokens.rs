//! The judge of fencing tokens: no two alike, and the later holder has the greater one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use quorate_core::FencingToken;

use super::{Breach, Violation};
use crate::history::{AttemptId, Begun, Event, LockId, What};

/// What is promised of tokens where nodes lose their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgetting {
    /// Nodes go on as if nothing had happened. What they knew in common is lost if so many forget
    /// that two majorities may have no other node in common; from then on tokens go on from the
    /// clocks of clients.
    Excused,
    Guarded, // Nodes that forgot are kept out for as long as it takes, so that it is no excuse.
}

/// Judges the fencing tokens of a [`History`](crate::history::History) of so many nodes.
///
/// Promised whatever becomes of keys, messages and clocks: no two attempts have one token; an
/// attempt that began after another had its token has a greater one; and of two, the one with the
/// greater token had a common node after the other. The last is judged by what the nodes
/// [wrote down](crate::history::History::observe), if they did.
///
/// Where nodes forgot, and that is [excused](Forgetting::Excused), two attempts that may have no
/// node in common which remembers both owe each other nothing; except that a token is never lower
/// than the hint of its own attempt, which is a greater one for a later attempt with a right clock.
pub(crate) fn judge_tokens(
    events: &[Event],
    nodes: usize,
    forgetting: Forgetting,
) -> Vec<Violation> {
    let record = Record::of(events);
    let mut violations = Vec::new();
    for (resource, had) in &record.had {
        for (place, second) in had.iter().enumerate() {
            if second.token.get() < second.begun.hint {
                let what = format!("{second} is under its hint {}", second.begun.hint);
                let (breach, locks) = (Breach::UnderHint, vec![second.lock]);
                violations.push(Violation { breach, locks, at: second.at, what });
            }
            for first in &had[..place] {
                let is_excused = forgetting == Forgetting::Excused
                    && record.forgot_between(first, second) >= 2 * (nodes / 2 + 1) - nodes;
                violations.extend(record.compare(resource, first, second, is_excused));
            }
        }
    }
    violations
}

/// Judges whether the tokens of a resource rise with the moments since which they could be relied
/// on: where there is one holder at a time.
pub(crate) fn judge_order(events: &[Event]) -> Vec<Violation> {
    let record = Record::of(events);
    let mut violations = Vec::new();
    for (resource, had) in &record.had {
        // In the order in which they were granted.
        for two in had.windows(2) {
            if two[0].at < two[1].at && two[0].token > two[1].token {
                violations.push(wrong_order(resource, &two[0], &two[1], Breach::HeldLater));
            }
        }
    }
    violations
}

#[derive(Clone, Debug)]
struct Had {
    lock: LockId,
    client: usize,
    at: Duration,
    token: FencingToken,
    begun: Begun,
}

impl fmt::Display for Had {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} of {:?} of client {}", self.token, self.lock, self.client)
    }
}

/// The first and the last moment, in the order of the history, at which an attempt took a node.
type Taken<'a> = BTreeMap<&'a str, (usize, usize)>;

#[derive(Default)]
struct Record<'a> {
    /// By resource, the first lock of each attempt and token, in the order in which they were had.
    had: BTreeMap<&'a str, Vec<Had>>,
    taken: HashMap<(&'a str, AttemptId), Taken<'a>>,
    forgot: Vec<(Duration, &'a str)>,
}

impl<'a> Record<'a> {
    fn of(events: &'a [Event]) -> Self {
        let mut record = Self::default();
        let mut resources: HashMap<LockId, &str> = HashMap::new();
        for (moment, event) in events.iter().enumerate() {
            match &event.what {
                What::Granted { lock, resource, .. } => {
                    resources.insert(*lock, resource);
                }
                What::Fenced(lock, token, begun) => {
                    let Some(resource) = resources.get(lock) else { continue };
                    let had = record.had.entry(resource).or_default();
                    let same = (begun.attempt, *token);
                    // A client that adopts a lock has it from one that had it before.
                    if !had.iter().any(|other| (other.begun.attempt, other.token) == same) {
                        let (lock, at, client) = (*lock, event.at, event.client);
                        had.push(Had { lock, client, at, token: *token, begun: *begun });
                    }
                }
                What::Taken { node, by, resources } => {
                    for resource in resources {
                        let taken = record.taken.entry((resource, *by)).or_default();
                        taken.entry(node).or_insert((moment, moment)).1 = moment;
                    }
                }
                What::Forgot(node) => record.forgot.push((event.at, node)),
                _ => {}
            }
        }
        record
    }

    /// How many nodes forgot something from the earlier beginning to the later token.
    fn forgot_between(&self, first: &Had, second: &Had) -> usize {
        let from = first.begun.at.min(second.begun.at);
        let until = first.at.max(second.at);
        let meanwhile = self.forgot.iter().filter(|(at, _)| (from..=until).contains(at));
        let mut nodes: Vec<&str> = meanwhile.map(|(_, node)| *node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    /// What is wrong between two, of which the second had its token after the first.
    fn compare(
        &self,
        resource: &str,
        first: &Had,
        second: &Had,
        is_excused: bool,
    ) -> Option<Violation> {
        let asked_later = first.at < second.begun.at;
        if asked_later && second.token <= first.token {
            let is_known = second.begun.hint > first.token.get();
            return (is_known || !is_excused)
                .then(|| wrong_order(resource, first, second, Breach::AskedLater));
        }
        if is_excused {
            return None;
        }
        if first.token == second.token {
            let what = format!("{resource}: {first} was given twice, also as {second}");
            let (locks, at) = (vec![first.lock, second.lock], second.at);
            return Some(Violation { breach: Breach::SameToken, locks, at, what });
        }
        let (low, high) =
            if first.token < second.token { (first, second) } else { (second, first) };
        let taken = |had: &Had| self.taken.get(&(resource, had.begun.attempt));
        let (before, after) = (taken(low)?, taken(high)?);
        let came_after = |(node, (begin, _)): (&&str, &(usize, usize))| {
            after.get(*node).is_some_and(|(_, last)| begin < last)
        };
        let in_order = before.iter().any(came_after);
        (!in_order).then(|| wrong_order(resource, high, low, Breach::GrantedLater))
    }
}

fn wrong_order(resource: &str, first: &Had, second: &Had, breach: Breach) -> Violation {
    let came = match breach {
        Breach::AskedLater => "asked later",
        Breach::HeldLater => "held later",
        _ => "had every node later",
    };
    let what = format!("{resource}: {second} is lower than {first}, though it {came},");
    let (locks, at) = (vec![first.lock, second.lock], first.at.max(second.at));
    Violation { breach, locks, at, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;

    const AT: fn(u64) -> Duration = Duration::from_secs;

    /// A client, when it asked, when it had its token, the token, and the hint. Client 12 adopts from client 2.
    type Had = (usize, u64, u64, u64, u64);

    /// When node *a* forgets, the node that the attempt of a client takes, and what clients had.
    fn events(forgets: Option<u64>, takes: &[(&str, usize)], had: &[Had]) -> Vec<Event> {
        let history = History::default();
        let id = |client: usize| AttemptId::of(client.to_string());
        for (node, client) in takes {
            let (node, resources) = ((*node).to_owned(), vec!["r".to_owned()]);
            history.add(AT(0), 0, What::Taken { node, by: id(*client), resources });
        }
        forgets.into_iter().for_each(|at| history.add(AT(at), 0, What::Forgot("a".to_owned())));
        for &(client, asked, had, token, hint) in had {
            let lock = history.granted(AT(had), client, "r", AT(had + 10), false);
            let begun = Begun { attempt: id(client % 10), at: AT(asked), hint };
            let token = FencingToken::new(token).unwrap();
            history.add(AT(had), client, What::Fenced(lock, token, begun));
        }
        history.events()
    }

    fn judged(nodes: usize, events: &[Event], forgetting: Forgetting) -> Vec<Breach> {
        let found = judge_tokens(events, nodes, forgetting);
        found.into_iter().map(|violation| violation.breach).collect()
    }

    #[test]
    fn each_breach_is_seen_and_nothing_else() {
        // Client 4 asked before client 3 had its token.
        let rises: &[Had] =
            &[(2, 0, 1, 5, 0), (12, 0, 3, 5, 0), (3, 4, 6, 6, 0), (4, 5, 7, 9, 0), (5, 5, 8, 8, 0)];
        let overtaken: &[Had] = &[(2, 0, 5, 4, 0), (1, 0, 6, 9, 0)];
        let taken: &[_] = &[("a", 1), ("a", 2), ("b", 2), ("c", 1), ("b", 1)];
        for (case, takes, had, expected) in [
            ("tokens that rise, and one that was adopted", &taken[..0], rises, &[][..]),
            ("given twice", &[], &[(1, 0, 2, 5, 0), (2, 1, 3, 5, 0)], &[Breach::SameToken]),
            ("the very moment is not later", &[], &[(1, 0, 2, 5, 0), (2, 2, 4, 4, 0)], &[]),
            ("asked later", &[], &[(1, 0, 2, 5, 0), (3, 3, 4, 5, 0)], &[Breach::AskedLater]),
            ("under its hint", &[], &[(1, 0, 1, 99, 100)], &[Breach::UnderHint]),
            ("all nodes taken over", &taken[..4], overtaken, &[Breach::GrantedLater]),
            // It came to b after the other: that may have been the node.
            ("one node taken over later", taken, overtaken, &[]),
        ] {
            let events = events(None, takes, had);
            assert_eq!(judged(3, &events, Forgetting::Excused), expected, "{case}");
        }
        let held = judge_order(&events(None, &[], rises));
        assert!(held.len() == 1 && held[0].breach == Breach::HeldLater, "8 was held after 9");
    }

    #[test]
    fn what_nodes_forgot_excuses_all_but_a_token_under_a_right_clock() {
        let had: [Had; 3] = [(1, 0, 1, 50, 50), (2, 3, 4, 40, 40), (3, 3, 5, 49, 60)];
        let (behind, right) = (events(Some(2), &[], &had[..2]), events(Some(2), &[], &had));
        assert_eq!(judged(3, &behind, Forgetting::Excused), [], "its clock is behind");
        assert_eq!(judged(3, &behind, Forgetting::Guarded).len(), 1);
        assert_eq!(judged(3, &right, Forgetting::Excused).len(), 2, "its clock is right");
        // After that nothing was forgotten.
        let since = events(Some(0), &[], &[(1, 1, 2, 5, 0), (2, 3, 4, 5, 0)]);
        assert_eq!(judged(3, &since, Forgetting::Excused), [Breach::AskedLater]);
        // Of four nodes one may forget without an excuse.
        let one = events(Some(2), &[], &[(1, 0, 1, 5, 0), (2, 3, 4, 5, 0)]);
        let counts = [3, 4, 5, 6].map(|nodes| judged(nodes, &one, Forgetting::Excused).len());
        assert_eq!(counts, [0, 1, 0, 1]);
    }
}
