//! A turn: the tickets of a request, as its attempt carries them. It is all that an attempt knows of waiting.

use std::sync::Arc;
use std::time::Instant;

use super::giving::{Asking, is_given_on};
use super::{Inner, NameSet, Ticket};
use crate::cluster::attempts::Slot;
use crate::resource::Key;

/// The right to compete at the nodes for the keys of a request.
#[derive(Default)]
pub(crate) struct Turn {
    tickets: Vec<Ticket>,
    /// The queue that has the gate's hint, and the key whose gate is asked, if not each ticket's own.
    home: Option<Arc<NameSet>>,
    /// Since the releases have begun: when the tickets are given on at the latest.
    given_on_at: Option<Instant>,
}

/// How far an attempt is whose releases have been handed to all nodes.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) is_ordered: bool,
    pub(crate) was_held: bool,
    /// The release is decided, or after a lost round the undo, or a quorum of nodes owes nothing.
    pub(crate) is_decided: bool,
    /// Nothing is left to await.
    pub(crate) is_over: bool,
}

/// The request, between two attempts.
impl Turn {
    pub(crate) fn with_capacity(tickets: usize) -> Self {
        Self { tickets: Vec::with_capacity(tickets), ..Self::default() }
    }

    pub(crate) fn push(&mut self, ticket: Ticket) {
        self.tickets.push(ticket);
    }

    /// The turn of a task that wants one of several keys.
    pub(crate) fn of(ticket: Ticket, set: &Arc<NameSet>) -> Self {
        Self { tickets: vec![ticket], home: Some(Arc::clone(set)), given_on_at: None }
    }

    /// The ticket of the first key. Its queue has the wait between processes.
    pub(crate) fn first(&self) -> Option<&Ticket> {
        self.tickets.first()
    }
}

/// The attempt.
impl Turn {
    /// Whether it has been given on.
    pub(crate) const fn is_over(&self) -> bool {
        self.tickets.is_empty()
    }

    /// The request has left between two rounds: its last attempt takes the turn back.
    pub(crate) fn take_back(&mut self, turn: Self) {
        if !turn.is_over() {
            *self = turn;
        }
    }

    /// When the tickets are given on at the latest.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.given_on_at.filter(|_| !self.is_over())
    }

    pub(crate) const fn has_releases(&self) -> bool {
        self.given_on_at.is_some()
    }

    /// The releases of the attempt begin. Behind those of a lease, `ask` asks the gate of a key whether others wait, in
    /// the same pipeline: if a task here wants the key, or has waited at the gate, or locks it again and again.
    pub(crate) fn begin_releases(
        &mut self,
        attempt: Slot,
        was_held: bool,
        (now, given_on_at): (Instant, Instant),
        mut ask: impl FnMut(u32, &Key) -> Asking,
    ) {
        self.given_on_at = Some(given_on_at);
        for (at, ticket) in (0..).zip(&mut self.tickets) {
            let (mut state, key) = (ticket.manager.lock(), &ticket.key);
            let (is_asked, gate_key) = match &self.home {
                None => (state.begin_release(key, attempt, was_held, now), key),
                Some(home) => {
                    (home.begin_release(&mut state, key, attempt, was_held, now), &home.gate_key)
                }
            };
            drop(state);
            if is_asked {
                ticket.asking = ask(at, gate_key);
            }
        }
    }

    /// The gate of `key` has answered, or failed. That is noted before a ticket is given on for it, and also when all
    /// tickets are given on already.
    pub(crate) fn note_answer(
        &mut self,
        manager: &Inner,
        key: &Key,
        others_wait: Option<bool>,
        now: Instant,
    ) {
        if let Some(others_wait) = others_wait {
            manager.note_hint(self.home.as_ref().map_or(key, |home| &home.key), others_wait, now);
        }
        if let Some(ticket) = self.tickets.iter_mut().find(|ticket| ticket.key == *key) {
            ticket.asking = Asking::Answered;
        }
    }

    /// Gives on the tickets that may be given on now.
    pub(crate) fn give_on(&mut self, progress: Progress, now: Instant, given_on: &mut Vec<Ticket>) {
        if progress.is_over || self.given_on_at.is_some_and(|at| now >= at) {
            return self.end(given_on);
        }
        let is_given_on = |ticket: &mut Ticket| {
            let is_quick = progress.is_ordered && (!progress.was_held || ticket.is_quick(now));
            is_given_on(progress.is_ordered, is_quick, ticket.asking, progress.is_decided)
        };
        given_on.extend(self.tickets.extract_if(.., is_given_on));
    }

    /// Gives all tickets on.
    pub(crate) fn end(&mut self, given_on: &mut Vec<Ticket>) {
        given_on.append(&mut self.tickets);
    }
}

impl Ticket {
    /// Whether the next acquire may leave right behind the release of a lease.
    fn is_quick(&self, now: Instant) -> bool {
        let is_quick = self.with(|queue| {
            queue.tasks.is_empty() || self.asking == Asking::NoGate || queue.use_hint(now)
        });
        is_quick.unwrap_or(true)
    }
}
