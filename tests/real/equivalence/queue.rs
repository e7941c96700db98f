//! Whether it is certain which entries of a wait queue have expired.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use quorate::backend::{Entry, Operation};
use quorate::resource::Key;

use super::node::queue;

/// How long after its last refresh an entry expires, and a queue that no process refreshes.
const ENDS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// The node did the last refresh of each entry somewhere between these two moments.
#[derive(Debug, Default)]
pub(crate) struct Refreshes(HashMap<(Key, Entry), [Instant; 2]>);

impl Refreshes {
    pub(crate) fn note(&mut self, key: &Key, entry: &Entry, from: Instant, to: Instant) {
        self.0.insert((key.clone(), entry.clone()), [from, to]);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether no entry of its queue may expire while the node carries out `call`.
    pub(crate) fn are_certain(&self, call: &Operation, from: Instant, to: Instant) -> bool {
        let Some(queue) = queue(call) else { return true };
        let of_queue = self.0.iter().filter(|((key, _), _)| key == queue);
        of_queue
            .flat_map(|(_, times)| ENDS.map(|end| times.map(|time| time + end)))
            .all(|[earliest, latest]| to < earliest || from > latest)
    }
}
