//! The judge of all holds: one holder at a time, and tokens in the order of the holders.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::clock::Nanos;

/// Locks that processes contend for.
pub const LOCKS: usize = 8;

/// One hold of a lock, as a line of a client process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// Which lock.
    pub lock: usize,
    /// Whether others may read it, too.
    pub reads: bool,
    /// From when its holder had it.
    pub acquired: Nanos,
    /// Until when: the end of its validity or the beginning of the release, whichever was first.
    pub end: Nanos,
    /// Its fencing token, or 0.
    pub token: u64,
    /// How many writes a resource that checks tokens refused, since they came too late.
    pub refused: u32,
    /// How many writes it acknowledged.
    pub written: u32,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lock, reads, acquired, end, token, refused, written } = self;
        let fields = serde_json::json!([lock, reads, acquired, end, token, refused, written]);
        write!(f, "{fields}")
    }
}

impl FromStr for Hold {
    type Err = serde_json::Error;

    fn from_str(line: &str) -> serde_json::Result<Self> {
        let (lock, reads, acquired, end, token, refused, written) = serde_json::from_str(line)?;
        Ok(Self { lock, reads, acquired, end, token, refused, written })
    }
}

/// What the judge found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Holds that began while an earlier one of the lock lasted.
    pub overlaps: usize,
    /// The first of them, described.
    pub example: Option<String>,
    /// Locks that were held.
    pub locks: usize,
    /// Readers that began while another reader of the lock lasted.
    pub together: usize,
    /// Tokens that were given.
    pub tokens: usize,
    /// Tokens of a lock that were given twice.
    pub repeated: usize,
    /// Tokens that were no greater than that of a holder before.
    pub fallen: usize,
}

/// Judges all holds of a run.
pub fn judge(holds: &[Hold]) -> Verdict {
    let mut locks: BTreeMap<usize, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        locks.entry(hold.lock).or_default().push(hold);
    }
    let mut verdict = Verdict { locks: locks.len(), ..Verdict::default() };
    for mut holds in locks.into_values() {
        let tokens = holds.iter().map(|hold| hold.token).filter(|token| *token > 0);
        let distinct: BTreeSet<u64> = tokens.clone().collect();
        verdict.repeated += tokens.clone().count() - distinct.len();
        verdict.tokens += tokens.count();
        // A client that learned of the lock when it was over has never held it.
        holds.retain(|hold| hold.acquired < hold.end);
        holds.sort_by_key(|hold| hold.acquired);
        verdict.judge_overlaps(&holds);
        verdict.judge_order(&holds);
    }
    verdict
}

impl Verdict {
    fn judge_overlaps(&mut self, holds: &[&Hold]) {
        // Of those that read, and of the others.
        let mut longest = [None::<&Hold>; 2];
        for hold in holds {
            for before in longest.into_iter().flatten().filter(|it| hold.acquired < it.end) {
                if hold.reads && before.reads {
                    self.together += 1;
                    continue;
                }
                self.overlaps += 1;
                self.example.get_or_insert_with(|| {
                    let both = before.end.min(hold.end) - hold.acquired;
                    format!("for {} µs: {before:?} and {hold:?}", both / 1_000)
                });
            }
            let longest = &mut longest[usize::from(hold.reads)];
            if longest.is_none_or(|before| hold.end > before.end) {
                *longest = Some(hold);
            }
        }
    }

    /// Of holders that overlap none was before the other, so nothing is said of their tokens.
    fn judge_order(&mut self, holds: &[&Hold]) {
        let mut ended: Vec<&Hold> = holds.to_vec();
        ended.sort_by_key(|hold| hold.end);
        let mut ended = ended.into_iter().peekable();
        let mut greatest = 0;
        for hold in holds {
            while let Some(before) = ended.next_if(|before| before.end <= hold.acquired) {
                greatest = greatest.max(before.token);
            }
            self.fallen += usize::from((1..=greatest).contains(&hold.token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(lock: usize, acquired: u64, end: u64, token: u64) -> Hold {
        Hold { lock, acquired, end, token, ..Hold::default() }
    }

    fn reader(acquired: u64, end: u64) -> Hold {
        Hold { lock: 1, reads: true, acquired, end, ..Hold::default() }
    }

    #[test]
    fn overlaps_and_tokens_that_repeat_or_fall_are_seen() {
        for (holds, overlaps, repeated, fallen) in [
            // One after the other, with rising tokens.
            (&[hold(1, 20, 30, 9), hold(1, 10, 20, 5), hold(2, 15, 25, 5)][..], 0, 0, 0),
            // Even behind a third.
            (&[hold(1, 0, 100, 1), hold(1, 10, 20, 2), hold(1, 30, 40, 3)], 2, 0, 0),
            (&[hold(1, 0, 100, 1), hold(2, 10, 20, 2)], 0, 0, 0),
            // The second one has never held.
            (&[hold(1, 0, 100, 1), hold(1, 50, 40, 2)], 0, 0, 0),
            (&[hold(1, 0, 10, 7), hold(1, 10, 20, 7)], 0, 1, 1),
            (&[hold(1, 0, 10, 7), hold(1, 10, 20, 6), hold(1, 30, 40, 8)], 0, 0, 1),
            // Neither was first.
            (&[hold(1, 0, 10, 7), hold(1, 5, 20, 6)], 1, 0, 0),
            (&[hold(1, 0, 10, 7), hold(2, 10, 20, 7)], 0, 0, 0),
            // Without tokens.
            (&[hold(1, 0, 10, 0), hold(1, 10, 20, 0)], 0, 0, 0),
            // A lock beside the longest of two readers, and a reader beside a lock.
            (&[reader(0, 30), reader(10, 20), hold(1, 20, 40, 0), reader(30, 50)], 2, 0, 0),
        ] {
            let found = judge(holds);
            assert_eq!(found.example.is_some(), overlaps > 0);
            let wrong = (found.overlaps, found.repeated, found.fallen);
            assert_eq!(wrong, (overlaps, repeated, fallen), "{holds:?}");
            let readers = holds.iter().filter(|hold| hold.reads).count();
            assert_eq!(found.together, readers / 2, "{holds:?}");
            for hold in holds {
                assert_eq!(hold.to_string().parse::<Hold>().ok().as_ref(), Some(hold));
            }
        }
    }
}
