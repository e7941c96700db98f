//! What each node answered when there was no quorum.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::resource::{Key, Label};
use crate::seam::backend::{BackendError, Holder};

/// What each node answered in a round that found no quorum, and how long was waited.
///
/// Created by [`LockManager`](crate::LockManager). Public so that tests can construct errors:
///
/// ```
/// use std::time::Duration;
///
/// use quorate_core::{BackendError, BackendErrorKind, LockError};
/// use quorate_core::error::{Answer, NodeAnswer, QuorumFailure};
///
/// let loading = BackendError::new(BackendErrorKind::Loading, "LOADING");
/// let answers = [
///     NodeAnswer::new("10.0.0.1:6379", Answer::Granted),
///     NodeAnswer::new("10.0.0.2:6379", Answer::NoReply { is_over: true }),
///     NodeAnswer::new("10.0.0.3:6379", Answer::Failed(loading)),
/// ];
/// let failure = QuorumFailure::new(answers, Duration::from_millis(500));
/// assert_eq!(
///     LockError::NoQuorum(failure).to_string(),
///     "no quorum: 1 of 3 nodes granted, 2 needed; \
///      10.0.0.2:6379: no reply within 500.0ms; 10.0.0.3:6379: LOADING",
/// );
/// ```
#[derive(Clone, Debug, Default)]
pub struct QuorumFailure {
    names: Arc<[Key]>,
    nodes: Arc<[NodeAnswer]>,
    waited: Duration,
    /// The writer to which a reader gave way, and its label if it is of this manager.
    writer: Option<(Writer, Option<Label>)>,
}

/// A writer to which a reader gave way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// It waits for other clients.
    Waits,
    /// It waits for a lease of this manager.
    WaitsForUs,
}

impl QuorumFailure {
    /// The answers, in the order in which the nodes are configured.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = NodeAnswer>, waited: Duration) -> Self {
        Self { nodes: nodes.into_iter().collect(), waited, ..Self::default() }
    }

    /// The same for a lock on these keys.
    #[must_use]
    pub fn of(mut self, names: impl Into<Arc<[Key]>>) -> Self {
        self.names = names.into();
        self
    }

    /// As of an error that has one.
    pub(super) const fn failure(&self) -> Option<&Self> {
        Some(self)
    }

    /// A reader gave way to this writer. `label`: of a writer of this manager, if it has one.
    pub(crate) fn behind(self, writer: Writer, label: Option<Label>) -> Self {
        Self { writer: Some((writer, label)), ..self }
    }

    /// The keys of the lock that was asked for: its names, behind the prefix. Empty where there is
    /// no such lock.
    #[must_use]
    pub fn names(&self) -> &[Key] {
        &self.names
    }

    /// What each node answered, in the order in which the nodes are configured. Empty where a guard
    /// or a waiter of this manager was in the way.
    #[must_use]
    pub fn nodes(&self) -> &[NodeAnswer] {
        &self.nodes
    }

    /// From the start of the round to its decision.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// The nodes that failed or did not reply, which an operator should look at.
    pub fn failed_nodes(&self) -> impl Iterator<Item = &NodeAnswer> {
        let has_failed = |answer: &Answer| {
            matches!(answer, Answer::Failed(_) | Answer::NoReply { is_over: true })
        };
        self.nodes.iter().filter(move |node| has_failed(&node.answer))
    }

    /// How many nodes granted.
    #[must_use]
    pub fn granted(&self) -> usize {
        self.nodes.iter().filter(|node| matches!(node.answer, Answer::Granted)).count()
    }

    /// The holder that the most nodes named in their refusals, and how many did. Of several, the
    /// one that the first of these nodes named.
    #[must_use]
    pub fn holder(&self) -> Option<(&Holder, usize)> {
        let count = |holder| self.holders().filter(|other| *other == holder).count();
        let counted = self.holders().map(|holder| (holder, count(holder)));
        // `max_by_key` takes the last of equals.
        counted.rev().max_by_key(|(_, count)| *count)
    }

    /// Whether a quorum of the nodes has a [mark](crate::LockGuard::keep), which has no holder: the
    /// work is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let marked = self.holder().filter(|(holder, _)| holder.is_done());
        marked.is_some_and(|(_, count)| count > self.nodes.len() / 2)
    }

    /// The label of the writer of this manager to which a reader gave way.
    pub(super) fn writer_label(&self) -> Option<&str> {
        self.writer.as_ref()?.1.as_ref().map(Label::as_str)
    }

    /// The holders that the nodes named, in the order of the nodes.
    pub(crate) fn holders(&self) -> impl DoubleEndedIterator<Item = &Holder> {
        self.nodes.iter().filter_map(|node| match &node.answer {
            Answer::Refused { holder } => holder.as_ref(),
            _ => None,
        })
    }

    /// Whether a guard of this manager is in the way: no node was asked, or a writer waits for that
    /// guard, and a reader that came later waits for the writer.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.nodes.is_empty() || matches!(self.writer, Some((Writer::WaitsForUs, _)))
    }

    /// Whether more nodes than a quorum can spare fail until something is changed.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        let is_permanent = |node: &&NodeAnswer| match &node.answer {
            Answer::Failed(error) => error.kind().is_permanent(),
            _ => false,
        };
        let quorum = self.nodes.len() / 2 + 1;
        self.nodes.iter().filter(is_permanent).count() > self.nodes.len().saturating_sub(quorum)
    }

    /// How many nodes refused.
    pub(crate) fn refused(&self) -> usize {
        self.nodes.iter().filter(|node| matches!(node.answer, Answer::Refused { .. })).count()
    }

    /// The holder of the lock, or of the mark: the one that a quorum named, and each node that
    /// failed.
    pub(super) fn held(&self) -> String {
        let nodes = self.nodes.len();
        if nodes == 0 {
            return "held by another guard or waiter of this manager".to_owned();
        }
        if let Some((writer, label)) = &self.writer {
            let who = label.as_ref().map(|label| format!("the writer {label}"));
            let who = who.as_deref().unwrap_or("a writer");
            return match writer {
                Writer::Waits => format!("held by another client: {who} waits"),
                Writer::WaitsForUs => {
                    format!("held: {who} waits, and it waits for a lease of this manager")
                }
            };
        }
        let Some((holder, count)) = self.holder().filter(|(_, count)| *count > nodes / 2) else {
            return format!("held by another client: {self}");
        };
        let by = if holder.is_done() { "done by" } else { "held by" };
        let mut text = match holder.label() {
            Some(label) => format!("{by} {label:?} on {count} of {nodes} nodes"),
            None => format!("{by} another client on {count} of {nodes} nodes"),
        };
        for node in self.failed_nodes() {
            text.push_str(&format!("; {node}"));
        }
        text
    }

    /// The text behind a reason; empty where no node was asked.
    pub(super) fn after_colon(&self) -> String {
        if self.nodes.is_empty() { String::new() } else { format!(": {self}") }
    }
}

/// Prints the count, and each node that did not grant with its reason.
impl fmt::Display for QuorumFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes.len();
        if self.nodes.iter().all(|node| matches!(node.answer, Answer::NotAsked)) {
            return f.write_str("no node was asked");
        }
        write!(f, "{} of {nodes} nodes granted, {} needed", self.granted(), nodes / 2 + 1)?;
        // What made the quorum impossible comes first.
        let is_open =
            |node: &&NodeAnswer| matches!(node.answer, Answer::NoReply { is_over: false });
        let others = self.nodes.iter().filter(|node| !matches!(node.answer, Answer::Granted));
        for node in others.clone().filter(|node| !is_open(node)).chain(others.filter(is_open)) {
            write!(f, "; {node}")?;
            if let Answer::NoReply { is_over: true } = node.answer {
                write!(f, " within {:.1?}", self.waited)?;
            }
        }
        Ok(())
    }
}

/// What one node answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeAnswer {
    /// The name of the node: its address without secrets.
    pub name: Arc<str>,
    /// Its answer, or the lack of one.
    pub answer: Answer,
}

impl NodeAnswer {
    /// The answer of the node called `name`.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, answer: Answer) -> Self {
        Self { name: name.into(), answer }
    }
}

impl fmt::Display for NodeAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.answer)
    }
}

/// A node's answer, or the lack of one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// The node granted.
    Granted,
    /// The node refused. To an acquire: another client has a key. Otherwise: a key is not ours.
    Refused {
        /// The holder of a key that refused an acquire, if the node named it.
        holder: Option<Holder>,
    },
    /// The node's vote is unknown, for this reason.
    Failed(BackendError),
    /// The node did not reply.
    NoReply {
        /// Whether the node timeout had passed. If not, the round was decided without this node.
        is_over: bool,
    },
    /// Nothing was sent to the node.
    NotAsked,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::Refused { holder } => match holder.as_ref().and_then(Holder::label) {
                Some(label) => write!(f, "refused, held by {label:?}"),
                None => f.write_str("refused"),
            },
            Self::Failed(error) => error.fmt(f),
            Self::NoReply { is_over: true } => f.write_str("no reply"),
            Self::NoReply { is_over: false } => f.write_str("no reply yet"),
            Self::NotAsked => f.write_str("not asked"),
        }
    }
}
