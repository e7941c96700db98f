//! Why there is no manager.

use std::time::Duration;

use crate::algorithm::lease::InvalidTtl;
use crate::resource::InvalidLabel;

/// Why there is no manager with these settings.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no node, or there are more than 64.
    #[error("{nodes} nodes are configured, 1 to 64 are possible")]
    NodeCount {
        /// How many were given.
        nodes: usize,
    },
    /// Two nodes have the same name. One node must not vote twice.
    #[error("the node {name} is configured twice")]
    DuplicateNode {
        /// The name.
        name: String,
    },
    /// The label cannot be stored.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    /// A setting is out of its range.
    #[error("{setting} of {value:?} is out of range: {least:?} to {most:?} is possible")]
    OutOfRange {
        /// The name of the setting.
        setting: &'static str,
        /// The value given.
        value: Duration,
        /// The least that is possible.
        least: Duration,
        /// The most that is possible with the other settings.
        most: Duration,
    },
    /// The ttl is too short or too long.
    #[error(transparent)]
    Ttl(#[from] InvalidTtl),
    /// The restart guard is on, and a node cannot check it.
    #[error("{node} cannot be guarded against restarts")]
    RestartGuard {
        /// The first such node.
        node: String,
    },
    /// No runtime was given, and neither the feature `tokio` nor `smol` is on.
    #[error("no runtime was given, and the features tokio and smol are off")]
    NoRuntime,
}
