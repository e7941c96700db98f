//! A turn: the tickets of a request, as its attempt carries them. It is all that an attempt knows
//! of waiting.

use std::sync::Arc;
use std::time::Instant;

use super::{NameSet, Ticket};
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::cluster::attempts::Slot;
use crate::resource::Key;
use crate::seam::backend::Waiters;
use crate::turns::ManagerState;
use crate::turns::queues::KeyQueue;

/// The right to compete at the nodes for the keys of a request.
#[derive(Default)]
pub(crate) struct Turn {
    tickets: Vec<Ticket>,
    /// The queue that has the gate's word, and the key whose gate is asked, if not each ticket's
    /// own.
    home: Option<Arc<NameSet>>,
    /// Since the releases have begun: when the tickets are handed over at the latest.
    handed_over_at: Option<Instant>,
    /// The gates whose answer to the release is awaited, each with the place of a key that it is
    /// asked about, and the key of the queue that hears the word.
    asked: Vec<(NodeId, usize, Key)>,
    /// What the nodes have said of writers to a reader, which has no ticket.
    said: Vec<(NodeId, Waiters)>,
}

/// The request, between two attempts.
impl Turn {
    pub(crate) fn push(&mut self, ticket: Ticket) {
        self.tickets.push(ticket);
    }

    /// The turn of a task that wants one of several keys.
    pub(crate) fn of(ticket: Ticket, set: &Arc<NameSet>) -> Self {
        Self { tickets: vec![ticket], home: Some(Arc::clone(set)), ..Self::default() }
    }

    /// The ticket of the first key. Without a home, its queue has the wait between processes.
    pub(crate) fn first(&self) -> Option<&Ticket> {
        self.tickets.first()
    }
}

/// The attempt.
impl Turn {
    /// Whether it has no ticket.
    pub(crate) const fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// The request has left between two rounds: its last attempt takes the turn back.
    pub(crate) fn take_back(&mut self, turn: Self) {
        if !turn.is_empty() {
            *self = turn;
        }
    }

    /// When the tickets are handed over at the latest.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.handed_over_at.filter(|_| !self.is_empty())
    }

    /// The releases of the attempt begin, at the nodes that owe one. Those of a lease ask the gates
    /// whether others wait: if a task here wants the key, or others waited lately, and else seldom.
    pub(crate) fn begin_releases(
        &mut self,
        attempt: Slot,
        was_held: bool,
        owing: NodeSet,
        (now, handed_over_at): (Instant, Instant),
    ) {
        self.handed_over_at = Some(handed_over_at);
        for (at, ticket) in self.tickets.iter().enumerate() {
            let (manager, key) = (&ticket.manager, &ticket.key);
            let (at, queue, gate_key) = match &self.home {
                None => (at, key, key),
                Some(home) => (0, &home.key, &home.gate_keys[0]),
            };
            if manager.begin_release(key, queue, attempt, was_held, now) {
                let gates = manager.cluster.nodes.gates(gate_key, now);
                let gate = gates.first().filter(|gate| owing.contains(**gate));
                self.asked.extend(gate.map(|gate| (*gate, at, queue.clone())));
            }
        }
    }

    /// The keys that the release at a node asks about: `keys`, those of the lock, if they have
    /// queues of their own.
    pub(crate) fn asks(&self, node: NodeId, keys: &Arc<[Key]>) -> Option<Arc<[Key]>> {
        let is_asked = self.asked.iter().any(|(gate, ..)| *gate == node);
        let keys = self.home.as_ref().map_or(keys, |home| &home.gate_keys);
        is_asked.then(|| Arc::clone(keys))
    }

    /// The release at a node has settled. What a gate has said is noted before a ticket is handed
    /// over for it, and also when all tickets are handed over already. It says nothing of the keys
    /// behind the first one that others wait for.
    pub(crate) fn note_released(
        &mut self,
        manager: &ManagerState,
        node: NodeId,
        waiters: Waiters,
        now: Instant,
    ) {
        for (_, at, queue) in self.asked.extract_if(.., |(gate, ..)| *gate == node) {
            match waiters {
                Waiters::Nobody => manager.note_word(&queue, false, now),
                Waiters::For(first) if at <= first => manager.note_word(&queue, at == first, now),
                Waiters::For(_) | Waiters::Unknown => {}
            }
        }
    }

    /// Hands over the tickets that may be handed over before a node timeout has passed, once the
    /// releases have been handed to all nodes:
    ///
    /// | nodes | handed over |
    /// |---|---|
    /// | ordered; no task here wants the key, or the gate has said that nobody waits | at once |
    /// | ordered | when the gate has answered the release; at once if it is not asked |
    /// | pool | when the release is decided, and the gate has answered |
    ///
    /// Decided is the release, or after a lost round the undo, or that a quorum of nodes owes
    /// nothing.
    pub(crate) fn hand_over(
        &mut self,
        is_ordered: bool,
        is_decided: bool,
        now: Instant,
        handed_over: &mut Vec<Ticket>,
    ) {
        let (asked, home) = (&self.asked, &self.home);
        let is_handed_over = |ticket: &mut Ticket| {
            let queue = home.as_ref().map_or(&ticket.key, |home| &home.key);
            let is_awaited = asked.iter().any(|(.., asked)| asked == queue);
            match is_ordered {
                true => !is_awaited || ticket.is_quick(now),
                false => !is_awaited && is_decided,
            }
        };
        handed_over.extend(self.tickets.extract_if(.., is_handed_over));
    }

    /// Hands all tickets over.
    pub(crate) fn end(&mut self, handed_over: &mut Vec<Ticket>) {
        handed_over.append(&mut self.tickets);
    }
}

/// A reader.
impl Turn {
    /// A node has answered the acquire.
    pub(crate) fn note_acquired(&mut self, node: NodeId, waiters: Waiters) {
        self.said.push((node, waiters));
    }

    /// Whether all of these nodes have answered.
    pub(crate) fn has_heard(&self, gates: NodeSet) -> bool {
        gates.iter().all(|gate| self.said.iter().any(|(node, _)| *node == gate))
    }

    /// The place of the first key for which a node has said that a writer waits.
    pub(crate) fn waited_for(&self) -> Option<usize> {
        let places = self.said.iter().filter_map(|(_, waiters)| match waiters {
            Waiters::For(at) => Some(*at),
            Waiters::Unknown | Waiters::Nobody => None,
        });
        places.min()
    }
}

impl Ticket {
    /// Whether the next acquire may leave right behind the release of a lease.
    fn is_quick(&self, now: Instant) -> bool {
        let is_quick = |queue: &mut KeyQueue| !queue.is_wanted() || queue.use_word(now);
        self.with(is_quick).unwrap_or(true)
    }
}
