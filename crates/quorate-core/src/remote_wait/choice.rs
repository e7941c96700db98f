//! A wait for one of several keys. The machine sees one lock in their place, which is free if one of them is.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use super::{RemoteWait, WaitEffects, WaitState};
use crate::algorithm::quorum::NodeId;
use crate::algorithm::wait::{Refreshed, WatchedKey};
use crate::backend::{Choice, Operation};
use crate::resource::Key;

/// How many keys are watched. The others are looked at by each refresh.
const MOST_WATCHES: usize = 16;

/// The lock that the machine sees.
const ONE: WatchedKey = WatchedKey::Lock(0);

impl RemoteWait {
    /// The key that is free as far as is known. From now on it is the last one that the gate names, since the gate may not
    /// know its holder.
    pub(crate) fn take_free(self: &Arc<Self>) -> Option<Key> {
        self.state.with(self, |state, _| {
            let choosing = state.choosing.as_mut()?;
            choosing.first = choosing.free.take()?;
            state.locks.get(choosing.first).cloned()
        })
    }
}

impl WaitState {
    /// The keys that a refresh looks at. Of one of several, the gate names the last that is free.
    pub(super) fn sought(&self) -> (Arc<[Key]>, Choice) {
        let Some(choosing) = &self.choosing else { return (Arc::clone(&self.locks), Choice::All) };
        let (before, from) = self.locks.split_at(choosing.first);
        (from.iter().chain(before).cloned().collect(), Choice::Any)
    }

    /// Notes the free key of a refresh.
    pub(super) fn note_free(&mut self, reply: &mut Refreshed) {
        let Some(choosing) = &mut self.choosing else { return };
        choosing.free = reply.free.map(|at| (at + choosing.first) % self.locks.len());
        reply.held = choosing.free.is_none().then_some(0);
        // If it is free and no push came, the node has forgotten the watch.
        let free = choosing.free.map(WatchedKey::Lock);
        self.watches.retain(|(_, watched)| Some(watched) != free.as_ref());
    }

    /// Forgets a watch whose key was written, or is not there. Returns the key that the machine watches.
    pub(super) fn take_watch(&mut self, number: u32) -> Option<WatchedKey> {
        let at = self.watches.iter().position(|(watch, _)| *watch == number)?;
        let (_, watched) = self.watches.swap_remove(at);
        match (&mut self.choosing, &watched) {
            (Some(choosing), WatchedKey::Lock(at)) => {
                choosing.free = Some(*at);
                Some(ONE)
            }
            _ => Some(watched),
        }
    }

    /// Watches a key. In place of the lock of a choice, each of its keys that is not watched yet: then the machine awaits
    /// the last reply, and an earlier one that says *free* is a push.
    pub(super) fn watch(
        &mut self,
        wait: &Arc<RemoteWait>,
        gate: NodeId,
        watched: WatchedKey,
        now: Instant,
        effects: &mut WaitEffects,
    ) {
        let (mut kept, count) = (mem::take(&mut self.watches), self.locks.len());
        let wanted: Vec<WatchedKey> = match self.choosing.as_mut().filter(|_| watched == ONE) {
            None => {
                kept.clear();
                vec![watched]
            }
            Some(choosing) => {
                let is_here = choosing.watched_at.replace(gate) == Some(gate);
                kept.retain(|(_, key)| is_here && matches!(key, WatchedKey::Lock(_)));
                let keys = (0..count).map(|at| WatchedKey::Lock((at + choosing.first) % count));
                let new = keys.filter(|key| kept.iter().all(|(_, kept)| kept != key));
                new.take(MOST_WATCHES.saturating_sub(kept.len())).collect()
            }
        };
        self.watches = kept;
        if wanted.is_empty() {
            return self.machine.handle_watched(true, now);
        }
        for watched in wanted {
            self.watches.push((self.calls + 1, watched.clone()));
            self.publish_watch(wait, effects);
            let (key, entry) = match watched {
                WatchedKey::Lock(at) => (self.locks.get(at).unwrap_or(&wait.key), None),
                WatchedKey::Predecessor(entry) => (&wait.key, Some(entry)),
            };
            self.ask(wait, gate, Operation::Watch { key: key.clone(), entry }, now);
            if self.awaited.is_none() {
                // It was not sent, and the machine knows.
                return;
            }
        }
    }
}
