//! The judge of fencing tokens: no two alike, and the later holder has the greater one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use quorate_core::FencingToken;
use quorate_core::algorithm::quorum::NodeCount;

use super::{Breach, Later, Violation};
use crate::history::{AttemptId, Event, Fenced, LockId, What};

/// What is promised of tokens where nodes lose their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgetting {
    /// Nodes go on as if nothing had happened. What they knew in common is lost if so many forget
    /// that two majorities may have no other node in common; from then on tokens go on from the
    /// clocks of clients.
    Excused,
    /// Nodes that forgot are kept out for as long as it takes, so that it is no excuse.
    Guarded,
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
    nodes: NodeCount,
    forgetting: Forgetting,
) -> Vec<Violation> {
    let record = Record::of(events);
    let mut violations = Vec::new();
    for (resource, had) in &record.had {
        for (place, second) in had.iter().enumerate() {
            if second.token().get() < second.with.hint {
                let what = format!("{second} is under its hint {}", second.with.hint);
                violations.push(Violation::of(Breach::UnderHint, [second.lock], second.at, what));
            }
            for first in &had[..place] {
                let is_excused = forgetting == Forgetting::Excused
                    && record.forgot_between(first, second) >= 2 * nodes.quorum() - nodes.get();
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
            if two[0].at < two[1].at && two[0].token() > two[1].token() {
                violations.push(wrong_order(resource, &two[0], &two[1], Later::Held));
            }
        }
    }
    violations
}

/// A token that a client had.
#[derive(Clone, Debug)]
struct Had {
    lock: LockId,
    client: usize,
    at: Duration,
    with: Fenced,
}

impl Had {
    const fn token(&self) -> FencingToken {
        self.with.token
    }
}

impl fmt::Display for Had {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} of {} of client {}", self.token(), self.lock, self.client)
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
                What::Fenced { lock, with } => {
                    let Some(resource) = resources.get(lock) else { continue };
                    let had = record.had.entry(resource).or_default();
                    let is_same = |other: &Had| {
                        (other.with.attempt, other.token()) == (with.attempt, with.token)
                    };
                    // A client that adopts a lock has it from one that had it before.
                    if !had.iter().any(is_same) {
                        let (at, client) = (event.at, event.client);
                        had.push(Had { lock: *lock, client, at, with: *with });
                    }
                }
                What::Taken { node, by, resources } => {
                    for resource in resources {
                        let taken = record.taken.entry((resource, *by)).or_default();
                        taken.entry(node).or_insert((moment, moment)).1 = moment;
                    }
                }
                What::Forgot { node } => record.forgot.push((event.at, node)),
                _ => {}
            }
        }
        record
    }

    /// How many nodes forgot something from the earlier beginning to the later token.
    fn forgot_between(&self, first: &Had, second: &Had) -> usize {
        let from = first.with.asked.min(second.with.asked);
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
        let asked_later = first.at < second.with.asked;
        if asked_later && second.token() <= first.token() {
            let is_known = second.with.hint > first.token().get();
            return (is_known || !is_excused)
                .then(|| wrong_order(resource, first, second, Later::Asked));
        }
        if is_excused {
            return None;
        }
        if first.token() == second.token() {
            let what = format!("{resource}: {first} was given twice, also as {second}");
            let locks = [first.lock, second.lock];
            return Some(Violation::of(Breach::SameToken, locks, second.at, what));
        }
        let (low, high) =
            if first.token() < second.token() { (first, second) } else { (second, first) };
        let taken = |had: &Had| self.taken.get(&(resource, had.with.attempt));
        let (before, after) = (taken(low)?, taken(high)?);
        let came_after = |(node, (begin, _)): (&&str, &(usize, usize))| {
            after.get(*node).is_some_and(|(_, last)| begin < last)
        };
        let in_order = before.iter().any(came_after);
        (!in_order).then(|| wrong_order(resource, high, low, Later::Granted))
    }
}

fn wrong_order(resource: &str, first: &Had, second: &Had, later: Later) -> Violation {
    let came = match later {
        Later::Asked => "asked later",
        Later::Held => "held later",
        Later::Granted => "had every node later",
    };
    let what = format!("{resource}: {second} is lower than {first}, though it {came},");
    let (locks, at) = ([first.lock, second.lock], first.at.max(second.at));
    Violation::of(Breach::WrongOrder(later), locks, at, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn nodes() -> NodeCount {
        NodeCount::new(3).unwrap()
    }

    /// Client `client` asked at one moment and had its token at another.
    fn had(history: &History, client: usize, asked: u64, had: u64, token: u64) -> LockId {
        with_hint(history, client, (asked, had), token, 0)
    }

    fn with_hint(
        history: &History,
        client: usize,
        (asked, had): (u64, u64),
        token: u64,
        hint: u64,
    ) -> LockId {
        let lock = history.granted(at(had), client, "r", at(had + 10));
        let (token, attempt) = (FencingToken::new(token).unwrap(), id(client));
        history.fenced(at(had), client, lock, Fenced { token, attempt, asked: at(asked), hint });
        lock
    }

    fn id(client: usize) -> AttemptId {
        AttemptId::of(client.to_string())
    }

    fn judged(history: &History) -> Vec<Violation> {
        judge_tokens(&history.events(), nodes(), Forgetting::Excused)
    }

    fn later(history: &History) -> Vec<Later> {
        let later = |violation: &Violation| match violation.breach {
            Breach::WrongOrder(later) => later,
            _ => panic!("{violation}"),
        };
        judged(history).iter().map(later).collect()
    }

    #[test]
    fn greater_tokens_of_later_holders_are_fine_and_so_is_one_that_was_handed_over() {
        let history = History::new();
        had(&history, 1, 0, 1, 5);
        let lock = history.granted(at(3), 2, "r", at(13));
        let token = FencingToken::new(5).unwrap();
        history.fenced(at(3), 2, lock, Fenced { token, attempt: id(1), asked: at(0), hint: 0 });
        had(&history, 3, 4, 6, 6);
        // It asked before the other had its token.
        had(&history, 4, 5, 7, 9);
        had(&history, 5, 5, 8, 8);
        assert_eq!(judged(&history), []);
        let late = |found: &Violation| found.breach == Breach::WrongOrder(Later::Held);
        assert!(judge_order(&history.events()).iter().all(late));
        assert_eq!(judge_order(&history.events()).len(), 1, "8 was held after 9");
    }

    #[test]
    fn a_token_that_was_given_twice_is_seen() {
        let history = History::new();
        had(&history, 1, 0, 2, 5);
        had(&history, 2, 1, 3, 5);
        let found = judged(&history);
        assert!(found.len() == 1 && found[0].breach == Breach::SameToken, "{found:?}");
    }

    #[test]
    fn a_lower_token_that_was_asked_for_later_is_seen() {
        let history = History::new();
        had(&history, 1, 0, 2, 5);
        had(&history, 2, 2, 4, 4);
        assert_eq!(later(&history), [], "at the very moment is not after it");
        had(&history, 3, 3, 4, 5);
        assert_eq!(later(&history), [Later::Asked]);
    }

    #[test]
    fn a_token_under_its_hint_is_seen() {
        let history = History::new();
        with_hint(&history, 1, (0, 1), 99, 100);
        let found = judged(&history);
        assert!(found.len() == 1 && found[0].breach == Breach::UnderHint, "{found:?}");
    }

    #[test]
    fn a_greater_token_whose_nodes_were_all_taken_over_is_seen() {
        let history = History::new();
        let takes = |node, client| history.taken(at(0), node, id(client), vec!["r".to_owned()]);
        takes("a", 1);
        takes("a", 2);
        takes("b", 2);
        takes("c", 1);
        had(&history, 2, 0, 5, 4);
        had(&history, 1, 0, 6, 9);
        assert_eq!(later(&history), [Later::Granted]);
        // It came to b after the other: that may have been the node.
        takes("b", 1);
        assert_eq!(judged(&history), []);
    }

    #[test]
    fn what_nodes_forgot_excuses_all_but_a_token_under_a_right_clock() {
        let (history, guarded) = (History::new(), Forgetting::Guarded);
        with_hint(&history, 1, (0, 1), 50, 50);
        history.forgot(at(2), "a");
        with_hint(&history, 2, (3, 4), 40, 40);
        assert_eq!(judged(&history), [], "its clock is behind");
        assert_eq!(judge_tokens(&history.events(), nodes(), guarded).len(), 1);
        with_hint(&history, 3, (3, 5), 49, 60);
        let found = judged(&history);
        assert_eq!(found.len(), 2, "its clock is right: {found:?}");
        // After that nothing was forgotten.
        let since = History::new();
        since.forgot(at(0), "a");
        had(&since, 1, 1, 2, 5);
        had(&since, 2, 3, 4, 5);
        assert_eq!(later(&since), [Later::Asked]);
    }

    #[test]
    fn of_four_nodes_one_may_forget_without_an_excuse() {
        let history = History::new();
        had(&history, 1, 0, 1, 5);
        history.forgot(at(2), "a");
        had(&history, 2, 3, 4, 5);
        let of = |count| {
            let nodes = NodeCount::new(count).unwrap();
            judge_tokens(&history.events(), nodes, Forgetting::Excused).len()
        };
        assert_eq!([of(3), of(4), of(5), of(6)], [0, 1, 0, 1]);
    }
}
