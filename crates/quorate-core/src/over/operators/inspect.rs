//! A look at a lock from outside, without acquiring it.
//!
//! Each node shows what it keeps at the key. A judgement over all nodes, [`Inspection`], says
//! whether the lock is held. It is about the past: the lock may have changed before the caller
//! reads it.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod ask;
mod view;

pub use self::view::NodeView;
use self::view::{aged, write_left};
use crate::backend::Holder;
pub use crate::backend::KeyState;

/// What each node keeps for one resource, and what follows from it.
///
/// Returned by [`LockManager::inspect`](crate::LockManager::inspect). `Display` is one line: the
/// state, and each node that does not agree with it.
#[derive(Clone, Debug)]
pub struct Inspection {
    nodes: Arc<[NodeView]>,
}

impl Inspection {
    /// The views of the nodes, in the order in which the nodes are configured.
    #[must_use]
    pub fn nodes(&self) -> &[NodeView] {
        &self.nodes
    }

    /// Whether the lock is held, according to a quorum of the configured nodes (Q1).
    #[must_use]
    pub fn state(&self) -> LockState {
        if self.nodes_held() >= self.quorum() {
            LockState::Held
        } else if self.nodes_free() >= self.quorum() {
            LockState::Free
        } else {
            LockState::Unclear
        }
    }

    /// The label of the holder with the most nodes, if it has one.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.holdings().first()?.holder.label()
    }

    /// The holder with the most nodes, or each reader that a node has: the holders from whom
    /// [`LockManager::revoke_seen`](crate::LockManager::revoke_seen) takes the lock. Empty if all
    /// nodes that answered are free.
    #[must_use]
    pub fn holders(&self) -> Vec<&Holder> {
        let mut holdings = self.holdings();
        match holdings.first() {
            Some(first) if first.is_reader => holdings.retain(|one| one.is_reader),
            _ => holdings.truncate(1),
        }
        holdings.into_iter().map(|holding| holding.holder).collect()
    }

    /// Whether a quorum of nodes keeps a [mark](crate::LockGuard::keep), which has no holder: the
    /// work is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state() == LockState::Held && self.holdings()[0].holder.is_done()
    }

    /// The readers that a quorum of nodes has, if readers [hold](crate::LockManager::read) the
    /// lock.
    ///
    /// Only the label of each can be read. The number is that of leases, not of processes.
    #[must_use]
    pub fn readers(&self) -> Vec<&Holder> {
        let is_held =
            |holding: &&Holding<'_>| holding.is_reader && holding.times_left.len() >= self.quorum();
        self.holdings().iter().filter(is_held).map(|holding| holding.holder).collect()
    }

    /// How many nodes keep the key of the same holder, for the holder with the most nodes.
    #[must_use]
    pub fn nodes_held(&self) -> usize {
        self.holdings().first().map_or(0, |holding| holding.times_left.len())
    }

    /// How long a quorum keeps the lock, if its holder neither extends nor releases it. Of readers:
    /// for the last of them.
    ///
    /// Counts from the end of the inspection. The replies' travel time is unknown, so the value is
    /// too long by that time, never too short. The holder itself stops earlier, by drift and safety
    /// margin.
    ///
    /// `None` unless the state is [`Held`](LockState::Held). Also `None` for a key without a ttl,
    /// which another program wrote.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let times_left = self.holdings().into_iter().filter_map(|holding| {
            let mut times_left = holding.times_left;
            times_left.sort_by_key(|left| Reverse(left.unwrap_or(Duration::MAX)));
            times_left.get(self.quorum() - 1).copied()
        });
        times_left.max_by_key(|left| left.unwrap_or(Duration::MAX)).flatten()
    }

    pub(crate) fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    fn nodes_free(&self) -> usize {
        self.nodes.iter().filter(|node| matches!(node.state, KeyState::Free)).count()
    }

    /// The holders, sorted by their number of nodes, the largest first. Each reader is one.
    fn holdings(&self) -> Vec<Holding<'_>> {
        let mut holdings: Vec<Holding<'_>> = Vec::new();
        let mut add = |holder, time_left, is_reader| match holdings
            .iter_mut()
            .find(|holding| holding.holder == holder)
        {
            Some(holding) => holding.times_left.push(time_left),
            None => holdings.push(Holding { holder, times_left: vec![time_left], is_reader }),
        };
        for node in &*self.nodes {
            match &node.state {
                KeyState::Held { holder, time_left } => add(holder, *time_left, false),
                KeyState::Read { readers } => {
                    readers.iter().for_each(|one| add(&one.holder, Some(one.time_left), true));
                }
                _ => {}
            }
        }
        holdings.sort_by_key(|holding| Reverse(holding.times_left.len()));
        holdings
    }
}

/// The keys of one holder on all nodes.
struct Holding<'a> {
    holder: &'a Holder,
    times_left: Vec<Option<Duration>>,
    is_reader: bool,
}

/// Prints the state, and each node that does not agree with it. Several holders are numbered.
impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, needed) = (self.nodes.len(), self.quorum());
        let (held, free, state) = (self.nodes_held(), self.nodes_free(), self.state());
        match state {
            LockState::Held => {
                f.write_str(if self.is_done() { "done " } else { "held " })?;
                let readers = self.readers();
                match (readers.len(), self.label()) {
                    (0, Some(label)) => write!(f, "by {label:?} ")?,
                    (0, None) => {}
                    (count, _) => {
                        write!(f, "by {count} {}", if count == 1 { "reader " } else { "readers " })?
                    }
                }
                let labels = readers.iter().filter_map(|one| one.label());
                let labels: Vec<String> = labels.map(|label| format!("{label:?}")).collect();
                if !labels.is_empty() {
                    write!(f, "({}) ", labels.join(", "))?;
                }
                write!(f, "on {held} of {nodes} nodes, {needed} needed")?;
                // How long a mark stays says nothing of its work.
                if !self.is_done() {
                    f.write_str(", ")?;
                    write_left(f, self.time_left())?;
                }
            }
            LockState::Free => write!(f, "free on {free} of {nodes} nodes, {needed} needed")?,
            LockState::Unclear => {
                write!(f, "unclear: held by one holder on {held} of {nodes} nodes, ")?;
                write!(f, "free on {free}, {needed} needed")?;
            }
        }
        let holdings = self.holdings();
        for NodeView { name, state: key } in &*self.nodes {
            match (state, key) {
                (LockState::Free, KeyState::Free) => {}
                (_, KeyState::Held { holder, time_left }) => {
                    let index = holdings.iter().position(|holding| holding.holder == holder);
                    let number = index.map_or(0, |index| index + 1);
                    if (state, number) != (LockState::Held, 1) {
                        write!(f, "; {name}: holder {number}")?;
                        if let Some(label) = holder.label() {
                            write!(f, " {label:?}")?;
                        }
                        f.write_str(", ")?;
                        write_left(f, *time_left)?;
                    }
                }
                // Readers come and go at each node by themselves.
                (LockState::Held, KeyState::Read { .. }) if !self.readers().is_empty() => {}
                _ => write!(f, "; {name}: {key}")?,
            }
        }
        Ok(())
    }
}

/// Whether a lock is held, according to a quorum of the configured nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: held, free, neither known")]
pub enum LockState {
    /// A quorum keeps the key of the same holder.
    Held,
    /// A quorum keeps no key. An acquire may succeed now.
    Free,
    /// Neither. The lock may be held or free.
    ///
    /// The nodes keep keys of several holders, a round is in flight, a lost round left keys behind,
    /// or too many nodes fail.
    Unclear,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendError, BackendErrorKind, Reader};

    const MS: Duration = Duration::from_millis(1);

    /// A letter for each node: `-` free, `x` failed, `?` no reply, and any other letter a holder.
    /// The n-th node keeps its key for n milliseconds.
    fn inspection(nodes: &str) -> Inspection {
        let view = |(number, letter): (u32, char)| {
            let state = match letter {
                '-' => KeyState::Free,
                'x' => KeyState::Failed(BackendError::new(BackendErrorKind::Connection, "refused")),
                '?' => KeyState::Failed(BackendError::new(
                    BackendErrorKind::TimedOut,
                    "no reply within 500.0ms",
                )),
                holder => held(holder, Some(number * MS)),
            };
            NodeView { name: format!("n{number}").into(), state }
        };
        Inspection { nodes: (1..).zip(nodes.chars()).map(view).collect() }
    }

    fn held(holder: char, time_left: Option<Duration>) -> KeyState {
        KeyState::Held { holder: Holder::new(holder.to_string().into_bytes()), time_left }
    }

    #[test]
    fn q1_held_and_free_are_the_word_of_a_quorum_of_the_configured_nodes() {
        use LockState::{Free, Held, Unclear};
        for (nodes, state, nodes_held) in [
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
            // A majority of the nodes that reply is no quorum of the configured nodes.
            ("aaxxx", Unclear, 2),
            ("--x?x", Unclear, 0),
            ("aaaxx", Held, 3),
            ("---xx", Free, 0),
            // Keys that a lost round left behind, and split votes.
            ("aaa--", Held, 3),
            ("aa---", Free, 2),
            ("aab--", Unclear, 2),
            ("abc--", Unclear, 1),
            ("aabb-", Unclear, 2),
            ("abbba", Held, 3),
        ] {
            let seen = inspection(nodes);
            assert_eq!((seen.state(), seen.nodes_held()), (state, nodes_held), "{nodes}");
        }
    }

    #[test]
    fn the_time_left_ends_when_fewer_than_a_quorum_keep_the_key() {
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
    fn a_key_without_a_ttl_outlives_all_others() {
        let seen = |ends: [Option<u32>; 3]| {
            let nodes = ends.map(|left| held('a', left.map(|millis| millis * MS)));
            let view = |state| NodeView { name: "n".into(), state };
            Inspection { nodes: nodes.map(view).into() }
        };
        assert_eq!(seen([Some(5), None, Some(9)]).time_left(), Some(9 * MS));
        assert_eq!(seen([None, None, Some(9)]).time_left(), None);
        assert_eq!(seen([None, None, Some(9)]).state(), LockState::Held);
    }

    #[test]
    fn an_inspection_prints_as_one_line_without_a_token() {
        for (nodes, line) in [
            ("aaaaa", "held on 5 of 5 nodes, 3 needed, 3.0ms left"),
            ("aa-xa", "held on 3 of 5 nodes, 3 needed, 1.0ms left; n3: free; n4: refused"),
            (
                "---?b",
                "free on 3 of 5 nodes, 3 needed; n4: no reply within 500.0ms; \
                       n5: holder 1, 5.0ms left",
            ),
            (
                "-baab",
                "unclear: held by one holder on 2 of 5 nodes, free on 1, 3 needed; n1: free; \
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

    #[test]
    fn holders_are_shown_by_their_labels() {
        let labelled = |label: &str| KeyState::Held {
            holder: Holder::new(format!("{} {label}", "ab".repeat(20)).into_bytes()),
            time_left: Some(MS),
        };
        let views = [labelled("web-3"), labelled("web-3"), labelled("db-1")];
        let view = |state| NodeView { name: "n".into(), state };
        let seen = Inspection { nodes: views.map(view).into() };
        assert_eq!((seen.label(), seen.nodes()[2].label()), (Some("web-3"), Some("db-1")));
        assert_eq!(
            seen.to_string(),
            "held by \"web-3\" on 2 of 3 nodes, 2 needed, 1.0ms left; n: holder 2 \"db-1\", 1.0ms \
             left",
        );
        assert!(!format!("{seen:?}").contains("abab"));
    }

    /// A letter for each node: `w` a writer, `-` free, `1` one reader, and `2` two of them.
    #[test]
    fn readers_are_shown_by_their_number_and_a_writer_hides_none() {
        let reader = |label: &str| {
            let holder = Holder::new(format!("{} {label}", "ab".repeat(20)).into_bytes());
            Reader { holder, time_left: MS }
        };
        let state = |letter| match letter {
            'w' => held('w', Some(MS)),
            '1' => KeyState::Read { readers: vec![reader("web-1")] },
            '2' => KeyState::Read { readers: vec![reader("web-1"), reader("web-2")] },
            _ => KeyState::Free,
        };
        for (nodes, readers, line) in [
            ("111", 1, "held by 1 reader (\"web-1\") on 3 of 3 nodes, 2 needed, 1.0ms left"),
            (
                "22-",
                2,
                "held by 2 readers (\"web-1\", \"web-2\") on 2 of 3 nodes, 2 needed, 1.0ms left; \
                 n: free",
            ),
            // The second reader has no quorum.
            ("211", 1, "held by 1 reader (\"web-1\") on 3 of 3 nodes, 2 needed, 1.0ms left"),
            ("ww1", 0, "held on 2 of 3 nodes, 2 needed, 1.0ms left; n: 1 reader"),
            ("ww2", 0, "held on 2 of 3 nodes, 2 needed, 1.0ms left; n: 2 readers"),
            ("--2", 0, "free on 2 of 3 nodes, 2 needed; n: 2 readers"),
        ] {
            let view = |letter| NodeView { name: "n".into(), state: state(letter) };
            let seen = Inspection { nodes: nodes.chars().map(view).collect() };
            assert_eq!((seen.readers().len(), seen.to_string()), (readers, line.to_owned()));
        }
    }
}
