//! What each node said.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::quorum::Vote;
use crate::backend::BackendError;

/// What the nodes said in one round. By default no node was asked.
///
/// Managers make them. Who tests how his own code takes an error makes one as well:
///
/// ```
/// use quorate_core::{BackendError, LockError, NodeVote, Said, Votes};
///
/// let votes: Votes = [
///     NodeVote::new("10.0.0.1:6379", Said::Granted),
///     NodeVote::new("10.0.0.2:6379", Said::Unheard),
///     NodeVote::new("10.0.0.3:6379", Said::Failed(BackendError::from_reply("LOADING"))),
/// ]
/// .into_iter()
/// .collect();
/// let error = LockError::NoQuorum { votes };
/// assert_eq!(
///     error.to_string(),
///     "no quorum: 1 of 3 nodes granted, 2 needed; 10.0.0.2:6379: not waited for; \
///      10.0.0.3:6379: LOADING",
/// );
///
/// let error = LockError::Held { votes: Votes::default() };
/// assert_eq!(error.to_string(), "locked by another guard of the same manager");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Votes {
    nodes: Arc<[NodeVote]>,
}

impl Votes {
    /// The nodes in the order they are configured.
    pub fn iter(&self) -> std::slice::Iter<'_, NodeVote> {
        self.nodes.iter()
    }

    /// What goes behind a reason: the votes, or this `otherwise` if nobody was asked.
    pub(super) fn or(&self, otherwise: &str) -> String {
        if self.nodes.is_empty() { otherwise.to_owned() } else { format!(": {self}") }
    }

    /// The nodes that failed or stayed silent, for a log: those with a name and a reason that is
    /// theirs.
    pub fn failures(&self) -> impl Iterator<Item = &NodeVote> {
        self.iter().filter(|node| matches!(node.said, Said::Failed(_) | Said::Silent { .. }))
    }

    /// Whether more nodes than a quorum can spare fail until somebody changes something.
    pub(super) fn are_permanent(&self) -> bool {
        let is_permanent = |node: &&NodeVote| match &node.said {
            Said::Failed(error) => error.kind().is_permanent(),
            Said::Silent { obstacle, .. } => {
                obstacle.as_ref().is_some_and(|error| error.kind().is_permanent())
            }
            Said::Granted | Said::Refused | Said::Unheard => false,
        };
        let quorum = self.nodes.len() / 2 + 1;
        self.iter().filter(is_permanent).count() > self.nodes.len() - quorum
    }

    /// How many nodes granted.
    #[must_use]
    pub fn granted(&self) -> usize {
        self.iter().filter(|node| matches!(node.said, Said::Granted)).count()
    }
}

/// In the order given, which is that of the nodes as they are configured.
impl FromIterator<NodeVote> for Votes {
    fn from_iter<I: IntoIterator<Item = NodeVote>>(nodes: I) -> Self {
        Self { nodes: nodes.into_iter().collect() }
    }
}

impl<'a> IntoIterator for &'a Votes {
    type Item = &'a NodeVote;
    type IntoIter = std::slice::Iter<'a, NodeVote>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Prints the count, and each node that did not grant with its reason.
impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes.len();
        if nodes == 0 {
            return f.write_str("no node was asked");
        }
        write!(f, "{} of {nodes} nodes granted, {} needed", self.granted(), nodes / 2 + 1)?;
        for node in self.iter().filter(|node| !matches!(node.said, Said::Granted)) {
            write!(f, "; {}: {}", node.name, node.said)?;
        }
        Ok(())
    }
}

/// What one node said.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeVote {
    /// The node: its address, without a password.
    pub name: Arc<str>,
    /// Its answer, or the lack of one.
    pub said: Said,
}

impl NodeVote {
    /// What the node called `name` said.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, said: Said) -> Self {
        Self { name: name.into(), said }
    }
}

/// A node's answer, or the lack of one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Said {
    /// It granted.
    Granted,
    /// It refused: the key is somebody else's, or (asked to extend or release) not ours.
    Refused,
    /// Its vote is unknown for this reason.
    Failed(BackendError),
    /// It did not answer in time.
    Silent {
        /// How long the round waited.
        after: Duration,
        /// What [kept](crate::LockBackend::obstacle) the call from leaving, if that is known.
        obstacle: Option<BackendError>,
    },
    /// The round was certain before it answered.
    Unheard,
}

impl Said {
    pub(crate) const fn of(vote: Vote) -> Self {
        match vote {
            Vote::Granted => Self::Granted,
            Vote::Refused => Self::Refused,
        }
    }
}

/// Tells of a node that did not answer in time.
pub(crate) fn silent(
    f: &mut fmt::Formatter<'_>,
    after: Duration,
    obstacle: Option<&BackendError>,
) -> fmt::Result {
    write!(f, "no answer within {after:.1?}")?;
    obstacle.map_or(Ok(()), |error| write!(f, ": {error}"))
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::Refused => f.write_str("refused"),
            Self::Failed(error) => error.fmt(f),
            Self::Silent { after, obstacle } => silent(f, *after, obstacle.as_ref()),
            Self::Unheard => f.write_str("not waited for"),
        }
    }
}
