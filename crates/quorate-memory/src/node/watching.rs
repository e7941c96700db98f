//! A watch of one key, from the request to the push.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::select;
use quorate_core::BackendError;
use quorate_core::backend::seam::Watched;

use super::process::{Process, Sent, lost};
use crate::store::{Value, wrong_type};

/// A registered watch. Dropping it ends the watch.
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
    let (id, pushed) = process.lock().watches.begin(key.clone(), sent.client);
    let registered = Registered { process: Arc::clone(process), id };
    let watched_key = key.clone();
    let reply = process.send(sent, move |state, now| {
        state.watches.hear(id);
        match state.store.get(&watched_key, now) {
            None => Ok(false),
            Some(Value::String(_)) => Ok(true),
            Some(_) => Err(wrong_type()),
        }
    });
    let is_held = reply.await.unwrap_or_else(|| Err(lost("the node is gone")))?;
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
