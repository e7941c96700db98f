//! The watches that wait on one connection, by key.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use event_listener::Event;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Shared, select};

use crate::backend::{BackendError, BackendErrorKind, Holder, Watched};
use crate::protocol::{Reply, Wire};
use crate::resource::Key;

/// The watches that wait on one connection with client tracking on, by key.
///
/// A backend's [`Watch`](crate::Watch) is made of a connection on which `CLIENT TRACKING ON` was
/// answered with `OK`, and of this. The backend passes on what the connection is told: an
/// `invalidate` message to [`told`](Self::told), or to [`told_all`](Self::told_all) if it names no
/// keys, and the connection's end to [`end`](Self::end).
///
/// `GET` registers a key with the node, and tells in the same moment who has it. Its answer is a token
/// of somebody, which nobody can read out of a [`Holder`]. All who watch a key at one time share one
/// `GET`, and nothing of a key is kept here when the last of them has gone.
///
/// Clones are handles of the same watches. `Debug` shows how many keys are watched.
///
/// # Why client tracking
///
/// It was measured against a message that the release script would publish (Redis 7.0, both ends on
/// one busy machine). A watch ends 55 to 70 µs after a `DEL` is sent, beside 35 to 50 µs of a `PING`
/// there and back. A release costs the node 3 µs; a `PUBLISH` in it makes that 3.5 µs for everybody
/// and 3.8 µs where somebody listens; tracking makes it 3.8 µs where somebody watches and costs
/// nothing elsewhere, leaves the wire of the holder alone, and tells of expiry and of the releases
/// of other libraries as well.
#[derive(Clone, Default)]
pub struct Watches {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    slots: HashMap<Key, Slot>,
    ended: Option<BackendError>,
}

type Outcome = Result<(), BackendError>;

/// What a look has seen.
type Seen = Result<Option<Holder>, BackendError>;

/// A key that is watched.
struct Slot {
    tidings: Arc<Tidings>,
    /// Alive as long as somebody watches.
    entry: Weak<Entry>,
}

/// What the connection has told of a key.
#[derive(Default)]
struct Tidings {
    outcome: OnceLock<Outcome>,
    come: Event,
}

impl Watches {
    /// No watches, of a connection that was just made.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at who has `key`, and watches it from then on. `wire` leads to the connection that these
    /// watches are of, and is kept as long as anybody watches.
    ///
    /// Nothing is sent, and nothing kept, before the first poll.
    ///
    /// # Errors
    ///
    /// `BackendError` if the node does not answer as it should, or the connection has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, or what it gave, ends this watch and no other.
    pub async fn look(
        &self,
        wire: impl Wire + 'static,
        key: &Key,
    ) -> Result<Watched, BackendError> {
        let wire = Arc::new(wire);
        loop {
            let entry = self.join(&wire, key)?;
            let read = entry.read.clone();
            // An answer that is there is one, whatever was told since.
            let seen = match select(read, pin!(entry.tidings.told())).await {
                Either::Left((seen, _)) => Some(seen?),
                Either::Right((told, _)) => told.map(|()| None)?,
            };
            // What is told before the answer comes may be of before it, or of after it.
            if let Some(holder) = seen {
                return Ok(Watched::new(holder, async move { entry.tidings.told().await }));
            }
        }
    }

    /// The watch of `key` that is under way, or a new one.
    ///
    /// Whoever joins later than the node has answered needs no answer of his own: it was so then, and
    /// whatever became of it since will be told, to him as well.
    fn join<W: Wire + 'static>(
        &self,
        wire: &Arc<W>,
        key: &Key,
    ) -> Result<Arc<Entry>, BackendError> {
        let mut state = self.lock();
        if let Some(why) = &state.ended {
            return Err(why.clone());
        }
        if let Some(entry) = state.slots.get(key).and_then(|slot| slot.entry.upgrade()) {
            return Ok(entry);
        }
        let tidings = Arc::<Tidings>::default();
        let read = {
            let (wire, key) = (Arc::clone(wire), key.clone());
            async move { read(&*wire, &key).await }.boxed().shared()
        };
        let wire: Arc<dyn Send + Sync> = Arc::<W>::clone(wire);
        let entry = Arc::new(Entry {
            watches: self.clone(),
            key: key.clone(),
            tidings: Arc::clone(&tidings),
            read,
            _wire: wire,
        });
        state.slots.insert(key.clone(), Slot { tidings, entry: Arc::downgrade(&entry) });
        Ok(entry)
    }

    /// The node said that `key` has changed, or is gone.
    pub fn told(&self, key: &[u8]) {
        let slot = self.lock().slots.remove(key);
        if let Some(slot) = slot {
            slot.tidings.tell(Ok(()));
        }
    }

    /// The node said that any key may have changed.
    pub fn told_all(&self) {
        let slots = std::mem::take(&mut self.lock().slots);
        for slot in slots.into_values() {
            slot.tidings.tell(Ok(()));
        }
    }

    /// The key was read again, apart from the watches, and `holder` has it.
    pub fn read_again(&self, key: &Key, holder: Option<&Holder>) {
        let entry = self.lock().slots.get(key).and_then(|slot| slot.entry.upgrade());
        // What a watch has not read yet, it will read newer.
        if let Some(Ok(seen)) = entry.as_ref().and_then(|entry| entry.read.peek())
            && seen.as_ref() != holder
        {
            self.told(key.as_bytes());
        }
    }

    /// The connection has ended, for the reason `why`: so do all watches, also those to come.
    pub fn end(&self, why: &BackendError) {
        let mut state = self.lock();
        state.ended.get_or_insert_with(|| why.clone());
        let slots = std::mem::take(&mut state.slots);
        drop(state);
        for slot in slots.into_values() {
            slot.tidings.tell(Err(why.clone()));
        }
    }

    /// The keys that are watched now, in no order.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.lock().slots.keys().cloned().collect()
    }

    /// Whether no key is watched now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().slots.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("keys", &self.lock().slots.len()).finish_non_exhaustive()
    }
}

/// A place among the watches, which is given up when the last who watches has gone.
struct Entry {
    watches: Watches,
    key: Key,
    tidings: Arc<Tidings>,
    read: Shared<BoxFuture<'static, Seen>>,
    /// The connection lives as long as somebody watches.
    _wire: Arc<dyn Send + Sync>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = self.watches.lock();
        // There may be a newer one.
        if let MapEntry::Occupied(slot) = state.slots.entry(self.key.clone())
            && Arc::ptr_eq(&slot.get().tidings, &self.tidings)
        {
            slot.remove();
        }
    }
}

impl Tidings {
    fn tell(&self, outcome: Outcome) {
        // The first counts.
        let _ = self.outcome.set(outcome);
        self.come.notify(usize::MAX);
    }

    async fn told(&self) -> Outcome {
        loop {
            let come = self.come.listen();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            come.await;
        }
    }
}

/// Who has the key.
async fn read(wire: &impl Wire, key: &Key) -> Seen {
    match wire.send(wire.pack(&[b"GET", key.as_bytes()])).await? {
        Reply::Nil => Ok(None),
        Reply::Bytes(value) => Ok(Some(Holder::new(value))),
        Reply::Okay | Reply::Integer(_) | Reply::List(_) | Reply::Other => {
            Err(BackendError::new(BackendErrorKind::Protocol, "the answer to GET is no string"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::resource::Resource;

    /// A connection whose node knows of one answer to everything.
    #[derive(Clone, Default)]
    struct Node {
        answer: Arc<OnceLock<Result<Reply, BackendError>>>,
        heard: Arc<AtomicUsize>,
    }

    impl Node {
        fn with(answer: Reply) -> Self {
            let node = Self::default();
            node.answers(Ok(answer));
            node
        }

        fn answers(&self, answer: Result<Reply, BackendError>) {
            assert!(self.answer.set(answer).is_ok());
        }
    }

    impl Wire for Node {
        type Command = ();

        fn pack(&self, command: &[&[u8]]) {
            assert_eq!(command[0], b"GET");
        }

        async fn send(&self, (): ()) -> Result<Reply, BackendError> {
            self.heard.fetch_add(1, Ordering::Relaxed);
            std::future::poll_fn(|_| match self.answer.get() {
                Some(answer) => Poll::Ready(answer.clone()),
                None => Poll::Pending,
            })
            .await
        }
    }

    fn key(name: &str) -> Key {
        Key::new(b"", &Resource::new(name).unwrap())
    }

    fn held() -> Node {
        Node::with(Reply::Bytes(b"s3cret".to_vec()))
    }

    type Watching<'a> = std::pin::Pin<Box<dyn Future<Output = Outcome> + 'a>>;

    /// As the watch of a backend.
    async fn watched(watches: &Watches, node: Node, key: &Key) -> Outcome {
        let seen = watches.look(node, key).await?;
        if seen.holder().is_none() { Ok(()) } else { seen.changed().await }
    }

    fn begin<'a>(watches: &'a Watches, node: &Node, key: &'a Key) -> Watching<'a> {
        let mut watch: Watching<'a> = Box::pin(watched(watches, node.clone(), key));
        assert!(poll(&mut watch).is_none());
        watch
    }

    fn poll(watch: &mut Watching<'_>) -> Option<Outcome> {
        match watch.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_free_key_is_told_at_once() {
        let (watches, key) = (Watches::new(), key("k"));
        let mut watch: Watching<'_> = Box::pin(watched(&watches, Node::with(Reply::Nil), &key));
        assert!(matches!(poll(&mut watch), Some(Ok(()))));
        assert!(watches.is_empty());
    }

    #[test]
    fn all_who_watch_a_key_share_one_read_and_are_all_told() {
        let (watches, node, k, other) = (Watches::new(), held(), key("k"), key("other"));
        let mut all: Vec<_> = (0..9).map(|_| begin(&watches, &node, &k)).collect();
        let mut not_meant = begin(&watches, &node, &other);
        assert_eq!(node.heard.load(Ordering::Relaxed), 2);
        watches.told(b"k");
        assert!(all.iter_mut().all(|watch| matches!(poll(watch), Some(Ok(())))));
        assert!(poll(&mut not_meant).is_none());
        watches.told_all();
        assert!(matches!(poll(&mut not_meant), Some(Ok(()))));
        assert!(watches.is_empty());
    }

    #[test]
    fn a_free_key_is_watched_until_somebody_has_it() {
        let (watches, k) = (Watches::new(), key("k"));
        let look = |node| watches.look(node, &k).now_or_never().unwrap().unwrap();
        let seen = look(Node::with(Reply::Nil));
        assert_eq!(seen.holder(), None);
        let mut changed: Watching<'_> = Box::pin(seen.changed());
        assert!(poll(&mut changed).is_none());
        assert_eq!(watches.keys(), std::slice::from_ref(&k));
        watches.told(b"k");
        assert!(matches!(poll(&mut changed), Some(Ok(()))));
        assert!(watches.is_empty());
        assert_eq!(look(held()).holder(), Some(&Holder::new(*b"s3cret")));
        assert!(watches.is_empty(), "what it gave is dropped");
    }

    #[test]
    fn an_answer_that_is_there_is_not_asked_for_again_though_it_has_changed_since() {
        let (watches, node, k) = (Watches::new(), Node::default(), key("k"));
        let mut looks = Box::pin(watches.look(node.clone(), &k));
        assert!(looks.as_mut().now_or_never().is_none());
        node.answers(Ok(Reply::Bytes(b"s3cret".to_vec())));
        watches.told(b"k");
        let seen = looks.now_or_never().unwrap().unwrap();
        assert_eq!(seen.holder(), Some(&Holder::new(*b"s3cret")));
        assert!(matches!(seen.changed().now_or_never(), Some(Ok(()))));
        assert_eq!(node.heard.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_read_again_is_told_if_it_is_new() {
        let (watches, k) = (Watches::new(), key("k"));
        let theirs = Holder::new(*b"s3cret");
        for (was, same, other) in [
            (Reply::Bytes(b"s3cret".to_vec()), Some(&theirs), None),
            (Reply::Nil, None, Some(&theirs)),
        ] {
            let seen = watches.look(Node::with(was), &k).now_or_never().unwrap().unwrap();
            let mut changed: Watching<'_> = Box::pin(seen.changed());
            watches.read_again(&k, same);
            assert!(poll(&mut changed).is_none());
            watches.read_again(&k, other);
            assert!(matches!(poll(&mut changed), Some(Ok(()))));
        }
    }

    #[test]
    fn what_is_told_before_the_answer_to_the_read_makes_another_read() {
        let (watches, node, k) = (Watches::new(), Node::default(), key("k"));
        let mut watch = begin(&watches, &node, &k);
        watches.told(b"k");
        assert!(poll(&mut watch).is_none());
        assert_eq!(node.heard.load(Ordering::Relaxed), 2);
        node.answers(Ok(Reply::Bytes(Vec::new())));
        assert!(poll(&mut watch).is_none(), "it may have been told of what was before");
        watches.told(b"k");
        assert!(matches!(poll(&mut watch), Some(Ok(()))));
    }

    #[test]
    fn a_watch_that_is_dropped_hands_its_read_on_and_the_last_leaves_nothing() {
        let (watches, node, k) = (Watches::new(), Node::default(), key("k"));
        let first = begin(&watches, &node, &k);
        let mut second = begin(&watches, &node, &k);
        drop(first);
        assert_eq!(watches.keys(), std::slice::from_ref(&k));
        node.answers(Ok(Reply::Nil));
        assert!(matches!(poll(&mut second), Some(Ok(()))));
        let again = begin(&watches, &held(), &k);
        drop(again);
        assert!(watches.is_empty());
    }

    #[test]
    fn a_thousand_watches_that_are_dropped_leave_nothing() {
        let (watches, node) = (Watches::new(), held());
        for round in 0..2 {
            let names: Vec<_> = (0..1_000).map(|n| key(&format!("{}", n % 100))).collect();
            let all: Vec<_> = names.iter().map(|key| begin(&watches, &node, key)).collect();
            assert_eq!(watches.keys().len(), 100);
            assert_eq!(node.heard.load(Ordering::Relaxed), 100 * (round + 1));
            drop(all);
            assert!(watches.is_empty());
        }
    }

    #[test]
    fn one_that_was_told_does_not_take_its_successor_along() {
        let (watches, node, k) = (Watches::new(), held(), key("k"));
        let told = begin(&watches, &node, &k);
        watches.told(b"k");
        let mut newer = begin(&watches, &node, &k);
        drop(told);
        assert!(!watches.is_empty());
        watches.told(b"k");
        assert!(matches!(poll(&mut newer), Some(Ok(()))));
    }

    #[test]
    fn the_end_of_the_connection_ends_all_watches() {
        let (watches, node, k) = (Watches::new(), held(), key("k"));
        let mut watch = begin(&watches, &node, &k);
        watches.end(&BackendError::new(BackendErrorKind::Connection, "gone"));
        let mut late: Watching<'_> = Box::pin(watched(&watches, node, &k));
        for watch in [&mut watch, &mut late] {
            let error = poll(watch).unwrap().unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Connection);
        }
        assert!(watches.is_empty());
    }

    #[test]
    fn an_error_answer_ends_the_watch_and_a6_no_text_shows_the_token() {
        let (watches, k) = (Watches::new(), key("k"));
        let refuses = Node::default();
        refuses.answers(Err(BackendError::from_reply("WRONGTYPE Operation against a key")));
        let mut watch: Watching<'_> = Box::pin(watched(&watches, refuses, &k));
        let error = poll(&mut watch).unwrap().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::WrongType);
        let _held = begin(&watches, &held(), &k);
        assert_eq!(format!("{watches:?}"), "Watches { keys: 1, .. }");
    }
}
