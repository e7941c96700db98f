//! Watches on a node: who is told when a key changes, and what becomes of the news on its way.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use futures_util::future::{Either, select};
use quorate_core::{BackendError, Holder, Key, Watched};

use super::process::{Arrive, Shared, State, gone};
use crate::fault::Fault;
use crate::observer::Observed;
use crate::reply::{Reply, Sender, reply};
use crate::rule::{Journey, Operation};
use crate::store::{Value, wrong_type};

type Outcome = Result<(), BackendError>;

/// What a look has seen.
type Seen = Result<Option<Holder>, BackendError>;

/// The watches whose callers still wait, in the order in which they were begun.
#[derive(Default)]
pub(super) struct Entries {
    watches: BTreeMap<u64, Entry>,
    begun: u64,
}

struct Entry {
    key: Key,
    client: Option<usize>,
    /// Whether the request has come.
    is_heard: bool,
    answer: Sender<Outcome>,
}

impl Entries {
    fn take(&mut self, which: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let ids = self.watches.iter().filter(|(_, entry)| which(entry)).map(|(id, _)| *id);
        let ids: Vec<u64> = ids.collect();
        ids.iter().filter_map(|id| self.watches.remove(id)).collect()
    }
}

impl Shared {
    /// Looks at `key`, and watches it from then on.
    pub(super) async fn watch(
        self: &Arc<Self>,
        key: &Key,
        client: Option<usize>,
    ) -> Result<Watched, BackendError> {
        let (watch, told, seen) = self.begin(key, client);
        let lost = || gone("the node is gone");
        // What is told before the answer comes is for later, but for the end of the connection.
        let (holder, told) = match select(seen, told).await {
            Either::Left((seen, told)) => {
                (seen.unwrap_or_else(|| Err(lost()))?, Either::Left(told))
            }
            Either::Right((told, seen)) => {
                let told = told.unwrap_or_else(|| Err(lost()));
                if let Err(error) = told {
                    return Err(error);
                }
                (seen.await.unwrap_or_else(|| Err(lost()))?, Either::Right(told))
            }
        };
        // What is free does not expire, and what has expired is there until it is written over.
        let key = holder.as_ref().map(|_| key.clone());
        Ok(Watched::new(holder, async move {
            let told = match told {
                Either::Left(told) => told,
                Either::Right(told) => return told,
            };
            let expired = pin!(async {
                if let Some(key) = &key {
                    watch.shared.mind_expiry(key).await;
                }
                pending::<()>().await;
            });
            match select(told, expired).await {
                Either::Left((told, _)) => told.unwrap_or_else(|| Err(lost())),
                Either::Right(_) => Err(lost()),
            }
        }))
    }

    /// Puts the request of a watch on its way. What comes back is the watch, what it is told, and
    /// what was seen when it was heard of.
    fn begin(
        self: &Arc<Self>,
        key: &Key,
        client: Option<usize>,
    ) -> (Watch, Reply<Outcome>, Reply<Seen>) {
        let (answer, told) = reply();
        let (sees, seen) = reply();
        let mut state = self.lock();
        state.tell(Observed::Sent { operation: Operation::Watch, client });
        let journey = self.journey(&state, Operation::Watch, client);
        state.watched.begun += 1;
        let id = state.watched.begun;
        let entry = Entry { key: key.clone(), client, is_heard: false, answer };
        state.watched.watches.insert(id, entry);
        drop(state);
        if journey.loses_request {
            sees.forget();
        } else {
            let shared = Arc::clone(self);
            let request = Box::new(Request { id, journey, sees });
            self.after(journey.request, move || shared.arrive(request));
        }
        (Watch { shared: Arc::clone(self), id }, told, seen)
    }

    /// Tells of the expiry of a key for which somebody waits, once it has come.
    ///
    /// It runs with the watch, not in the background: a watch that was given up sets no timer.
    async fn mind_expiry(&self, key: &Key) {
        loop {
            let Some(end) = self.end_of(key) else { return };
            self.runtime.sleep_until(end).await;
            let mut state = self.lock();
            let now = self.local(&state);
            if state.store.get(key.as_bytes(), now).is_none() {
                state.store.note_change(key.as_bytes());
                return self.tell(state);
            }
        }
    }

    /// When the key will end, by the clock of the runtime. `None` if it has no end.
    fn end_of(&self, key: &Key) -> Option<Instant> {
        let state = self.lock();
        let end = state.store.end_of(key.as_bytes())?;
        Some(state.clock.when(end))
    }

    /// Tells of the keys that have changed. A process that is stopped tells it when it goes on.
    pub(super) fn tell(&self, mut state: MutexGuard<'_, State>) {
        if matches!(state.fault, Some(Fault::Hung)) {
            return;
        }
        let changed = state.store.take_changes();
        if changed.is_empty() {
            return;
        }
        let meant = |entry: &Entry| {
            entry.is_heard && changed.iter().any(|key| key.as_slice() == entry.key.as_bytes())
        };
        let entries = state.watched.take(meant);
        self.send_all(state, entries, &Ok(()));
    }

    /// The process ends, and with it all connections.
    pub(super) fn end_watches(&self, mut state: MutexGuard<'_, State>) {
        let entries = state.watched.take(|_| true);
        self.send_all(state, entries, &Err(gone("the connection was lost")));
    }

    /// Every message has a journey of its own, under the rules of the moment.
    fn send_all(&self, state: MutexGuard<'_, State>, entries: Vec<Entry>, outcome: &Outcome) {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|entry| (self.journey(&state, Operation::Watch, entry.client), entry.answer))
            .collect();
        drop(state);
        for (journey, answer) in entries {
            self.answer(journey, answer, outcome.clone());
        }
    }
}

/// The caller's hold on a watch: with it, the watch ends.
struct Watch {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let ended = self.shared.lock().watched.watches.remove(&self.id);
        drop(ended);
    }
}

/// The request of a watch.
struct Request {
    id: u64,
    journey: Journey,
    sees: Sender<Seen>,
}

impl Arrive for Request {
    fn carry_out(
        self: Box<Self>,
        failure: Option<BackendError>,
        mut state: MutexGuard<'_, State>,
        node: &Shared,
    ) {
        let Self { id, journey, sees } = *self;
        let now = node.local(&state);
        // Given up, or ended with an earlier run of the node.
        let State { watched, store, .. } = &mut *state;
        let Some(entry) = watched.watches.get_mut(&id) else { return sees.forget() };
        // Who waits for an answer that is lost is told of the end of the connection, and of nothing else.
        entry.is_heard = !journey.loses_reply;
        let there = store.get(entry.key.as_bytes(), now).cloned();
        drop(state);
        let seen = match (failure, there) {
            (Some(failure), _) => Err(failure),
            (None, Some(Value::List)) => Err(wrong_type()),
            (None, Some(Value::String(value))) => Ok(Some(Holder::new(value))),
            (None, None) => Ok(None),
        };
        node.answer(journey, sees, seen);
    }

    /// The watch was told with all the others.
    fn fail(self: Box<Self>, _: &'static str) {
        self.sees.forget();
    }
}
