//! Why there is no manager.

use std::time::Duration;

use crate::algorithm::lease::InvalidTtl;
use crate::algorithm::quorum::NodeCount;

/// Why there is no manager with these settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The cleanup timeout is under the node timeout: keys would be left behind at every hitch.
    #[error("a cleanup timeout of {timeout:?} is too short, {least:?} is the least")]
    CleanupTimeout {
        /// The timeout given.
        timeout: Duration,
        /// The shortest that would do: the node timeout.
        least: Duration,
    },
    /// Two nodes have the same name. One node must not vote twice.
    #[error("the node {name} is configured twice")]
    DuplicateNode {
        /// What both are called.
        name: String,
    },
    /// The cap on the time of holding leaves nothing to hold.
    #[error("a hold limit of {limit:?} is too short, it must be over {least:?}")]
    HoldLimit {
        /// The limit given.
        limit: Duration,
        /// The margin, which it must exceed.
        least: Duration,
    },
    /// The margin is nothing, or a large part of the validity.
    #[error(
        "a margin of {margin:?} does not fit the ttl: more than nothing, and {most:?} at the most"
    )]
    Margin {
        /// The margin given.
        margin: Duration,
        /// The longest that would do: a quarter of the validity.
        most: Duration,
    },
    /// There is no node, or there are more than [`NodeCount::MAX`].
    #[error("{nodes} nodes are configured, 1 to {most} are possible", most = NodeCount::MAX)]
    NodeCount {
        /// How many were given.
        nodes: usize,
    },
    /// The per-node timeout is not far under the ttl: one slow node would use up the validity.
    #[error(
        "a node timeout of {timeout:?} does not fit the ttl: more than nothing, and {most:?} at the most"
    )]
    NodeTimeout {
        /// The timeout given.
        timeout: Duration,
        /// The longest that would do: half of the validity.
        most: Duration,
    },
    /// The [restart guard](super::LockManagerBuilder::restart_guard) is on, and a node cannot be guarded.
    #[error("{node} cannot be guarded against restarts")]
    NotGuarded {
        /// The first of those that cannot.
        node: String,
    },
    /// The `max_ttl` of the [restart guard](super::LockManagerBuilder::restart_guard) is none.
    #[error("the max_ttl of the restart guard: {0}")]
    MaxTtl(InvalidTtl),
    /// Renewals are so far apart that there is no time for a second try.
    #[error(
        "a renewal every {interval:?} does not fit the ttl: more than nothing, and {most:?} at the most"
    )]
    RenewInterval {
        /// The interval given.
        interval: Duration,
        /// The longest that would do: the validity less the margin and two node timeouts.
        most: Duration,
    },
    /// The ttl is too short or too long.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
}
