//! A lost round of a request that waits for no holder: a holder is in the way, or the votes were
//! split (O8).
//!
//! Of contenders that ask at the same moment it can be that no one has a quorum. The one that the
//! most nodes granted asks again at once, the others after a random pause that doubles: so one of
//! them wins, mostly in the second round.

use std::cmp::Reverse;
use std::mem;
use std::time::Duration;

use super::lost::error_of;
use super::{MOST_ROUNDS, Rounds};
use crate::algorithm::attempt::Loss;
use crate::algorithm::backoff::scale;
use crate::algorithm::lease::saturating_add;
use crate::error::{Answer, NodeAnswer, QuorumFailure};
use crate::resource::Token;
use crate::seam::backend::Holder;

const LEAST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Rounds<'_> {
    /// Whether the lost round of a request that waits for no holder was a split vote. Then the
    /// pause before the next round is over (O8).
    pub(in super::super) async fn try_again_later(&mut self) -> bool {
        let cluster = &self.manager.cluster;
        let (Some(attempt), Some(last)) = (&self.attempt, &mut self.last) else { return false };
        if matches!(last.loss, Loss::Expired | Loss::NoToken) {
            return false;
        }
        let own = attempt.claim.token();
        let verdict = |failure: &QuorumFailure| verdict(own, failure, self.node_timeout);
        if matches!(verdict(&attempt.answers()), Split::First | Split::Later) {
            // The error waits for the undo no longer than once (C8).
            attempt.undone(mem::take(&mut last.undo)).await;
        }
        let failure = attempt.answers();
        let split = verdict(&failure);
        if split == Split::No {
            return false;
        }
        last.error = error_of(cluster, Loss::Held, failure);
        if split == Split::Held || self.lost >= MOST_ROUNDS || last.error.is_permanent() {
            return false;
        }
        let pause = match split {
            Split::Later => pause_after(last.took, self.lost, cluster.random()),
            _ => Duration::ZERO,
        };
        let next_at = saturating_add(cluster.now(), pause);
        if self.deadline.is_some_and(|deadline| next_at >= deadline) {
            return false;
        }
        if !pause.is_zero() {
            cluster.attempts.unless_closed(cluster.runtime.sleep_until(next_at)).await;
        }
        true
    }
}

/// What a lost round was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// More nodes failed than a quorum can spare, or none refused.
    No,
    /// A quorum named one other token, or refused without a name.
    Held,
    /// Split, and no other contender was granted more.
    First,
    /// Split, and another contender was granted more.
    Later,
}

/// What the round of `own` was, by all answers to it.
///
/// A token that a quorum named had a quorum of grants. A contender is first by the number of nodes,
/// then by the lowest token. A node without a reply has failed only after a node timeout.
fn verdict(own: &Token, failure: &QuorumFailure, node_timeout: Duration) -> Split {
    let quorum = failure.nodes().len() / 2 + 1;
    let is_silence = |node: &&NodeAnswer| !matches!(node.answer, Answer::Failed(_));
    let is_short = failure.waited() < node_timeout;
    let failed = failure.failed_nodes().filter(|node| !(is_short && is_silence(node)));
    if failed.count() > failure.nodes().len() - quorum {
        return Split::No;
    }
    let unnamed = failure.refused() - failure.holders().count();
    let count = |holder: &Holder| failure.holders().filter(|other| *other == holder).count();
    let most = failure.holders().map(|holder| (count(holder), Reverse(holder.value()))).max();
    match most {
        _ if unnamed >= quorum => Split::Held,
        Some((named, _)) if named >= quorum => Split::Held,
        None if unnamed == 0 => Split::No,
        Some(most) if most > (failure.granted(), Reverse(own.as_bytes())) => Split::Later,
        None => Split::Later,
        Some(_) => Split::First,
    }
}

/// How long to wait after round number `rounds`, for all contenders but the first.
fn pause_after(took: Duration, rounds: u32, random: u64) -> Duration {
    let once = took.max(LEAST_PAUSE).saturating_mul(1 << rounds.min(MOST_ROUNDS).saturating_sub(1));
    once.saturating_add(scale(once, random)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seam::backend::{BackendError, BackendErrorKind};

    /// A letter for each node: `g` granted, `u` refused without a name, `x` failed, `-` has not
    /// replied. A digit refused, and named the token of forty such digits. The own token has the
    /// digit 5.
    #[test]
    fn o8_a_lost_round_is_held_or_split_or_too_few_nodes_answered() {
        let own = Token::parse("5".repeat(40).as_bytes()).unwrap();
        for (answers, expected) in [
            ("g77", Split::Held),
            ("777--", Split::Held),
            ("guu", Split::Held),
            // The most grants are first, then the lowest token.
            ("gg77x", Split::First),
            ("gg33x", Split::Later),
            ("g7x", Split::First),
            ("g3x", Split::Later),
            ("g37", Split::Later),
            ("g3377", Split::Later),
            ("33g7-", Split::Later),
            ("gux", Split::Later),
            ("g7-", Split::First),
            ("gg7xx", Split::First),
            // Too few nodes are left.
            ("7xx", Split::No),
            ("g--", Split::No),
            ("gxx", Split::No),
            ("ggxxx", Split::No),
        ] {
            let nodes = answers.chars().map(|letter| {
                let answer = match letter {
                    'g' => Answer::Granted,
                    'u' => Answer::Refused { holder: None },
                    'x' => Answer::Failed(BackendError::new(BackendErrorKind::Loading, "LOADING")),
                    '-' => Answer::NoReply { is_over: false },
                    digit => {
                        let value = digit.to_string().repeat(40).into_bytes();
                        Answer::Refused { holder: Some(Holder::new(value)) }
                    }
                };
                NodeAnswer::new("node", answer)
            });
            let failure = QuorumFailure::new(nodes.collect::<Vec<_>>(), Duration::ZERO);
            assert_eq!(verdict(&own, &failure, Duration::from_secs(1)), expected, "{answers}");
        }
    }

    /// Two of three nodes are silent: at the end of a short round they may be slow, after a node
    /// timeout they fail.
    #[test]
    fn o8_a_node_is_silent_only_after_a_node_timeout() {
        let own = Token::parse("5".repeat(40).as_bytes()).unwrap();
        let silent = || NodeAnswer::new("node", Answer::NoReply { is_over: true });
        let refused = Answer::Refused { holder: Some(Holder::new(*b"another")) };
        let timeout = Duration::from_millis(500);
        for (waited, expected) in [(timeout / 2, Split::Later), (timeout, Split::No)] {
            let nodes = [NodeAnswer::new("node", refused.clone()), silent(), silent()];
            let failure = QuorumFailure::new(nodes, waited);
            assert_eq!(verdict(&own, &failure, timeout), expected, "{waited:?}");
        }
    }
}
