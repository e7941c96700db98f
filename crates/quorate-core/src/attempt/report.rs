//! What an attempt tells telemetry, when its lock is free: a subscriber may ask for the lease, or block.

use std::time::Duration;

use super::identity::Identity;
use crate::algorithm::attempt::Outcome;
use crate::algorithm::quorum::NodeId;
use crate::backend::{BackendError, CallKind, Tag};
use crate::error::{Lost, QuorumFailure};
use crate::nodes::Change;
use crate::telemetry;

/// One event. Made only where telemetry is on.
pub(super) enum Report {
    /// A call has settled.
    Settled {
        node: NodeId,
        kind: CallKind,
        vote: &'static str,
        latency: Duration,
        error: Option<BackendError>,
        change: Change,
    },
    /// A node has answered no call for a node timeout.
    Silent { node: NodeId, kind: CallKind, silent: Duration },
    /// A call was given up.
    GivenUp { node: NodeId },
    /// The lease has ended before its holder released it.
    Lost { lost: Lost, held: Duration },
    /// An extension was decided.
    Extension { took: Duration, left: Duration, failure: Option<QuorumFailure> },
    /// Nothing is left to await or to send.
    CleanedUp { took: Duration, unanswered: usize },
}

impl Report {
    pub(super) fn settled(
        tag: &Tag,
        outcome: &Outcome<BackendError>,
        latency: Duration,
        change: Change,
    ) -> Self {
        let (vote, error) = match outcome {
            Outcome::Granted(_) => ("granted", None),
            Outcome::Refused => ("refused", None),
            Outcome::Failed(error) | Outcome::Lost(error) | Outcome::NotSent(error) => {
                ("failed", Some(error.clone()))
            }
        };
        Self::Settled { node: tag.node, kind: tag.kind, vote, latency, error, change }
    }

    pub(super) fn emit(self, attempt: &Identity) {
        let (cluster, keys) = (attempt.cluster(), attempt.claim.keys());
        let name = |node| cluster.nodes.name(node);
        match self {
            Self::Settled { node, kind, vote, latency, error, change } => {
                let vote = if latency > attempt.node_timeout { "silent" } else { vote };
                let (node, operation) = (name(node), kind.name());
                telemetry::call_settled(node, operation, vote, Some(latency), error.as_ref());
                match (change, &error) {
                    (Change::None, _) => {}
                    (Change::Recovers { after }, _) => {
                        telemetry::node_recovered(node, operation, after);
                    }
                    (Change::Fails, Some(error)) => telemetry::node_failing(node, operation, error),
                    (Change::Fails, None) => telemetry::node_silent(node, operation, latency),
                }
            }
            Self::Silent { node, kind, silent } => {
                telemetry::node_silent(name(node), kind.name(), silent);
            }
            Self::GivenUp { node } => {
                telemetry::call_settled(name(node), "acquire", "silent", None, None);
            }
            Self::Lost { lost: Lost::Closed, held } => telemetry::closed(keys, held),
            Self::Lost { lost, held } => {
                if let Some(reason) = lost.reason() {
                    telemetry::lost(keys, reason, held, &lost);
                }
            }
            Self::Extension { took, left, failure: None } => telemetry::extended(keys, took, left),
            Self::Extension { took, left, failure: Some(failure) } => {
                telemetry::not_extended(keys, took, left, &failure);
            }
            Self::CleanedUp { took, unanswered } => telemetry::cleaned_up(keys, took, unanswered),
        }
    }
}
