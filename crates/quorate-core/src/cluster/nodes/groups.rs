//! The group of the nodes: what each has said of it, and which of them have no vote (N1 to N5).
//!
//! The answer to an acquire, an extension or a release begins to write a list that is due
//! (`Cluster::follow_group`); no caller waits for that. A list that another client has changed
//! meanwhile stays.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::algorithm::group::{self, Listed, Membership, Seat, Stranger};
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeCount, NodeId};
use crate::seam::backend::{BackendError, BackendErrorKind, CallKind, ListTask};
use crate::seam::runtime::lock;

/// How often the list of a node is read again at most while nodes disagree, or none keeps a list,
/// and written again while the node does not keep it.
const AGAIN: Duration = Duration::from_secs(1);

/// What the nodes have said of their group, each on its present connection.
#[derive(Debug)]
pub(crate) struct Groups {
    /// A node has said anything. So that nodes without a group take no mutex here.
    is_used: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    nodes: Box<[Node]>,
    /// No node that has said anything keeps a list.
    is_unlisted: bool,
    /// The list that all nodes have to keep, once each has said its id and all agree.
    list: Option<Arc<[Listed]>>,
    /// Some node may have to keep that list.
    is_due: bool,
    /// A node has lost its vote, and no attempt has been told.
    has_strangers: bool,
}

#[derive(Debug)]
struct Node {
    name: Arc<str>,
    says: Option<Arc<Membership>>,
    /// Why it has no vote.
    stranger: Option<BackendError>,
    /// When its list was last read again.
    read_at: Option<Instant>,
    /// When it was last told to keep the list, if it has said the same since.
    told_at: Option<Instant>,
}

/// For each node why it has no vote, and whether none keeps a list.
pub(crate) type Judgement = (Vec<Option<BackendError>>, bool);

impl Node {
    fn seat(&self) -> Seat<'_> {
        Seat { name: &self.name, says: self.says.as_deref() }
    }

    /// Whether it has to keep the list of all.
    fn lacks(&self, list: Option<&[Listed]>) -> bool {
        // A person may have accepted a list for its names.
        list.zip(self.says.as_ref()).is_some_and(|(list, says)| match says.is_new_list {
            true => *list != *says.list,
            false => !group::is_same(list, &says.list),
        })
    }
}

impl Groups {
    pub(super) fn new(names: impl Iterator<Item = Arc<str>>) -> Self {
        let node = |name| Node { name, says: None, stranger: None, read_at: None, told_at: None };
        let (is_unlisted, list, is_due, has_strangers) = Default::default();
        let nodes = names.map(node).collect();
        let state = Mutex::new(State { nodes, is_unlisted, list, is_due, has_strangers });
        Self { is_used: AtomicBool::new(false), state }
    }

    /// What is known of the group. `None` without one.
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        self.is_used.load(Ordering::Acquire).then(|| lock(&self.state))
    }

    /// Notes what a node says of its group.
    pub(crate) fn note(&self, id: NodeId, says: &Arc<Membership>) {
        self.is_used.store(true, Ordering::Release);
        lock(&self.state).change(id, |own| {
            let is_known = own.as_ref().is_some_and(|own| Arc::ptr_eq(own, says) || own == says);
            (!is_known).then(|| *own = Some(Arc::clone(says)))
        });
    }

    /// The connection has ended: the next one may lead to another server, or to other data.
    pub(super) fn forget(&self, id: NodeId) {
        if let Some(mut state) = self.state() {
            state.change(id, |own| own.take().map(drop));
        }
    }

    /// What a node says of its group.
    pub(super) fn says(&self, id: NodeId) -> Option<Arc<Membership>> {
        self.state()?.nodes[id.index()].says.clone()
    }

    /// Judges the nodes by what each says now, if it has the data still that `voted`, else by what
    /// it said then. `None` without a group.
    pub(crate) fn judge(&self, voted: &[Option<Arc<Membership>>]) -> Option<Judgement> {
        let state = self.state()?;
        let voted = |at: usize| voted.get(at).and_then(Option::as_deref);
        let other = |(at, node): (usize, &Node)| {
            let (voted, says) = (voted(at)?, node.says.as_deref()?);
            (voted.id != says.id).then_some(voted)
        };
        let others: Vec<_> = state.nodes.iter().enumerate().map(other).collect();
        let seats: Vec<_> = { state.nodes.iter().enumerate() }
            .map(|(at, node)| Seat {
                name: &node.name,
                says: others[at].or(node.says.as_deref()).or_else(|| voted(at)),
            })
            .collect();
        let strangers = { group::strangers(&seats).into_iter().zip(&others) }
            .map(|(why, other)| why.or_else(|| other.map(|_| replaced())).map(error_of));
        Some((strangers.collect(), is_unlisted(&seats)))
    }

    /// Why a node has no vote.
    pub(crate) fn stranger(&self, id: NodeId) -> Option<BackendError> {
        self.state()?.nodes[id.index()].stranger.clone()
    }

    /// Whether a node has lost its vote since this was asked last.
    pub(crate) fn take_has_strangers(&self) -> bool {
        self.state().is_some_and(|mut state| mem::take(&mut state.has_strangers))
    }

    /// The nodes that have to keep another list and have not been told in the last second, by an
    /// answer to a call of this kind. A question writes no list, unless a person has accepted a new
    /// one.
    pub(crate) fn take_lacking(&self, kind: CallKind, now: Instant) -> NodeSet {
        let Some(mut state) = self.state().filter(|state| state.is_due) else {
            return NodeSet::default();
        };
        let is_new = state.nodes.iter().flat_map(|node| &node.says).any(|says| says.is_new_list);
        let is_of_lock = kind.sets_ttl() || kind == CallKind::Release;
        if !(is_of_lock || is_new) {
            return NodeSet::default();
        }
        let State { nodes, list, is_due, .. } = &mut *state;
        let mut lacking = NodeSet::default();
        *is_due = false;
        let ids = NodeCount::new(nodes.len()).into_iter().flat_map(NodeCount::ids);
        for (id, node) in ids.zip(nodes).filter(|(_, node)| node.lacks(list.as_deref())) {
            *is_due = true;
            if is_over(node.told_at, now) {
                node.told_at = Some(now);
                lacking.insert(id);
            }
        }
        lacking
    }

    /// Why a node does not keep the list of this client, which a person has accepted.
    pub(crate) fn not_kept(&self) -> Vec<Option<BackendError>> {
        let state = lock(&self.state);
        let error = |node: &Node| {
            let is_new = node.says.as_ref().is_some_and(|says| says.is_new_list);
            let text = "it does not keep the list of this client: accept it again";
            (is_new && node.lacks(state.list.as_deref()))
                .then(|| BackendError::new(BackendErrorKind::Stranger, text))
        };
        state.nodes.iter().map(error).collect()
    }

    /// What a call is to do with the list of its node.
    pub(super) fn task(&self, id: NodeId, kind: CallKind, now: Instant) -> ListTask {
        let Some(mut state) = self.state() else { return ListTask::Nothing };
        let State { nodes, list, is_unlisted, .. } = &mut *state;
        let may_be_old = *is_unlisted || nodes.iter().any(|node| node.stranger.is_some());
        let node = &mut nodes[id.index()];
        if kind == CallKind::List {
            return match (list, &node.says) {
                (Some(list), Some(says)) => {
                    let is_on = |node: &&Listed| list.iter().any(|line| line.id == node.id);
                    let gone = says.list.iter().filter(|node| !is_on(node)).cloned().collect();
                    ListTask::Keep { list: Arc::clone(list), gone, before: Arc::clone(says) }
                }
                _ => ListTask::Nothing,
            };
        }
        let may_read = kind.sets_ttl() || kind == CallKind::Question;
        if !may_read || !may_be_old || !is_over(node.read_at, now) {
            return ListTask::Nothing;
        }
        node.read_at = Some(now);
        ListTask::Read
    }
}

impl State {
    /// Compares all nodes again, if `change` has changed what a node says.
    fn change(
        &mut self,
        id: NodeId,
        change: impl FnOnce(&mut Option<Arc<Membership>>) -> Option<()>,
    ) {
        let node = &mut self.nodes[id.index()];
        if change(&mut node.says).is_none() {
            return;
        }
        node.told_at = None;
        let seats = self.nodes.iter().map(Node::seat).collect::<Vec<_>>();
        let (strangers, list) = (group::strangers(&seats), group::list(&seats));
        self.is_unlisted = is_unlisted(&seats);
        (self.is_due, self.list) = (list.is_some(), list);
        for (node, stranger) in self.nodes.iter_mut().zip(strangers) {
            self.has_strangers |= stranger.is_some() && node.stranger.is_none();
            node.stranger = stranger.map(error_of);
        }
    }
}

/// Whether something that was done then may be done again.
fn is_over(at: Option<Instant>, now: Instant) -> bool {
    at.is_none_or(|at| now.saturating_duration_since(at) >= AGAIN)
}

/// Whether no node that has said anything keeps a list.
fn is_unlisted(seats: &[Seat<'_>]) -> bool {
    let mut lists = seats.iter().filter_map(|seat| seat.says).map(|says| &says.list).peekable();
    lists.peek().is_some() && lists.all(Vec::is_empty)
}

/// Why a node has no vote that is not the one any more that has voted.
fn replaced() -> Stranger {
    let text = "it was replaced, or has lost its data, since it voted".to_owned();
    Stranger { is_twin: false, text }
}

fn error_of(why: Stranger) -> BackendError {
    let kind = match why.is_twin {
        true => BackendErrorKind::Identity,
        false => BackendErrorKind::Stranger,
    };
    BackendError::new(kind, why.text)
}
