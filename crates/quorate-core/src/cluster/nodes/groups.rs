//! The group of the nodes: what each has said of it, and which of them have no vote (N1 to N5).

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::algorithm::group::{self, Listed, Membership, Seat, Stranger};
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeCount, NodeId};
use crate::seam::backend::{BackendError, BackendErrorKind, CallKind, ListTask};
use crate::seam::runtime::lock;

/// How often the list of a node is read again at most while nodes disagree.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// What the nodes have said of their group, each on its present connection.
#[derive(Debug)]
pub(super) struct Groups {
    /// A node has said anything. So that nodes without a group take no mutex here.
    is_used: AtomicBool,
    /// Some node has no vote.
    disagrees: AtomicBool,
    /// No node that has said anything keeps a list.
    is_unlisted: AtomicBool,
    /// The list of all nodes was completed or has changed, and no node has been told.
    is_due: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    nodes: Box<[Node]>,
    /// The list that all nodes have to keep, once each has said its id and all agree.
    list: Option<Arc<[Listed]>>,
}

#[derive(Debug)]
struct Node {
    name: Arc<str>,
    says: Option<Arc<Membership>>,
    /// Why it has no vote.
    stranger: Option<BackendError>,
    /// When its list was last read again.
    read_at: Option<Instant>,
}

impl Node {
    fn seat(&self) -> Seat<'_> {
        Seat { name: &self.name, says: self.says.as_deref() }
    }
}

impl Groups {
    pub(super) fn new(names: impl Iterator<Item = Arc<str>>) -> Self {
        let node = |name| Node { name, says: None, stranger: None, read_at: None };
        let state = Mutex::new(State { nodes: names.map(node).collect(), list: None });
        let (is_used, disagrees, is_unlisted, is_due) = Default::default();
        Self { is_used, disagrees, is_unlisted, is_due, state }
    }

    /// Notes what a node says of its group.
    pub(super) fn note(&self, id: NodeId, says: &Arc<Membership>) {
        self.is_used.store(true, Ordering::Release);
        self.change(id, |own| {
            let is_known = own.as_ref().is_some_and(|own| Arc::ptr_eq(own, says) || own == says);
            (!is_known).then(|| *own = Some(Arc::clone(says)))
        });
    }

    /// The connection has ended: the next one may lead to another server, or to other data.
    pub(super) fn forget(&self, id: NodeId) {
        if self.is_used.load(Ordering::Acquire) {
            self.change(id, |own| own.take().map(drop));
        }
    }

    /// What a node says of its group.
    pub(super) fn says(&self, id: NodeId) -> Option<Arc<Membership>> {
        match self.is_used.load(Ordering::Acquire) {
            true => lock(&self.state).nodes[id.index()].says.clone(),
            false => None,
        }
    }

    /// The nodes without a vote, and why: by what each said when it `voted`, else by what it says
    /// now.
    pub(super) fn strangers(
        &self,
        voted: &[Option<Arc<Membership>>],
    ) -> Vec<(NodeId, BackendError)> {
        if !self.is_used.load(Ordering::Acquire) {
            return Vec::new();
        }
        let state = lock(&self.state);
        let voted = voted.iter().chain(iter::repeat(&None));
        let seats: Vec<_> = { state.nodes.iter() }
            .zip(voted)
            .map(|(node, voted)| Seat {
                name: &node.name,
                says: voted.as_deref().or(node.says.as_deref()),
            })
            .collect();
        let ids = NodeCount::new(seats.len()).into_iter().flat_map(NodeCount::ids);
        let strangers = ids.zip(group::strangers(&seats));
        strangers.filter_map(|(id, why)| Some((id, error_of(why?)))).collect()
    }

    /// Why a node has no vote.
    pub(super) fn stranger(&self, id: NodeId) -> Option<BackendError> {
        match self.disagrees.load(Ordering::Acquire) {
            true => lock(&self.state).nodes[id.index()].stranger.clone(),
            false => None,
        }
    }

    pub(super) fn is_unlisted(&self) -> bool {
        self.is_unlisted.load(Ordering::Acquire)
    }

    /// The nodes that have to keep another list, since the answer to a call of this kind: nobody
    /// has told them. A question writes no list, unless a person has accepted a new one.
    pub(super) fn take_lacking(&self, kind: CallKind) -> NodeSet {
        if !self.is_due.load(Ordering::Acquire) {
            return NodeSet::default();
        }
        let state = lock(&self.state);
        let is_new = state.nodes.iter().flat_map(|node| &node.says).any(|says| says.is_new_list);
        let is_of_lock = kind.sets_ttl() || kind == CallKind::Release;
        if !(is_of_lock || is_new) || !self.is_due.swap(false, Ordering::AcqRel) {
            return NodeSet::default();
        }
        let lacks = |node: &Node| {
            let list = state.list.as_ref().zip(node.says.as_ref());
            list.is_some_and(|(list, says)| !group::is_same(list, &says.list))
        };
        let ids = NodeCount::new(state.nodes.len()).into_iter().flat_map(NodeCount::ids);
        ids.filter(|id| lacks(&state.nodes[id.index()])).collect()
    }

    /// What a call is to do with the list of its node.
    pub(super) fn task(&self, id: NodeId, kind: CallKind, now: Instant) -> ListTask {
        if !self.is_used.load(Ordering::Acquire) {
            return ListTask::Nothing;
        }
        let mut state = lock(&self.state);
        if kind == CallKind::List {
            return state.list.clone().map_or(ListTask::Nothing, ListTask::Keep);
        }
        let node = &mut state.nodes[id.index()];
        let is_due = node.read_at.is_none_or(|at| now.saturating_duration_since(at) >= READ_AGAIN);
        let may_read = kind.sets_ttl() || kind == CallKind::Question;
        if !may_read || !is_due || !self.disagrees.load(Ordering::Acquire) {
            return ListTask::Nothing;
        }
        node.read_at = Some(now);
        ListTask::Read
    }

    /// Compares all nodes again, if `change` has changed what a node says.
    fn change(&self, id: NodeId, change: impl FnOnce(&mut Option<Arc<Membership>>) -> Option<()>) {
        let mut state = lock(&self.state);
        if change(&mut state.nodes[id.index()].says).is_none() {
            return;
        }
        let seats = state.nodes.iter().map(Node::seat).collect::<Vec<_>>();
        let (strangers, list) = (group::strangers(&seats), group::list(&seats));
        let lists = || seats.iter().filter_map(|seat| seat.says).map(|says| &says.list);
        let is_unlisted = lists().count() > 0 && lists().all(Vec::is_empty);
        self.is_unlisted.store(is_unlisted, Ordering::Release);
        self.disagrees.store(strangers.iter().any(Option::is_some), Ordering::Release);
        self.is_due.store(list.is_some(), Ordering::Release);
        state.list = list;
        for (node, stranger) in state.nodes.iter_mut().zip(strangers) {
            node.stranger = stranger.map(error_of);
        }
    }
}

fn error_of(why: Stranger) -> BackendError {
    let kind = match why.is_twin {
        true => BackendErrorKind::Identity,
        false => BackendErrorKind::Stranger,
    };
    BackendError::new(kind, why.text)
}
