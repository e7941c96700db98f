//! Who has it locked, and for how long still: what the nodes tell without being asked for a vote.

use std::cmp::Reverse;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{Either, join_all, select};

use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::{NodeCount, NodeId};
use crate::backend::{BackendError, BackendErrorKind, Holder};
use crate::cluster::Cluster;
use crate::error::silent;
use crate::resource::{InvalidResource, Key, Resource};

/// What the nodes told of one resource, each for itself.
///
/// Made by [`LockManager::inspect`](crate::LockManager::inspect).
/// `Display` is one line: the state, and each node that does not agree with it.
#[derive(Clone, Debug)]
pub struct Inspection {
    count: NodeCount,
    nodes: Arc<[NodeView]>,
}

impl Inspection {
    fn new(count: NodeCount, nodes: impl IntoIterator<Item = NodeView>) -> Self {
        Self { count, nodes: nodes.into_iter().collect() }
    }

    /// The nodes in the order they are configured.
    pub fn iter(&self) -> std::slice::Iter<'_, NodeView> {
        self.nodes.iter()
    }

    /// Whether it is locked, by the word of a quorum of the configured nodes.
    #[must_use]
    pub fn state(&self) -> LockState {
        let quorum = self.count.quorum();
        if self.nodes_held() >= quorum {
            LockState::Held
        } else if self.free() >= quorum {
            LockState::Free
        } else {
            LockState::Unclear
        }
    }

    /// On how many nodes the leading holder has its key: the one who has most.
    #[must_use]
    pub fn nodes_held(&self) -> usize {
        self.holdings().first().map_or(0, |leading| leading.times_left.len())
    }

    /// How long a quorum still keeps the lock, if nobody extends or releases it.
    ///
    /// `None` unless the state is [`Held`](LockState::Held), and also for a lock without an end,
    /// which another program made. It counts from the end of the inspection; as the way of the
    /// answers is not known, it is too long by that rather than too short. The holder itself must
    /// stop earlier, by the drift allowance.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let holdings = self.holdings();
        let mut times_left = holdings.first()?.times_left.clone();
        times_left.sort_by_key(|left| Reverse(left.unwrap_or(Duration::MAX)));
        // While this one lives, those that live longer make a quorum with it.
        times_left.get(self.count.quorum() - 1).copied().flatten()
    }

    fn free(&self) -> usize {
        self.iter().filter(|node| matches!(node.saw, Saw::Free)).count()
    }

    /// The holders, who has most nodes first; equals in the order of the nodes.
    fn holdings(&self) -> Vec<Holding<'_>> {
        let mut holdings: Vec<Holding<'_>> = Vec::new();
        for node in self {
            let Saw::Taken { holder, time_left } = &node.saw else { continue };
            match holdings.iter_mut().find(|holding| holding.holder == holder) {
                Some(holding) => holding.times_left.push(*time_left),
                None => holdings.push(Holding { holder, times_left: vec![*time_left] }),
            }
        }
        holdings.sort_by_key(|holding| Reverse(holding.times_left.len()));
        holdings
    }
}

/// What one holder has, node by node.
struct Holding<'a> {
    holder: &'a Holder,
    times_left: Vec<Option<Duration>>,
}

impl<'a> IntoIterator for &'a Inspection {
    type Item = &'a NodeView;
    type IntoIter = std::slice::Iter<'a, NodeView>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Prints the state, and each node that does not agree. Holders are numbered.
impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, needed) = (self.count.get(), self.count.quorum());
        let (held, free, state) = (self.nodes_held(), self.free(), self.state());
        match state {
            LockState::Held => {
                write!(f, "held on {held} of {count} nodes, {needed} needed, ")?;
                write_left(f, self.time_left())?;
            }
            LockState::Free => write!(f, "free on {free} of {count} nodes, {needed} needed")?,
            LockState::Unclear => {
                write!(f, "unclear: {held} of {count} nodes keep one holder's key, ")?;
                write!(f, "{free} keep none, {needed} needed")?;
            }
        }
        let holdings = self.holdings();
        for NodeView { name, saw } in self {
            let number = match saw {
                Saw::Taken { holder, .. } => {
                    holdings.iter().position(|holding| holding.holder == holder)
                }
                _ => None,
            };
            match (state, saw, number) {
                (LockState::Held, Saw::Taken { .. }, Some(0)) | (LockState::Free, Saw::Free, _) => {
                }
                (_, Saw::Taken { time_left, .. }, Some(number)) => {
                    write!(f, "; {name}: holder {}, ", number + 1)?;
                    write_left(f, *time_left)?;
                }
                _ => write!(f, "; {name}: {saw}")?,
            }
        }
        Ok(())
    }
}

/// Whether a resource is locked, by the word of a quorum of the configured nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: held, not held, not known")]
pub enum LockState {
    /// A quorum keeps the key of one and the same holder.
    Held,
    /// A quorum keeps no key: nobody holds the lock, and who asks now may get it.
    Free,
    /// Neither: nobody may rely on it being held, nor on it being free.
    ///
    /// Holders share the nodes, a round is under way or has left something behind, or too many
    /// nodes fail.
    Unclear,
}

/// What one node told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeView {
    /// The node: its address, without a password.
    pub name: Arc<str>,
    /// What it saw, or why that is not known.
    pub saw: Saw,
}

/// What a node saw at the key, or why that is not known.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Saw {
    /// Nothing is there.
    Free,
    /// Somebody's key is there.
    Taken {
        /// Whose: equal on all nodes that keep the key of the same holder.
        holder: Holder,
        /// How long it is kept; `None` is for good: another program wrote it.
        ///
        /// From the end of the inspection; zero if it ended meanwhile.
        time_left: Option<Duration>,
    },
    /// It is unknown for this reason.
    Failed(BackendError),
    /// It did not answer in time.
    Silent {
        /// How long the inspection waited.
        after: Duration,
        /// What [kept](crate::LockBackend::obstacle) the call from leaving, if that is known.
        obstacle: Option<BackendError>,
    },
    /// Its backend cannot look: [`inspector`](crate::LockBackend::inspector) is `None`.
    Unable,
}

impl Saw {
    /// The same, told `later`.
    fn told(self, later: Duration) -> Self {
        match self {
            Self::Taken { holder, time_left } => {
                let time_left = time_left.map(|left| left.saturating_sub(later));
                Self::Taken { holder, time_left }
            }
            other => other,
        }
    }
}

impl fmt::Display for Saw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::Taken { time_left, .. } => {
                f.write_str("taken, ")?;
                write_left(f, *time_left)
            }
            Self::Failed(error) => error.fmt(f),
            Self::Silent { after, obstacle } => silent(f, *after, obstacle.as_ref()),
            Self::Unable => f.write_str("its backend cannot look"),
        }
    }
}

fn write_left(f: &mut fmt::Formatter<'_>, left: Option<Duration>) -> fmt::Result {
    match left {
        Some(left) => write!(f, "{left:.1?} left"),
        None => f.write_str("without an end"),
    }
}

/// Why nothing was looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The name is none that could be locked.
    #[error(transparent)]
    Resource(#[from] InvalidResource),
}

/// Asks all nodes at once. Nothing outlives the future, or has to.
pub(crate) async fn inspect(cluster: &Cluster, resource: &Resource) -> Inspection {
    let Cluster { runtime, config, .. } = cluster;
    let key = &Key::new(&config.prefix, resource);
    let start = runtime.now();
    let deadline = saturating_add(start, config.node_timeout(config.ttl));
    let looks = cluster.count().ids().map(|node| async move {
        let saw = look(cluster, node, key, start, deadline).await;
        (node, saw, runtime.now())
    });
    let told = join_all(looks).await;
    let end = runtime.now();
    let views = told.into_iter().map(|(node, saw, at)| {
        let saw = saw.told(end.saturating_duration_since(at));
        NodeView { name: Arc::clone(cluster.name(node)), saw }
    });
    Inspection::new(cluster.count(), views)
}

/// One node's view. An answer that is there counts, whatever the clock says by now.
async fn look(
    cluster: &Cluster,
    node: NodeId,
    key: &Key,
    start: Instant,
    deadline: Instant,
) -> Saw {
    let ask = async {
        let Some(inspector) = cluster.node(node).inspector() else {
            return Saw::Unable;
        };
        match inspector.inspect(key).await {
            Ok(None) => Saw::Free,
            Ok(Some(seen)) => Saw::Taken { holder: seen.holder, time_left: seen.time_left },
            Err(error) => Saw::Failed(error),
        }
    };
    // A backend that panics has failed, and takes neither the caller nor another node with it.
    let ask = pin!(AssertUnwindSafe(ask).catch_unwind());
    match select(ask, cluster.runtime.sleep_until(deadline)).await {
        Either::Left((Ok(saw), _)) => saw,
        Either::Left((Err(_), _)) => {
            let error = BackendError::new(BackendErrorKind::Other, "the backend panicked");
            Saw::Failed(error)
        }
        Either::Right(_) => {
            let after = cluster.runtime.now().saturating_duration_since(start);
            Saw::Silent { after, obstacle: cluster.obstacle(node) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A letter per node: `-` free, `x` failed, and any other a holder. The n-th node keeps its key
    /// for n milliseconds more than the one before.
    fn inspection(nodes: &str) -> Inspection {
        let view = |(place, letter): (u32, char)| {
            let saw = match letter {
                '-' => Saw::Free,
                'x' => Saw::Failed(BackendError::new(BackendErrorKind::Connection, "refused")),
                '?' => Saw::Silent { after: 500 * MS, obstacle: None },
                '0' => Saw::Unable,
                holder => taken(holder, Some(place * MS)),
            };
            NodeView { name: format!("n{place}").into(), saw }
        };
        let count = NodeCount::new(nodes.chars().count()).unwrap();
        Inspection::new(count, (1..).zip(nodes.chars()).map(view))
    }

    fn taken(holder: char, time_left: Option<Duration>) -> Saw {
        Saw::Taken { holder: Holder::new(holder.to_string().into_bytes()), time_left }
    }

    #[test]
    fn q1_held_and_free_are_the_word_of_a_quorum_of_the_configured_nodes() {
        use LockState::{Free, Held, Unclear};
        for (nodes, state, held) in [
            ("a", Held, 1),
            ("-", Free, 0),
            ("x", Unclear, 0),
            // Half of an even number is no quorum.
            ("aa", Held, 2),
            ("a-", Unclear, 1),
            ("--", Free, 0),
            ("-x", Unclear, 0),
            ("aaxx", Unclear, 2),
            ("--xx", Unclear, 0),
            ("aaa-", Held, 3),
            // Those that answer are no majority of those that are configured.
            ("aaxxx", Unclear, 2),
            ("--x?0", Unclear, 0),
            ("aaaxx", Held, 3),
            ("---xx", Free, 0),
            // Residues of a lost round, and split votes.
            ("aaa--", Held, 3),
            ("aa---", Free, 2),
            ("aab--", Unclear, 2),
            ("abc--", Unclear, 1),
            ("aabb-", Unclear, 2),
            ("abbba", Held, 3),
        ] {
            let seen = inspection(nodes);
            assert_eq!((seen.state(), seen.nodes_held()), (state, held), "{nodes}");
        }
    }

    #[test]
    fn q1_every_split_of_seven_nodes_at_the_most_is_one_state() {
        for count in 1..=7_usize {
            for holder in 0..=count {
                for free in 0..=count - holder {
                    let rest = count - holder - free;
                    let nodes = ["a".repeat(holder), "-".repeat(free), "x".repeat(rest)].concat();
                    let expected = if holder * 2 > count {
                        LockState::Held
                    } else if free * 2 > count {
                        LockState::Free
                    } else {
                        LockState::Unclear
                    };
                    let seen = inspection(&nodes);
                    assert_eq!(seen.state(), expected, "{nodes}");
                    assert_eq!(seen.time_left().is_some(), expected == LockState::Held, "{nodes}");
                }
            }
        }
    }

    #[test]
    fn the_time_left_ends_when_fewer_than_a_quorum_keep_it() {
        for (nodes, left) in [
            ("a", Some(1)),
            ("aa", Some(1)),
            ("aaa", Some(2)),
            ("aaaa", Some(2)),
            ("aaaaa", Some(3)),
            ("aaa--", Some(1)),
            ("--aaa", Some(3)),
            ("aabaa", Some(2)),
            ("aabb-", None),
            ("-----", None),
        ] {
            let expected = left.map(|millis: u32| millis * MS);
            assert_eq!(inspection(nodes).time_left(), expected, "{nodes}");
        }
    }

    #[test]
    fn a_key_without_an_end_outlives_all_others() {
        let seen = |ends: [Option<u32>; 3]| {
            let nodes = ends.map(|left| taken('a', left.map(|millis| millis * MS)));
            let view = |saw| NodeView { name: "n".into(), saw };
            Inspection::new(NodeCount::new(3).unwrap(), nodes.map(view))
        };
        assert_eq!(seen([Some(5), None, Some(9)]).time_left(), Some(9 * MS));
        assert_eq!(seen([None, None, Some(9)]).time_left(), None);
        assert_eq!(seen([None, None, Some(9)]).state(), LockState::Held);
    }

    #[test]
    fn time_goes_on_while_other_nodes_are_waited_for() {
        let left = |later| match taken('a', Some(5 * MS)).told(later) {
            Saw::Taken { time_left, .. } => time_left,
            saw => panic!("{saw}"),
        };
        assert_eq!(left(Duration::ZERO), Some(5 * MS));
        assert_eq!(left(2 * MS), Some(3 * MS));
        assert_eq!(left(9 * MS), Some(Duration::ZERO));
    }

    #[test]
    fn an_inspection_prints_as_one_line_without_a_token() {
        for (nodes, line) in [
            ("aaaaa", "held on 5 of 5 nodes, 3 needed, 3.0ms left"),
            ("aa-xa", "held on 3 of 5 nodes, 3 needed, 1.0ms left; n3: free; n4: refused"),
            (
                "---?0",
                "free on 3 of 5 nodes, 3 needed; n4: no answer within 500.0ms; \
                 n5: its backend cannot look",
            ),
            (
                "-baab",
                "unclear: 2 of 5 nodes keep one holder's key, 1 keep none, 3 needed; n1: free; \
                 n2: holder 1, 2.0ms left; n3: holder 2, 3.0ms left; n4: holder 2, 4.0ms left; \
                 n5: holder 1, 5.0ms left",
            ),
        ] {
            let seen = inspection(nodes);
            assert_eq!(seen.to_string(), line);
            let holders = nodes.matches(['a', 'b']).count();
            assert_eq!(format!("{seen:?}").matches("Holder(..)").count(), holders, "{seen:?}");
        }
    }
}
