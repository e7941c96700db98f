//! A watch of one key, from the request to the push.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::select;
use quorate_core::BackendError;
use quorate_core::backend::Watched;

use super::process::{Process, Sent, State};

/// A watch that the node knows. Dropping it ends the watch.
struct Registered {
    process: Arc<Process>,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let ended = self.process.lock().watches.remove(self.id);
        drop(ended);
    }
}

/// Reads whether `key` is there, and watches it from then on.
pub(super) async fn watch(
    process: &Arc<Process>,
    key: Vec<u8>,
    sent: Sent,
) -> Result<Watched, BackendError> {
    let (node, client, watched_key) = (Arc::clone(process), sent.client, key.clone());
    let register = move |state: &mut State, now| {
        let is_held = state.store.string(&watched_key, now)?.is_some();
        let (id, pushed) = state.watches.begin(watched_key.clone(), client);
        Ok((is_held, pushed, Registered { process: Arc::clone(&node), id }))
    };
    let (is_held, pushed, registered) = process.send(sent, register).await?;
    Ok(Watched::new(is_held, async move {
        let expiry = pin!(async {
            // A key that was absent may still be stored, expired.
            if is_held {
                push_expiry(&registered.process, &key).await;
            }
            pending::<()>().await;
        });
        select(pushed, expiry).await;
    }))
}

/// Waits until `key` has expired, and pushes that.
///
/// It runs inside the watch and not in the background: a watch that was dropped sets no timer.
async fn push_expiry(process: &Process, key: &[u8]) {
    while let Some(end) = process.end_of(key) {
        process.runtime.sleep_until(end).await;
        let mut state = process.lock();
        let now = process.now(&state);
        if state.store.get(key, now).is_none() {
            state.store.note_change(key);
            return process.push_changes(state);
        }
    }
}
