//! The connection for watches: RESP3, with client tracking on, apart from the one for commands.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use fred::interfaces::TrackingInterface;
use fred::types::client::Invalidation;
use fred::types::config::Config;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Shared, join_all, select};
use quorate_core::protocol::{Reply, Watches, Wire};
use quorate_core::runtime::TokioContext;
use quorate_core::{BackendError, BackendErrorKind, Holder, Key, Watched};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::dialer::Dialer;
use crate::error;
use crate::frame::Command;
use crate::link::{Closed, Link, seen_through};

/// How often the keys that are watched are read again.
///
/// A node that was flushed says so without naming keys, and fred keeps that to itself.
const READ_AGAIN: Duration = Duration::from_secs(2);

/// Watches on one node, and their connection, made when one of them needs it.
pub(crate) struct Watcher {
    dialer: Dialer,
    tokio: TokioContext,
    latest: Mutex<Option<Opening>>,
}

type Opening = Shared<BoxFuture<'static, Result<Arc<Ear>, BackendError>>>;

impl Watcher {
    /// Does no I/O.
    pub(crate) fn new(config: Config, timeout: Duration, tokio: TokioContext) -> Self {
        let dialer = Dialer::for_watches(config, timeout, tokio.clone());
        Self { dialer, tokio, latest: Mutex::default() }
    }

    /// Uses `tokio` from the next watch on.
    pub(crate) fn lend(&mut self, tokio: TokioContext) {
        self.dialer.lend(tokio.clone());
        self.tokio = tokio;
    }

    /// Looks at `key`, and watches it from then on.
    pub(crate) async fn look(&self, key: &Key) -> Result<Watched, BackendError> {
        let look = async {
            let ear = self.opening()?.await?;
            let watches = ear.watches.clone();
            watches.look(Way(ear), key).await
        };
        self.tokio.enter(look).await
    }

    /// The connection that there is, or is being made, or a new attempt.
    fn opening(&self) -> Result<Opening, BackendError> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opening) = latest.as_ref() {
            let still_good = match opening.peek() {
                None => true,
                Some(Ok(ear)) => ear.is_usable(),
                Some(Err(_)) => false,
            };
            if still_good {
                return Ok(opening.clone());
            }
        }
        let attempt = self.dialer.attempt()?;
        let (most, begun) = (self.dialer.timeout(), Instant::now());
        let open = async move {
            let link = attempt.await.map_err(|failure| failure.error)?;
            // Nobody may be left who could give it up.
            match timeout(most.saturating_sub(begun.elapsed()), Ear::open(link)).await {
                Ok(opened) => opened,
                Err(_) => {
                    let told = "no answer to CLIENT TRACKING";
                    Err(BackendError::new(BackendErrorKind::TimedOut, told))
                }
            }
        };
        let opening = open.boxed().shared();
        seen_through(&opening);
        Ok(latest.insert(opening).clone())
    }
}

/// A connection that the node tells of changes on, and the task that hears it.
struct Ear {
    link: Arc<Link>,
    watches: Watches,
    /// Told when a watch begins.
    begun: Arc<Notify>,
    listener: AbortHandle,
}

impl Ear {
    async fn open(link: Arc<Link>) -> Result<Arc<Self>, BackendError> {
        // From before the node tells anything.
        let heard = link.client().invalidation_rx();
        link.call(Command::of(&[b"CLIENT", b"TRACKING", b"ON"])).await?;
        // tokio would panic.
        let runtime =
            Handle::try_current().map_err(|_| error::lost("there is no tokio runtime"))?;
        let (watches, begun) = (Watches::new(), Arc::<Notify>::default());
        let listener = Listener {
            link: Arc::downgrade(&link),
            watches: watches.clone(),
            begun: Arc::clone(&begun),
        };
        let closed = link.closed();
        let listener = runtime.spawn(listener.listen(heard, closed)).abort_handle();
        Ok(Arc::new(Self { link, watches, begun, listener }))
    }

    fn is_usable(&self) -> bool {
        self.link.is_usable() && !self.listener.is_finished()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// What a watch reads its key through, and is kept by: the connection lives as long as one waits.
struct Way(Arc<Ear>);

impl Wire for Way {
    type Command = Command;

    fn pack(&self, command: &[&[u8]]) -> Command {
        Command::of(command)
    }

    async fn send(&self, command: Command) -> Result<Reply, BackendError> {
        // Its watch is among the others by now.
        self.0.begun.notify_one();
        self.0.link.call(command).await
    }
}

/// Passes on to the watches what the node tells. Keeps no connection alive.
struct Listener {
    link: Weak<Link>,
    watches: Watches,
    begun: Arc<Notify>,
}

impl Listener {
    async fn listen(self, mut heard: Receiver<Invalidation>, closed: Closed) {
        let mut again = self.read_again().boxed();
        loop {
            let next = heard.recv().boxed();
            match select(next, select(closed.clone(), &mut again)).await {
                Either::Left((Ok(changed), _)) => {
                    for key in changed.keys {
                        self.watches.told(key.as_bytes());
                    }
                }
                // More at once than there is room for: which keys they were is not known.
                Either::Left((Err(RecvError::Lagged(_)), _)) => self.watches.told_all(),
                Either::Left((Err(RecvError::Closed), _)) => return,
                Either::Right((Either::Left((reason, _)), _)) => return self.watches.end(&reason),
                Either::Right((Either::Right(((), _)), _)) => again = self.read_again().boxed(),
            }
        }
    }

    /// After a while with watches, reads their keys. Sleeps for good while there are none.
    async fn read_again(&self) {
        while self.watches.is_empty() {
            self.begun.notified().await;
        }
        tokio::time::sleep(READ_AGAIN).await;
        let keys = self.watches.keys();
        let Some(link) = self.link.upgrade() else { return };
        let reads = keys.iter().map(|key| async {
            // Another answer the watch itself has seen, or will be told.
            match link.call(Command::of(&[b"GET", key.as_bytes()])).await {
                Ok(Reply::Nil) => self.watches.read_again(key, None),
                Ok(Reply::Bytes(value)) => {
                    self.watches.read_again(key, Some(&Holder::new(value)));
                }
                _ => {}
            }
        });
        join_all(reads).await;
    }
}

/// Also when its task is dropped with the runtime that it ran on.
impl Drop for Listener {
    fn drop(&mut self) {
        self.watches.end(&error::lost("the connection for watches was lost"));
    }
}
