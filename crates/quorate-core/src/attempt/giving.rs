//! Gives the tickets of an attempt on, once its releases have begun.
//!
//! When is the pure function [`Ending::is_given_on`].

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use super::identity::{Identity, Owner};
use crate::algorithm::lease::saturating_add;
use crate::backend::{Call, CallKind, CallReply, CallResult, Operation, Tag};
use crate::remote_wait::RemoteWait;
use crate::tickets::{Ending, Hint, Ticket};

/// The tickets of an attempt.
pub(super) struct Giving {
    tickets: Vec<Held>,
    /// Since the releases have begun: when the tickets are given on at the latest.
    until: Option<Instant>,
}

struct Held {
    ticket: Ticket,
    /// The place of its key in the claim.
    index: usize,
    hint: Hint,
    /// No gate could be asked: then nobody waits there.
    has_no_gate: bool,
}

impl Giving {
    pub(super) fn new(tickets: Vec<Ticket>) -> Self {
        let mut giving = Self { tickets: Vec::with_capacity(tickets.len()), until: None };
        giving.add(tickets);
        giving
    }

    pub(super) fn add(&mut self, tickets: Vec<Ticket>) {
        let held =
            |(index, ticket)| Held { ticket, index, hint: Hint::NotAsked, has_no_gate: false };
        self.tickets.extend(tickets.into_iter().enumerate().map(held));
    }

    /// Takes the tickets, for the request that goes on.
    pub(super) fn take(&mut self) -> Vec<Ticket> {
        mem::take(&mut self.tickets).into_iter().map(|held| held.ticket).collect()
    }

    /// The lock was won: the wait between processes for its first key ends.
    pub(super) fn end_wait(&self, now: Instant) -> Option<Arc<RemoteWait>> {
        self.tickets.first()?.ticket.end_wait(now)
    }

    /// When the tickets are given on at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        self.until.filter(|_| !self.tickets.is_empty())
    }

    /// The gate has answered a hint. The word is known before a ticket is given on for it.
    pub(super) fn handle_hint(
        &mut self,
        attempt: &Identity,
        tag: &Tag,
        result: CallResult,
        now: Instant,
    ) {
        let index = usize::try_from(LAST_HINT - tag.number).unwrap_or(usize::MAX);
        if let (Ok(CallReply::Waiters(others_wait)), Some(key)) =
            (result, attempt.claim.keys().get(index))
        {
            attempt.queues.note_word(key, others_wait, now);
        }
        if let Some(held) = self.tickets.iter_mut().find(|held| held.index == index) {
            held.hint = Hint::Answered;
        }
    }
}

/// Numbers of the machine's calls begin at 1, and those of hints end here.
const LAST_HINT: u64 = u64::MAX;

/// What is known of an attempt whose releases have been handed to all nodes that take them.
#[derive(Clone, Copy)]
pub(super) struct Releases {
    /// The release is decided; after a lost round or a drop, the undo is.
    pub(super) is_decided: bool,
    /// Nothing is left to await.
    pub(super) is_over: bool,
}

impl Giving {
    /// Returns what can be given on now.
    pub(super) fn give(
        &mut self,
        attempt: &dyn Owner,
        releases: Releases,
        now: Instant,
    ) -> Vec<Ticket> {
        if self.tickets.is_empty() {
            return Vec::new();
        }
        let until = match self.until {
            Some(until) => until,
            None => {
                let until = saturating_add(now, attempt.node_timeout);
                self.until = Some(until);
                self.ask_for_hints(attempt, now);
                until
            }
        };
        let Releases { is_decided, is_over } = releases;
        let is_ordered = attempt.cluster().nodes.all_ordered();
        let was_held = attempt.won.get().is_some();
        let is_late = is_over || now >= until;
        let is_given_on = |held: &mut Held| {
            let has_local = held.ticket.has_local();
            let may_pass = is_ordered && was_held && has_local && !is_late;
            let is_alone = may_pass && (held.has_no_gate || held.ticket.use_word(now));
            let hint = held.hint;
            Ending { is_ordered, was_held, has_local, is_alone, hint, is_decided, is_late }
                .is_given_on()
        };
        self.tickets.extract_if(.., is_given_on).map(|held| held.ticket).collect()
    }

    /// Asks the gate of each key whether others wait, behind the release in the same pipeline.
    fn ask_for_hints(&mut self, attempt: &dyn Owner, now: Instant) {
        let cluster = attempt.cluster();
        for held in &mut self.tickets {
            if !held.ticket.begin_ending(attempt.releasing(), now) {
                continue;
            }
            let key = held.ticket.key().clone();
            let Some(node) = cluster.nodes.gates(&key, now).first().copied() else {
                held.has_no_gate = true;
                continue;
            };
            let (number, kind) = (LAST_HINT - held.index as u64, CallKind::Waiting);
            let tag = Tag { node, number, begun: now, kind, asks_server: false };
            let call = Call::new(Operation::Hint { key }, tag, attempt.sender());
            held.hint = match cluster.nodes.begin(node, call, &*cluster.runtime, now) {
                Ok(_) => Hint::Asked,
                Err(_) => Hint::Answered,
            };
        }
    }
}
