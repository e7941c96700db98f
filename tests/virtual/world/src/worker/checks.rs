//! What a client checks of the answers that it gets.

use std::time::{Duration, Instant};

use quorate_core::{Lease, LockError, ReleaseError, Runtime};
use quorate_memory::Value;

use super::Worker;
use crate::history::{Begun, LockId, What};
use crate::plan::Class;
use crate::watch::Watch;
use crate::world::name;

impl Worker {
    pub(super) fn check_refusal(&self, error: &LockError) {
        if !matches!(error, LockError::Held(_) | LockError::NoQuorum(_)) {
            self.wrong(format!("a lock failed with {error}"));
        }
    }

    pub(super) fn check_deadline(&self, start: (Duration, Instant), wait: Option<Duration>) {
        // Without a timeout, or with one of zero: for a release in flight, for its round, and then for the answers to
        // the undo; else for these alone.
        let round = self.plan.node_timeout();
        let answers = round.max(Duration::from_millis(2));
        let wait = wait.filter(|wait| !wait.is_zero());
        let bound = wait.unwrap_or(round * 2) + answers + Duration::from_micros(1);
        let took = self.client().now() - start.1;
        if took > bound && !self.has_paused(start.0, self.sim.elapsed()) {
            self.wrong(format!("client {} waited {took:?} of {bound:?}", self.client().id()));
        }
    }

    /// A valid lock that no other client took is not reported as lost.
    pub(super) fn check_release(
        &self,
        resource: usize,
        was_valid: bool,
        start: Duration,
        released: Option<Result<(), ReleaseError>>,
    ) {
        let has_paused = self.has_paused(start, self.sim.elapsed());
        if let Some(Err(ReleaseError::Lost(lost))) = released
            && (was_valid && !has_paused && self.plan.class == Class::Promised)
        {
            let (client, name) = (self.client().id(), name(resource));
            self.wrong(format!("client {client} released {name}, which was valid: {lost}"));
        }
    }

    /// Relies on the lock if it says that it is valid, and checks what that is worth.
    pub(super) fn look(&self, resource: usize, is_valid: bool, watch: &Watch) {
        watch.observe();
        if !is_valid {
            return;
        }
        let (client, lock) = (self.client().id(), watch.lock);
        self.now(What::Relied(lock));
        if self.plan.class == Class::Promised && !self.is_backed(resource) {
            self.wrong(format!("client {client} relies on {lock:?}, which no quorum backs,"));
        }
    }

    /// Whether a quorum of nodes keeps one and the same token.
    fn is_backed(&self, resource: usize) -> bool {
        let mut tokens: Vec<Value> =
            self.nodes.iter().filter_map(|node| node.get(name(resource))).collect();
        tokens.sort_by_key(|token| format!("{token:?}"));
        let longest = tokens.chunk_by(PartialEq::eq).map(<[Value]>::len).max();
        longest.unwrap_or(0) > self.nodes.len() / 2
    }

    pub(super) fn granted(
        &self,
        resource: usize,
        lease: &Lease,
        begun: Option<Begun>,
        reads: bool,
    ) -> LockId {
        let until = self.world_time(lease.valid_until());
        let (now, client) = (self.sim.elapsed(), self.client().id());
        self.wrong_if(!lease.is_valid(), format!("client {client} was given a lock that is over"));
        if lease.remaining() > self.plan.validity_of(self.plan.max_ttl()) {
            self.wrong(format!("client {client} was given a lock for too long"));
        }
        let lock = self.history.granted(now, client, name(resource), until, reads);
        match (lease.fencing_token(), begun) {
            (Some(token), Some(begun)) => self.now(What::Fenced(lock, token, begun)),
            (Some(_), None) => self.wrong("a lock has a token, and no attempt asked for one"),
            _ => {}
        }
        lock
    }
}
