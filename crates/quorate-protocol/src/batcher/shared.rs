//! What a batcher is made of, and how its connections are made.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use quorate_core::runtime::{Runtime, TokioRuntime};
use quorate_core::telemetry::runtime_ended;
use quorate_core::{BackendError, BackendErrorKind};

use crate::connection::{Dial, within};
use crate::credentials::{CredentialSource, Source};
use crate::features::Features;
use crate::group::NodeGroup;
use crate::handshake::Purpose;
use crate::tracking::Tracking;

use super::queue::Queue;

/// How long a node may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// For a connect: the transport, the log-in and the handshake. 1 s by default.
    pub connect: Duration,
    /// For the oldest command without a reply, while nothing else comes. Then the connection is
    /// over. 10 s by default.
    pub reply: Duration,
    /// Calls of one pipeline.
    pub(super) commands: usize,
}

impl Limits {
    /// The limits of each of so many nodes that one process has. While one of them carries out a
    /// pipeline, the process is busy with the others. A single node gets two shorter pipelines: it
    /// carries out one while the process handles the replies to the other.
    #[must_use]
    pub const fn of_nodes(self, nodes: usize) -> Self {
        Self { commands: if nodes == 1 { 32 } else { 64 }, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(1), reply: Duration::from_secs(10), commands: 64 }
    }
}

/// How nodes are made and connected to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings<D> {
    /// How long a node may take.
    pub limits: Limits,
    /// Where connections live; `None` is where the nodes are made.
    pub runtime: Option<TokioRuntime>,
    /// The group of clients that must have the same nodes.
    pub group: Option<NodeGroup>,
    /// What is asked for the login of each new connection, in place of the one that the dial has.
    pub credentials: Option<CredentialSource>,
    /// What is asked how to connect from now on, when a node has refused the login or a
    /// certificate. The connect is tried once more with what it returns.
    pub again: Option<Source<Option<D>>>,
}

impl<D> Default for Settings<D> {
    fn default() -> Self {
        let limits = Limits::default();
        Self { limits, runtime: None, group: None, credentials: None, again: None }
    }
}

/// How to connect to a node: the dial of its beginning, or the one that was asked for since.
pub(crate) struct Way<D> {
    /// What errors and events call the node.
    pub(crate) name: String,
    pub(crate) settings: Settings<D>,
    /// Where its connections live.
    pub(super) runtime: TokioRuntime,
    dial: Mutex<Arc<D>>,
    /// Locked from a refusal on, until another dial was tried.
    refused: tokio::sync::Mutex<()>,
}

impl<D: Dial> Way<D> {
    pub(crate) fn new(dial: D, settings: &Settings<D>) -> Self {
        let (name, mut settings) = (dial.name().into_owned(), settings.clone());
        settings.limits.reply = settings.limits.reply.min(FAR);
        let runtime = settings.runtime.clone().unwrap_or_default();
        let (dial, refused) = (Mutex::new(Arc::new(dial)), tokio::sync::Mutex::default());
        Self { name, settings, runtime, dial, refused }
    }

    pub(super) fn dial(&self) -> Arc<D> {
        Arc::clone(&self.lock())
    }

    /// Another dial than the one whose login or certificate was refused: that of a connection made
    /// since, or the one that is asked for.
    async fn other_than(&self, refused: &Arc<D>) -> Option<Arc<D>> {
        let present = self.dial();
        if !Arc::ptr_eq(&present, refused) {
            return Some(present);
        }
        let again = self.settings.again.as_ref()?;
        again.ask(&self.name).await.map(Arc::new)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<D>> {
        self.dial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection at a time, made again when it has ended. Shared with the task that carries the
/// calls, which ends with [`Queue::abandon`].
pub(crate) struct Batcher<D> {
    pub(super) way: Arc<Way<D>>,
    pub(super) purpose: Purpose,
    pub(super) tracking: Arc<Tracking>,
    pub(super) queue: Queue,
    /// A task has connected.
    pub(super) has_connected: AtomicBool,
}

impl<D: Dial> Batcher<D> {
    /// A batcher without a connection: the first call makes one.
    pub(crate) fn new(way: Arc<Way<D>>, purpose: Purpose) -> Self {
        let (tracking, queue, has_connected) = Default::default();
        Self { way, purpose, tracking, queue, has_connected }
    }

    pub(super) fn limits(&self) -> Limits {
        self.way.settings.limits
    }

    /// Waits until something is queued, if that is awaited. `false` once the batcher is dropped.
    pub(super) async fn has_work(&self, awaits_calls: bool) -> bool {
        poll_fn(|context| {
            if !self.queue.register(context, awaits_calls) {
                return Poll::Pending;
            }
            Poll::Ready(!self.queue.is_abandoned())
        })
        .await
    }

    /// Reports that the last task, which had connected, ended with its runtime. Called by the next
    /// task: a call is begun under the lock of its attempt.
    pub(super) fn report_ended_runtime(&self) {
        let has_ended = self.has_connected.swap(false, Ordering::Relaxed);
        if has_ended && self.purpose == Purpose::Commands {
            runtime_ended(&self.way.name);
        }
    }

    /// Makes a connection. If the node refuses the login or a certificate, and another one is known
    /// by now, that is tried as well, and kept if it works.
    pub(super) async fn connect(&self) -> Result<(D::Connection, Features), BackendError> {
        let connecting = async {
            let dial = self.way.dial();
            let refused = match self.connect_by(&dial).await {
                Err(error) if is_refusal(&error) => error,
                outcome => return outcome,
            };
            // The other connection of the node may be refused at the same time.
            let _one = self.way.refused.lock().await;
            let Some(dial) = self.way.other_than(&dial).await else { return Err(refused) };
            let connected = self.connect_by(&dial).await?;
            *self.way.lock() = dial;
            Ok(connected)
        };
        let connected = within(self.limits().connect, "connection", connecting).await?;
        self.has_connected.store(true, Ordering::Relaxed);
        Ok(connected)
    }

    /// Makes a connection, with the login that is asked for.
    async fn connect_by(&self, dial: &D) -> Result<(D::Connection, Features), BackendError> {
        let Settings { credentials, limits, group, .. } = &self.way.settings;
        let open = async {
            let login = match credentials {
                Some(source) => Some(source.ask(&self.way.name).await?),
                None => None,
            };
            let tracking = Arc::clone(&self.tracking);
            let push = move |push| tracking.handle_push(&push);
            dial.connect(login.as_ref(), limits.connect, push).await
        };
        let connection = open.await.map_err(BackendError::particular)?;
        let features = self.purpose.handshake(&connection, group.as_ref()).await?;
        Ok((connection, features))
    }

    /// Half to all of the time for which `failures` in a row are waited out.
    pub(super) fn back_off(&self, failures: u32) -> Duration {
        let whole = MAX_BACK_OFF.min(MIN_BACK_OFF.saturating_mul(1 << failures.min(16)));
        let mut random = [0];
        // Without randomness there is no lock, and it does not matter when to connect.
        let _ = self.way.runtime.fill_random(&mut random);
        whole.mul_f64(0.5 + f64::from(random[0]) / 510.0)
    }
}

fn is_refusal(error: &BackendError) -> bool {
    matches!(error.kind(), BackendErrorKind::Auth | BackendErrorKind::Tls)
}

/// Longer than any connection lives.
const FAR: Duration = Duration::from_secs(365 * 86_400);

const MIN_BACK_OFF: Duration = Duration::from_millis(50);

const MAX_BACK_OFF: Duration = Duration::from_secs(1);
