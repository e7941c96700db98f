//! A Redis or Valkey node as a backend.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use quorate_core::backend::Sighting;
use quorate_core::backend::{
    AcquireOptions, Acquired, Capabilities, Entry, ExtendOptions, Extended, LockBackend, Refreshed,
    ReleaseOptions, Released, Watched,
};
use quorate_core::runtime::{Runtime, TokioRuntime};
use quorate_core::{BackendError, Claim, FencingToken, Key, Vote, planted};

use crate::batcher::Batcher;
use crate::command::Command;
use crate::connection::Dial;
use crate::features::Purpose;
use crate::operation::{acquire, extend, fence, identity, inspect, queue, release};
use crate::reply::{Reply, read};
use crate::tracking::{Tracking, Watch};
use crate::transport::{Admission, Transport};

/// One Redis or Valkey node over any client.
///
/// Clones share the connections, which end with the last clone.
#[derive(Clone, Debug)]
pub struct Node<T> {
    commands: T,
    watches: Option<Arc<Watches<T>>>,
}

/// The connection with client tracking, which is made at the first wait.
#[derive(Debug)]
struct Watches<T> {
    transport: T,
    tracking: Arc<Tracking>,
    runtime: TokioRuntime,
    pushes_flushes: bool,
}

impl<D: Dial> Node<Batcher<D>> {
    /// For how long a connect may take unless it is said otherwise.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

    /// A node with one connection for commands and, from the first wait on, one for watches.
    ///
    /// Nothing is sent here: the first call connects, in `runtime`.
    #[must_use]
    pub fn new(dial: D, runtime: TokioRuntime) -> Self {
        Self::with_connect_timeout(dial, runtime, Self::CONNECT_TIMEOUT)
    }

    /// The same with another limit for a connect: the way there, the log-in and the first reply.
    #[must_use]
    pub fn with_connect_timeout(dial: D, runtime: TokioRuntime, limit: Duration) -> Self {
        let pushes_flushes = dial.pushes_flushes();
        let (dial, tracking) = (Arc::new(dial), Arc::<Tracking>::default());
        let listener = {
            let tracking = Arc::clone(&tracking);
            move |push| tracking.handle_push(&push)
        };
        let commands =
            Batcher::new(Arc::clone(&dial), runtime.clone(), Purpose::Commands, limit, drop);
        let transport = Batcher::new(dial, runtime.clone(), Purpose::Watches, limit, listener);
        let watches = Watches { transport, tracking, runtime, pushes_flushes };
        Self { commands, watches: Some(Arc::new(watches)) }
    }
}

impl<T: Transport> Watches<T> {
    /// Waits for a push, or until the key is found with another value than `reply`.
    async fn changed_or_flushed(&self, watch: Watch, question: Command, reply: Reply) {
        let mut changed = pin!(watch.changed());
        loop {
            let pause = self.runtime.sleep_until(self.runtime.now() + READ_AGAIN);
            if let Either::Left(_) = select(changed.as_mut(), pause).await {
                return;
            }
            let again = self.transport.call(question.clone(), Admission::Other).await;
            if !again.is_ok_and(|again| again == reply) {
                return;
            }
        }
    }
}

impl<T: Transport> Node<T> {
    /// A node over a transport that cannot watch keys, such as a pool.
    pub const fn over(transport: T) -> Self {
        Self { commands: transport, watches: None }
    }
}

#[async_trait]
impl<T: Transport> LockBackend for Node<T> {
    async fn acquire(
        &self,
        claim: &Claim,
        options: AcquireOptions,
    ) -> Result<Acquired, BackendError> {
        acquire::acquire(&self.commands, claim, options).await
    }

    async fn extend(
        &self,
        claim: &Claim,
        options: ExtendOptions,
    ) -> Result<Extended, BackendError> {
        extend::extend(&self.commands, claim, options).await
    }

    async fn release(
        &self,
        claim: &Claim,
        options: ReleaseOptions,
    ) -> Result<Released, BackendError> {
        release::release(&self.commands, claim, options).await
    }

    fn name(&self) -> Cow<'_, str> {
        self.commands.name()
    }

    fn capabilities(&self) -> Capabilities {
        let ordered = if T::IS_ORDERED { Capabilities::ORDERED } else { Capabilities::NONE };
        let watch = if self.watches.is_some() { Capabilities::WATCH } else { Capabilities::NONE };
        let always = Capabilities::FENCING
            | Capabilities::GUARD
            | Capabilities::QUEUE
            | Capabilities::INSPECT
            | Capabilities::SERVER_ID;
        always | ordered | watch
    }

    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError> {
        fence::raise(&self.commands, claim, number).await
    }

    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError> {
        inspect::inspect(&self.commands, key).await
    }

    async fn server_id(&self) -> Result<Option<String>, BackendError> {
        identity::server_id(&self.commands).await
    }

    async fn watch(&self, key: &Key, entry: Option<&Entry>) -> Result<Watched, BackendError> {
        let Some(watches) = &self.watches else {
            return Err(BackendError::unsupported("a pool cannot watch keys"));
        };
        let key = match entry {
            Some(entry) => queue::entry_key(key, entry),
            None => key.as_bytes().to_vec(),
        };
        let question = Command::new("GET", key.len()).arg(&key);
        let late = planted!("key_is_watched_after_it_was_read").then(|| key.clone());
        // Before the key is read: a push may come in between.
        let mut watch = watches.tracking.watch(key);
        let reply = read(watches.transport.call(question.clone(), Admission::Other).await)?;
        if let Some(key) = late {
            watch = watches.tracking.watch(key);
        }
        match reply {
            Reply::Nil => Ok(Watched::new(false, watch.changed())),
            Reply::Text(_) if watches.pushes_flushes => Ok(Watched::new(true, watch.changed())),
            reply @ Reply::Text(_) => {
                let watches = Arc::clone(watches);
                let changed =
                    async move { watches.changed_or_flushed(watch, question, reply).await };
                Ok(Watched::new(true, changed))
            }
            reply => Err(reply.unexpected("GET")),
        }
    }

    async fn queue_refresh(
        &self,
        key: &Key,
        entry: &Entry,
        locks: &[Key],
    ) -> Result<Refreshed, BackendError> {
        queue::refresh(&self.commands, key, entry, locks).await
    }

    async fn queue_leave(
        &self,
        key: &Key,
        entry: &Entry,
        also: Option<&Entry>,
    ) -> Result<bool, BackendError> {
        queue::leave(&self.commands, key, entry, also).await
    }
}

/// How often a watched key is read where a flush is not pushed.
const READ_AGAIN: Duration = Duration::from_secs(2);
