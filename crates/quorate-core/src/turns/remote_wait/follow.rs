//! What a reply means for the wait, and the calls that its machine asks for.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{RemoteWait, WaitEffects, WaitState};
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::algorithm::wait::{Entry, WaitAction, WatchedKey};
use crate::cluster::shell::waiting::Awaited;
use crate::seam::backend::{
    Answered, Call, CallKind, CallReply, CallResult, Capabilities, Operation, Tag,
};

/// After how long an entry that nobody refreshes has left no key at the gate.
const ENTRY_LASTS: Duration = Duration::from_secs(10);

impl WaitState {
    pub(super) fn handle_reply(
        &mut self,
        wait: &Arc<RemoteWait>,
        tag: &Tag,
        result: CallResult,
        now: Instant,
        effects: &mut WaitEffects,
    ) {
        let nodes = &wait.cluster.nodes;
        let (gate, number) = (tag.node, tag.number);
        if let Err(error) = &result {
            let is_watch = tag.kind == CallKind::Watch;
            let lack = if is_watch { Capabilities::WATCH } else { Capabilities::QUEUE };
            let is_lack = nodes.note_lack(gate, lack, error);
            self.watches.take(number);
            // Where a node cannot watch, the key counts as there, and no push comes. The next wait has an entry that
            // says so.
            if is_watch && is_lack && self.awaited == Some(number) {
                self.awaited = None;
                self.calls_to_attempt += u32::from(!mem::replace(&mut self.is_outdated, true));
                return self.machine.handle_watched(true, now);
            }
        }
        self.refreshes.retain(|(_, refresh)| *refresh != number);
        if self.leaves.iter().any(|(_, leave)| *leave == number) {
            self.leaves.retain(|(_, leave)| *leave != number);
            if let Ok(CallReply::Waiters(others_wait)) = result {
                effects.hint = Some((others_wait, now));
            }
            return;
        }
        let held_back = self.held_back.iter().position(|(at, _)| *at == gate);
        if let Some(at) = held_back {
            let (gate, also) = self.held_back.remove(at);
            self.leave(wait, gate, also, now);
        }
        if self.awaited != Some(number) {
            if matches!(result, Ok(CallReply::Watched(false))) {
                // Of several watches, the machine awaits the last. An earlier key that is not there is a push.
                self.handle_push(number, now);
            }
            return;
        }
        self.awaited = None;
        match result {
            Ok(CallReply::Refreshed(mut reply)) => {
                if let Some(free) = self.goal.note_free(&mut reply) {
                    self.watches.forget(&free);
                }
                self.machine.handle_refreshed(reply, wait.refresh_interval(), now);
            }
            Ok(CallReply::Watched(is_there)) => {
                if !is_there && let Some(watched) = self.watches.take(number) {
                    self.goal.note_push(watched);
                }
                self.machine.handle_watched(is_there, now);
            }
            Ok(_) | Err(_) => self.machine.handle_failure(now),
        }
    }

    /// Carries out what the machine asks for.
    pub(super) fn follow(
        &mut self,
        wait: &Arc<RemoteWait>,
        now: Instant,
        effects: &mut WaitEffects,
    ) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                WaitAction::Attempt => self.calls_to_attempt += 1,
                WaitAction::Refresh(gate) => {
                    let (key, entry) = (wait.key.clone(), wait.entry.clone());
                    let (locks, choice) = self.goal.sought();
                    self.refreshes.push((gate, self.calls + 1));
                    self.ask(wait, gate, Operation::Refresh { key, entry, locks, choice }, now);
                }
                WaitAction::Watch(gate, watched) => self.watch(wait, gate, watched, now, effects),
                WaitAction::Leave { gate, also } => {
                    let is_behind = wait.cluster.nodes.can(gate, Capabilities::ORDERED)
                        || !self.refreshes.iter().any(|(at, _)| *at == gate);
                    match is_behind {
                        true => self.leave(wait, gate, also, now),
                        false => self.held_back.push((gate, also)),
                    }
                }
                WaitAction::Skip(gate) => wait.cluster.nodes.skip_gate(gate, now),
            }
        }
        self.publish_watch(wait, effects);
        let is_off = self.machine.is_over();
        if is_off && self.expires.is_none() {
            self.expires = now.checked_add(ENTRY_LASTS);
        }
        let is_left = self.leaves.is_empty() && self.held_back.is_empty();
        let has_expired = self.expires.is_some_and(|expires| now >= expires);
        if is_off && (is_left || has_expired) && !mem::replace(&mut self.is_over, true) {
            effects.is_over = true;
            wait.is_given_up.store(true, Ordering::SeqCst);
            effects.givers.append(&mut wait.givers.take());
        }
        // A change of the next due time concerns the task as well.
        self.wakers.move_into(&mut effects.wakers);
        self.serve(wait, effects);
    }

    /// Tells the timekeeper of the next due time, if it is earlier than what it knows.
    fn serve(&mut self, wait: &Arc<RemoteWait>, effects: &mut WaitEffects) {
        if let Some(due) = self.due()
            && self.served.is_none_or(|served| due < served)
        {
            self.served = Some(due);
            effects.wake.merge(wait.cluster.attempts.serve(wait.slot, due));
        }
    }

    /// Makes the watch in use known to the backend, which forgets the others.
    fn publish_watch(&self, wait: &RemoteWait, effects: &mut WaitEffects) {
        let watching = if self.machine.is_over() { 0 } else { self.watches.lowest() };
        if wait.watching.swap(watching, Ordering::SeqCst) != watching {
            effects.givers.append(&mut wait.givers.take());
        }
    }

    /// A watched key was written, or is not there.
    pub(super) fn handle_push(&mut self, number: u32, now: Instant) {
        if let Some(watched) = self.watches.take(number) {
            self.machine.handle_push(&self.goal.note_push(watched), now);
        }
    }

    /// Watches what is to be watched in place of one key. The machine awaits the last reply.
    fn watch(
        &mut self,
        wait: &Arc<RemoteWait>,
        gate: NodeId,
        watched: WatchedKey,
        now: Instant,
        effects: &mut WaitEffects,
    ) {
        let new = self.watches.renew(gate, self.goal.watched(watched));
        if new.is_empty() {
            return self.machine.handle_watched(true, now);
        }
        for watched in new {
            let (key, entry) = match &watched {
                WatchedKey::Lock(at) => (self.goal.key(*at).unwrap_or(&wait.key), None),
                WatchedKey::Predecessor(entry) => (&wait.key, Some(entry.clone())),
            };
            let operation = Operation::Watch { key: key.clone(), entry };
            self.watches.add(self.calls + 1, watched);
            self.publish_watch(wait, effects);
            self.ask(wait, gate, operation, now);
            if self.awaited.is_none() {
                // It was not sent, and the machine knows.
                return;
            }
        }
    }

    fn leave(&mut self, wait: &Arc<RemoteWait>, gate: NodeId, also: Option<Entry>, now: Instant) {
        let (key, entry) = (wait.key.clone(), wait.entry.clone());
        let awaited = self.awaited;
        self.leaves.push((gate, self.calls + 1));
        self.ask(wait, gate, Operation::Leave { key, entry, also }, now);
        // The machine does not wait for it.
        self.awaited = awaited;
    }

    fn ask(&mut self, wait: &Arc<RemoteWait>, gate: NodeId, operation: Operation, now: Instant) {
        self.calls += 1;
        let (number, is_watch) = (self.calls, matches!(operation, Operation::Watch { .. }));
        self.awaited = Some(number);
        let kind = if is_watch { CallKind::Watch } else { CallKind::Waiting };
        let tag = Tag { node: gate, number, begun: now, kind, asks_server: false };
        let call = Call::new(operation, tag.clone(), Arc::clone(wait) as Arc<dyn Answered>);
        let cluster = &wait.cluster;
        if let Err(not_sent) = cluster.nodes.begin(gate, call, &*cluster.runtime, now) {
            let result = Err(not_sent.error);
            self.handle_reply(wait, &tag, result, now, &mut WaitEffects::default());
        }
    }

    pub(super) fn open_nodes(&self) -> NodeSet {
        let asked = self.refreshes.iter().chain(&self.leaves).map(|(gate, _)| *gate);
        let held_back = self.held_back.iter().map(|(gate, _)| *gate);
        let own = self.machine.gate().filter(|_| self.machine.has_entry());
        asked.chain(held_back).chain(own).collect()
    }
}
