//! When a node is looked at: once while the lease is held, and when the node has pushed.

use std::time::{Duration, Instant};

use super::super::lease::{earlier, saturating_add};
use super::super::quorum::NodeId;
use super::messages::Message;
use super::{AttemptMachine, Phase};

/// For how long a lock is held without a look. A shorter hold costs no command more.
const FIRST: Duration = Duration::from_millis(100);

/// The pause after a push for nothing (P3).
const PAUSE: Duration = Duration::from_secs(1);

/// Whether a node is to be looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looking {
    pub(super) reason: Option<LookReason>,
    /// A push asked for the look in flight.
    pub(super) is_told: bool,
    /// The end of the pause after a push for nothing.
    pub(super) paused_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LookReason {
    First,
    /// The node has pushed.
    Told,
}

impl Looking {
    /// The node was looked at, and nothing had changed.
    pub(super) fn note_ours(&mut self, now: Instant) {
        if self.is_told {
            self.paused_until = Some(saturating_add(now, PAUSE));
        }
    }
}

impl<E: Clone, H: Clone + Default> AttemptMachine<E, H> {
    /// A node has pushed that a key was written, or may have been. That is a reason to look, and no
    /// more (P1).
    pub fn handle_push(&mut self, node: NodeId, now: Instant) {
        self.decide(now);
        if self.is_held() && self.settings.pushing.contains(node) {
            self.nodes[node.index()].looking.reason = Some(LookReason::Told);
            self.look_at(node, now);
        }
    }

    pub(super) fn plan_first_look(&mut self, now: Instant) {
        if !self.settings.pushing.is_empty() {
            self.timers.look = Some(saturating_add(now, FIRST));
        }
    }

    /// The time for the first look has come, or the end of a pause.
    pub(super) fn look(&mut self, now: Instant) {
        self.timers.look = None;
        if matches!(self.phase, Phase::Acquiring | Phase::Adopting | Phase::Raising) {
            self.plan_first_look(now);
        }
        if self.is_held() {
            let is_first = !std::mem::replace(&mut self.has_looked, true);
            for id in self.settings.pushing.iter() {
                if is_first {
                    self.nodes[id.index()].looking.reason.get_or_insert(LookReason::First);
                }
                self.look_at(id, now);
            }
        }
    }

    /// Looks at a node, if that is wanted, no look is in flight there, and no pause goes on (P3).
    pub(super) fn look_at(&mut self, id: NodeId, now: Instant) {
        let is_held = self.is_held();
        let node = &mut self.nodes[id.index()];
        let is_awaited = node.awaits_look();
        let looking = &mut node.looking;
        let Some(reason) = looking.reason.filter(|_| is_held && !is_awaited) else {
            return;
        };
        match looking.paused_until.filter(|until| *until > now) {
            Some(until) => self.timers.look = earlier(self.timers.look, Some(until)),
            None => {
                (looking.reason, looking.is_told) = (None, reason == LookReason::Told);
                self.send(id, Message::Look, now);
            }
        }
    }
}
