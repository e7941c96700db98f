//! What a reply means for the wait, and the calls that its machine asks for.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Effects, RemoteWait, WaitState};
use crate::algorithm::quorum::NodeId;
use crate::algorithm::wait::{Entry, WatchedKey};
use crate::seam::backend::{CallKind, CallReply, CallResult, Capabilities, Operation, Tag};

impl WaitState {
    pub(super) fn handle_reply(
        &mut self,
        wait: &Arc<RemoteWait>,
        tag: &Tag,
        result: CallResult,
        now: Instant,
    ) {
        let nodes = &wait.cluster().nodes;
        let (gate, number) = (tag.node, tag.number);
        if let Err(error) = &result {
            let is_watch = tag.kind == CallKind::Watch;
            let lack = if is_watch { Capabilities::WATCH } else { Capabilities::QUEUE };
            let is_lack = nodes.note_lack(gate, lack, error);
            self.goal.watches.take(number);
            // Where a node cannot watch, the key counts as there, and no push comes. The next wait
            // has an entry that says so.
            if is_watch && is_lack && self.awaited == Some(number) {
                self.awaited = None;
                self.calls_to_attempt += u32::from(!mem::replace(&mut self.is_outdated, true));
                return self.machine.handle_watched(true, now);
            }
        }
        self.refreshes.retain(|(_, refresh)| *refresh != number);
        if self.leaves.iter().any(|(_, leave)| *leave == number) {
            self.leaves.retain(|(_, leave)| *leave != number);
            return;
        }
        let is_refreshing = self.refreshes.iter().any(|(at, _)| *at == gate);
        let held_back = self.held_back.iter().position(|(at, _)| *at == gate);
        if let Some(at) = held_back.filter(|_| !is_refreshing) {
            let (gate, also) = self.held_back.remove(at);
            self.leave(wait, gate, also, now);
        }
        if matches!(result, Ok(CallReply::Watched(false))) {
            // Of several watches, the machine awaits the last. A key that is not there is a push.
            self.handle_push(number, now);
        }
        if self.awaited != Some(number) {
            return;
        }
        self.awaited = None;
        match result {
            Ok(CallReply::Refreshed(mut reply)) => {
                self.goal.note_refreshed(&mut reply);
                self.machine.handle_refreshed(reply, wait.refresh_interval(), now);
            }
            Ok(CallReply::Watched(is_there)) => self.machine.handle_watched(is_there, now),
            Ok(_) | Err(_) => self.machine.handle_failure(now),
        }
    }

    /// Makes the watch in use known to the backend, which forgets the others.
    pub(super) fn publish_watch(&mut self, wait: &RemoteWait, effects: &mut Effects) {
        let watching = if self.machine.is_over() { 0 } else { self.goal.watches.lowest() };
        if wait.watching.swap(watching, Ordering::SeqCst) != watching {
            wait.wake_given_up(effects);
        }
    }

    /// A watched key was written, or is not there.
    pub(super) fn handle_push(&mut self, number: u32, now: Instant) {
        if let Some(watched) = self.goal.note_push(number) {
            self.machine.handle_push(&watched, now);
        }
    }

    /// Watches what is to be watched in place of one key. The machine awaits the last reply.
    pub(super) fn watch(
        &mut self,
        wait: &Arc<RemoteWait>,
        gate: NodeId,
        watched: WatchedKey,
        now: Instant,
        effects: &mut Effects,
    ) {
        let new = self.goal.watch(gate, watched);
        if new.is_empty() {
            return self.machine.handle_watched(true, now);
        }
        for watched in new {
            let (key, entry) = match &watched {
                WatchedKey::Lock(at) => (self.goal.keys.get(*at).unwrap_or(&wait.key), None),
                WatchedKey::Predecessor(entry) => (&wait.key, Some(entry.clone())),
            };
            let operation = Operation::Watch { key: key.clone(), entry };
            self.goal.watches.add(self.calls + 1, watched);
            self.publish_watch(wait, effects);
            self.ask(wait, gate, operation, now);
            if self.awaited.is_none() {
                // It was not sent, and the machine knows.
                return;
            }
        }
    }

    pub(super) fn leave(
        &mut self,
        wait: &Arc<RemoteWait>,
        gate: NodeId,
        also: Option<Entry>,
        now: Instant,
    ) {
        let (key, entry) = (wait.key.clone(), wait.entry.clone());
        let awaited = self.awaited;
        self.leaves.push((gate, self.calls + 1));
        self.ask(wait, gate, Operation::Leave { key, entry, also }, now);
        // The machine does not wait for it.
        self.awaited = awaited;
    }

    pub(super) fn ask(
        &mut self,
        wait: &Arc<RemoteWait>,
        gate: NodeId,
        operation: Operation,
        now: Instant,
    ) {
        self.calls += 1;
        let (number, is_watch) = (self.calls, matches!(operation, Operation::Watch { .. }));
        self.awaited = Some(number);
        let kind = if is_watch { CallKind::Watch } else { CallKind::Waiting };
        let tag = Tag { node: gate, number, begun: now, kind, asks_server: false };
        if let Err(settled) = wait.begin_call(operation, tag) {
            self.handle_reply(wait, &tag, settled.result, now);
        }
    }
}
