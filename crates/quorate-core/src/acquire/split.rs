//! A lost round of a request that waits for no holder: a holder is in the way, or the votes were split (O8).
//!
//! Of contenders that ask at the same moment it can be that no one has a quorum. The one that the most nodes granted asks
//! again at once, the others after a random pause that doubles: so one of them wins, mostly in the second round.

use std::cmp::Reverse;
use std::time::Duration;

use crate::algorithm::backoff::scale;
use crate::backend::Holder;
use crate::error::{Answer, NodeAnswer, QuorumFailure};
use crate::resource::Token;

/// How many rounds are split before the lock counts as held.
pub(super) const MOST_ROUNDS: u32 = 10;

/// How long a contested round goes on for slow nodes, in the first round.
const LEAST_HASTE: Duration = Duration::from_millis(2);

const LEAST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a lost round was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// Too few nodes answered, and none refused.
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
/// A token that a quorum named had a quorum of grants. A contender is first by the number of nodes, then by the
/// lowest token. A node without a reply has failed only after a node timeout.
pub(super) fn verdict(own: &Token, failure: &QuorumFailure, node_timeout: Duration) -> Split {
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

/// How long the next round goes on for slow nodes, once it is contested: it doubles, so that nodes that are all slow do
/// not lose every round.
pub(super) fn haste(rounds: u32) -> Duration {
    LEAST_HASTE * (1 << rounds.min(MOST_ROUNDS))
}

/// How long to wait after round number `rounds`, for all contenders but the first.
pub(super) fn pause(took: Duration, rounds: u32, random: u64) -> Duration {
    let once = took.max(LEAST_PAUSE).saturating_mul(1 << rounds.min(MOST_ROUNDS).saturating_sub(1));
    once.saturating_add(scale(once, random)).min(LONGEST_PAUSE)
}
