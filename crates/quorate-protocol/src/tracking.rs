//! The watched keys of one connection with client tracking.
//!
//! A watch is registered **before** the key is read on that connection. So a change is pushed whenever
//! it comes after the reply, and a push that comes before the reply is not missed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::reply::Push;

/// The watched keys of one connection.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    /// A push drops the sender, which wakes all watches of that key.
    keys: Mutex<HashMap<Vec<u8>, watch::Sender<()>>>,
}

/// One watch of a key. Nothing of the key is kept when the last of them is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    tracking: Arc<Tracking>,
    key: Vec<u8>,
    /// `None` while it is dropped.
    receiver: Option<watch::Receiver<()>>,
}

impl Tracking {
    /// Registers a watch, which is woken by every push that is about it from now on.
    pub(crate) fn watch(self: &Arc<Self>, key: Vec<u8>) -> Watch {
        let mut keys = self.lock();
        let sender = keys.entry(key.clone()).or_insert_with(|| watch::channel(()).0);
        let receiver = Some(sender.subscribe());
        Watch { tracking: Arc::clone(self), key, receiver }
    }

    /// Wakes the watches that a message is about.
    pub(crate) fn handle_push(&self, push: &Push) {
        match push {
            Push::Key(key) => drop(self.lock().remove(key)),
            Push::AllKeys | Push::ConnectionLost => self.lock().clear(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, watch::Sender<()>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Waits for a push about the key, or for the end of the connection.
    pub(crate) async fn changed(mut self) {
        if let Some(receiver) = &mut self.receiver {
            // Nothing is ever sent: it ends when the sender is dropped.
            let _ = receiver.changed().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut keys = self.tracking.lock();
        self.receiver = None;
        // The sender that is there may belong to later watches, which keep it.
        if keys.get(&self.key).is_some_and(|sender| sender.receiver_count() == 0) {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_push_wakes_the_watches_of_its_key() {
        let tracking = Arc::<Tracking>::default();
        let mut a = Box::pin(tracking.watch(b"a".to_vec()).changed());
        let mut also_a = Box::pin(tracking.watch(b"a".to_vec()).changed());
        let mut b = Box::pin(tracking.watch(b"b".to_vec()).changed());
        tracking.handle_push(&Push::Key(b"a".to_vec()));
        assert!(a.as_mut().now_or_never().is_some() && also_a.as_mut().now_or_never().is_some());
        assert!(b.as_mut().now_or_never().is_none());
        // A watch that has not been polled yet hears of it as well.
        let unpolled = tracking.watch(b"a".to_vec());
        for push in [Push::AllKeys, Push::ConnectionLost] {
            let c = tracking.watch(b"c".to_vec());
            tracking.handle_push(&push);
            assert!(c.changed().now_or_never().is_some(), "{push:?}");
        }
        assert!(b.now_or_never().is_some() && unpolled.changed().now_or_never().is_some());
    }

    #[test]
    fn nothing_is_kept_of_a_watch_that_was_dropped() {
        let tracking = Arc::<Tracking>::default();
        let early = tracking.watch(b"a".to_vec());
        let other = tracking.watch(b"a".to_vec());
        drop(other);
        assert_eq!(tracking.lock().len(), 1);
        tracking.handle_push(&Push::Key(b"a".to_vec()));
        let late = tracking.watch(b"a".to_vec());
        drop(early);
        assert_eq!(tracking.lock().len(), 1, "it is the later watch's");
        drop(late);
        assert_eq!(tracking.lock().len(), 0);
    }
}
