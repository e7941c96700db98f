//! Nodes that stay replicas: `READONLY` is permanent only then, since a failover passes through it
//! (A4).

use std::time::{Duration, Instant};

use crate::error::{Answer, QuorumFailure};
use crate::seam::backend::BackendErrorKind;

/// How far two rounds are apart in which a node that stays a replica says so.
const LASTING: Duration = Duration::from_secs(1);

/// Since when each node has answered `READONLY` in every round of a request.
#[derive(Debug, Default)]
pub(super) struct Replicas(Vec<Option<Instant>>);

impl Replicas {
    /// Notes what the nodes answered in the round that was lost at `now`. The errors of nodes that
    /// stay replicas become permanent.
    pub(super) fn note(&mut self, failure: QuorumFailure, now: Instant) -> QuorumFailure {
        self.0.resize(failure.nodes().len(), None);
        let nodes = failure.nodes().iter().cloned().zip(&mut self.0).map(|(mut node, since)| {
            match node.answer {
                Answer::Failed(error) if error.kind() == BackendErrorKind::ReadOnly => {
                    let lasts = now.saturating_duration_since(*since.get_or_insert(now));
                    let error = if lasts >= LASTING { error.of_replica() } else { error };
                    node.answer = Answer::Failed(error);
                }
                // The round was decided without this node.
                Answer::NoReply { is_over: false } | Answer::NotAsked => {}
                _ => *since = None,
            }
            node
        });
        let nodes: Vec<_> = nodes.collect();
        QuorumFailure::new(nodes, failure.waited())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeAnswer;
    use crate::seam::backend::BackendError;

    /// A letter a node: `r` replied READONLY, `g` granted, `-` has not replied yet, `x` did not
    /// reply.
    fn round(answers: &str) -> QuorumFailure {
        let nodes = answers.chars().map(|letter| {
            let read_only = BackendError::new(BackendErrorKind::ReadOnly, "READONLY");
            NodeAnswer::new(
                "node",
                match letter {
                    'r' => Answer::Failed(read_only),
                    'g' => Answer::Granted,
                    letter => Answer::NoReply { is_over: letter == 'x' },
                },
            )
        });
        QuorumFailure::new(nodes.collect::<Vec<_>>(), Duration::ZERO)
    }

    #[test]
    fn a_replica_that_stays_one_is_permanent_and_a_failover_is_not() {
        let start = Instant::now();
        for (rounds, expected) in [
            (&[("r", 0)][..], false),
            (&[("r", 0), ("r", 999)], false),
            (&[("r", 0), ("r", 1000)], true),
            (&[("r", 0), ("r", 500), ("r", 1000)], true),
            (&[("r", 0), ("-", 500), ("r", 1000)], true),
            (&[("r", 0), ("g", 500), ("r", 1000)], false),
            (&[("r", 0), ("x", 500), ("r", 1000)], false),
            (&[("rgg", 0), ("rgg", 1000)], false),
            (&[("rrg", 0), ("rrg", 1000)], true),
            (&[("rrg", 0), ("rgr", 1000)], false),
            (&[("rrr", 0), ("rr-", 500), ("-rr", 1000)], true),
        ] {
            let mut replicas = Replicas::default();
            let mut last = None;
            for (answers, after) in rounds {
                let now = start + Duration::from_millis(*after);
                last = Some(replicas.note(round(answers), now));
            }
            assert_eq!(last.map(|last| last.is_permanent()), Some(expected), "{rounds:?}");
        }
    }
}
