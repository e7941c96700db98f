//! Watches on a node: who is told when a key changes, and what becomes of the news on its way.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use futures_util::future::{Either, select};
use quorate_core::{BackendError, Key};

use super::process::{Arrive, Shared, State, gone};
use crate::fault::Fault;
use crate::reply::{Reply, Sender, reply};
use crate::rule::{Journey, Operation};
use crate::store::{Value, wrong_type};

type Outcome = Result<(), BackendError>;

/// The watches whose callers still wait, in the order in which they were begun.
#[derive(Default)]
pub(super) struct Watched {
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

impl Watched {
    fn take(&mut self, which: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let ids = self.watches.iter().filter(|(_, entry)| which(entry)).map(|(id, _)| *id);
        let ids: Vec<u64> = ids.collect();
        ids.iter().filter_map(|id| self.watches.remove(id)).collect()
    }
}

impl Shared {
    /// Waits until `key` may be free.
    pub(super) async fn watch(self: &Arc<Self>, key: &Key, client: Option<usize>) -> Outcome {
        let (watch, told, heard) = self.begin(key, client);
        let told = pin!(told);
        let expired = pin!(async {
            if heard.await.is_some() {
                self.mind_expiry(key).await;
            }
            pending::<()>().await;
        });
        let told = match select(told, expired).await {
            Either::Left((told, _)) => told,
            Either::Right(_) => None,
        };
        drop(watch);
        told.unwrap_or_else(|| Err(gone("the node is gone")))
    }

    /// Puts the request of a watch on its way. What comes back is the watch, what it is told, and
    /// that it was heard of and the key is there.
    fn begin(
        self: &Arc<Self>,
        key: &Key,
        client: Option<usize>,
    ) -> (Watch, Reply<Outcome>, Reply<()>) {
        let (answer, told) = reply();
        let (hears, heard) = reply();
        let mut state = self.lock();
        let journey = self.journey(&state, Operation::Watch, client);
        state.watched.begun += 1;
        let id = state.watched.begun;
        let entry = Entry { key: key.clone(), client, is_heard: false, answer };
        state.watched.watches.insert(id, entry);
        drop(state);
        if journey.loses_request {
            hears.forget();
        } else {
            let shared = Arc::clone(self);
            let request = Box::new(Request { id, journey, hears });
            self.after(journey.request, move || shared.arrive(request));
        }
        (Watch { shared: Arc::clone(self), id }, told, heard)
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
    hears: Sender<()>,
}

impl Arrive for Request {
    fn carry_out(
        self: Box<Self>,
        failure: Option<BackendError>,
        mut state: MutexGuard<'_, State>,
        node: &Shared,
    ) {
        let Self { id, journey, hears } = *self;
        let now = node.local(&state);
        // Given up, or ended with an earlier run of the node.
        let Some(entry) = state.watched.watches.remove(&id) else { return };
        let there = state.store.get(entry.key.as_bytes(), now).cloned();
        let outcome = match (failure, there) {
            (Some(failure), _) => Err(failure),
            (None, None) => Ok(()),
            (None, Some(Value::List)) => Err(wrong_type()),
            (None, Some(Value::String(_))) if journey.is_cut => {
                Err(gone("the connection was lost"))
            }
            (None, Some(Value::String(_))) => {
                state.watched.watches.insert(id, Entry { is_heard: true, ..entry });
                drop(state);
                return hears.send(());
            }
        };
        drop(state);
        node.answer(journey, entry.answer, outcome);
    }

    /// The watch was told with all the others.
    fn fail(self: Box<Self>, _: &'static str) {}
}
