//! Waiting in a queue on one of the nodes, the gate: drives the [`Turn`] of a waiter.
//!
//! All decisions are the machine's. The driver carries its commands out, and returns replies, pushes
//! and time to it.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::future::{Either, join, ready as settled};

use super::{LostRound, is_lack, pause, within};
use crate::algorithm::lease::saturating_add;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::algorithm::turn::{Command, Entry, Gate, Refreshed, Turn, WatchedKey};
use crate::backend::{BackendError, Capabilities, LockBackend, Watched};
use crate::cluster::Cluster;
use crate::resource::Key;
use crate::runtime::BoxFuture;

/// For how long a gate that failed is no gate for new waits.
const SKIPPED: Duration = Duration::from_secs(1);

/// After how long an entry that nobody refreshes has left no key at the gate.
const ENTRY_LASTS: Duration = Duration::from_secs(10);

/// A waiter's entry in the wait queue, and what it awaits.
pub(crate) struct RemoteQueue {
    cluster: Arc<Cluster>,
    /// The first key in sorted order: the queue is that key's.
    queue: Key,
    keys: Arc<[Key]>,
    node_timeout: Duration,
    entry: Entry,
    turn: Turn,
    /// The candidates for the gate. [`Gate`] is an index of it.
    gates: Vec<NodeId>,
    /// Whether the caller makes an attempt.
    is_trying: bool,
    /// The call whose reply the machine awaits.
    call: Option<Call>,
    /// Resolves when the watched key was written.
    push: Option<(WatchedKey, BoxFuture<'static, ()>)>,
    timer: Option<(Instant, BoxFuture<'static, ()>)>,
}

/// A call to the gate. Its future owns what it needs.
enum Call {
    Refresh(NodeId, BoxFuture<'static, Result<Refreshed, BackendError>>),
    Watch(NodeId, WatchedKey, BoxFuture<'static, Result<Watched, BackendError>>),
}

enum Reply {
    Refreshed(NodeId, Result<Refreshed, BackendError>),
    Watched(NodeId, WatchedKey, Result<Watched, BackendError>),
}

impl RemoteQueue {
    /// `None` if no node can be the gate now, or there is no randomness for the entry's name.
    pub(super) fn begin(
        cluster: &Arc<Cluster>,
        keys: &Arc<[Key]>,
        node_timeout: Duration,
        others_wait: bool,
    ) -> Option<Self> {
        let (now, queue) = (cluster.now(), keys.iter().min()?.clone());
        let gates = cluster.nodes.gates(&queue, now);
        let mut name = [0; 16];
        if gates.is_empty() || cluster.runtime.fill_random(&mut name).is_err() {
            return None;
        }
        if planted!("waits_share_an_entry") {
            name = [0; 16];
        }
        Some(Self {
            cluster: Arc::clone(cluster),
            queue,
            keys: Arc::clone(keys),
            node_timeout,
            entry: Entry::new(name),
            turn: Turn::begin(gates.len(), node_timeout, others_wait, now),
            gates,
            is_trying: false,
            call: None,
            push: None,
            timer: None,
        })
    }

    pub(super) fn gate(&self) -> Option<NodeId> {
        self.turn.gate().map(|gate| self.node(gate))
    }

    pub(super) const fn has_entry(&self) -> bool {
        self.turn.has_entry()
    }

    pub(super) async fn ready(&mut self) {
        if !self.is_trying {
            poll_fn(|context| self.poll(context)).await;
            self.is_trying = true;
        }
    }

    pub(super) async fn next(&mut self, lost: LostRound) {
        if self.is_trying {
            pause(&self.cluster, lost.took, self.node_timeout).await;
            self.is_trying = false;
            self.turn.handle_refused(self.refresh_interval(), self.cluster.now());
        }
        self.ready().await;
    }

    pub(super) fn won(mut self, on_hint: impl FnOnce(bool) + Send + 'static) {
        self.turn.handle_won();
        if let Some(Command::Leave { gate, also }) = self.turn.poll_command() {
            self.leave(gate, also, on_hint);
        }
    }

    /// Drives the machine until it asks for an attempt.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = self.cluster.now();
            if self.follow(now) {
                return Poll::Ready(());
            }
            if let Some((_, push)) = &mut self.push
                && push.as_mut().poll(context).is_ready()
            {
                if let Some((key, _)) = self.push.take() {
                    self.turn.handle_push(&key, now);
                }
                continue;
            }
            if let Some(reply) = self.poll_call(context) {
                self.handle(reply, now);
                continue;
            }
            ready!(self.poll_timer(context));
            self.turn.handle_timeout(self.cluster.now());
        }
    }

    /// Carries out commands. Returns whether an attempt is to be made.
    fn follow(&mut self, now: Instant) -> bool {
        while let Some(command) = self.turn.poll_command() {
            match command {
                Command::Attempt => return true,
                Command::Refresh(gate) => self.refresh(self.node(gate)),
                Command::Watch(gate, key) => self.watch(self.node(gate), key),
                Command::Leave { gate, also } => self.leave(gate, also, |_| ()),
                Command::Skip(gate) => {
                    let until = saturating_add(now, SKIPPED);
                    self.cluster.nodes.skip_gate(self.node(gate), until);
                }
            }
        }
        false
    }

    fn refresh(&mut self, id: NodeId) {
        let backend = Arc::clone(self.cluster.nodes.backend(id));
        let (queue, entry, keys) = (self.queue.clone(), self.entry.clone(), Arc::clone(&self.keys));
        let refresh = async move { backend.queue_refresh(&queue, &entry, &keys).await };
        self.call = Some(Call::Refresh(id, Box::pin(refresh)));
    }

    fn watch(&mut self, id: NodeId, key: WatchedKey) {
        let backend = Arc::clone(self.cluster.nodes.backend(id));
        let (lock, entry) = match &key {
            WatchedKey::Lock(at) => (self.keys.get(*at).unwrap_or(&self.queue), None),
            WatchedKey::Predecessor(entry) => (&self.queue, Some(entry.clone())),
        };
        let lock = lock.clone();
        let watch = async move { backend.watch(&lock, entry.as_ref()).await };
        // The machine watches one key.
        self.push = None;
        self.call = Some(Call::Watch(id, key, Box::pin(watch)));
    }

    /// Sends LEAVE in the background, behind a refresh in flight: otherwise the refresh would append
    /// the entry again.
    fn leave(
        &mut self,
        gate: Gate,
        also: Option<Entry>,
        on_hint: impl FnOnce(bool) + Send + 'static,
    ) {
        self.push = None;
        let refresh = match self.call.take() {
            Some(Call::Refresh(_, refresh)) => Either::Left(async { drop(refresh.await) }),
            _ => Either::Right(settled(())),
        };
        let (id, cluster) = (self.node(gate), Arc::clone(&self.cluster));
        let (queue, entry, node_timeout) =
            (self.queue.clone(), self.entry.clone(), self.node_timeout);
        let open = cluster.tasks.begin();
        open.set(NodeSet::from_iter([id]));
        self.cluster.tasks.spawn(async move {
            let backend = cluster.nodes.backend(id);
            let is_ordered = cluster.nodes.can(id, Capabilities::ORDERED);
            let leave = async {
                let leave = backend.queue_leave(&queue, &entry, also.as_ref());
                if is_ordered || planted!("leave_overtakes_the_refresh") {
                    return join(refresh, leave).await.1;
                }
                refresh.await;
                leave.await
            };
            let mut leave = pin!(leave);
            let mut reply = within(&cluster, node_timeout, leave.as_mut()).await;
            // `close` waits for a node timeout at most.
            drop(open);
            if reply.is_none() {
                reply = within(&cluster, ENTRY_LASTS, leave).await;
            }
            if let Some(Ok(others_wait)) = reply {
                on_hint(others_wait);
            }
        });
    }

    fn poll_call(&mut self, context: &mut Context<'_>) -> Option<Reply> {
        let reply = match self.call.take()? {
            Call::Refresh(id, mut refresh) => match refresh.as_mut().poll(context) {
                Poll::Ready(result) => return Some(Reply::Refreshed(id, result)),
                Poll::Pending => Call::Refresh(id, refresh),
            },
            Call::Watch(id, key, mut watch) => match watch.as_mut().poll(context) {
                Poll::Ready(result) => return Some(Reply::Watched(id, key, result)),
                Poll::Pending => Call::Watch(id, key, watch),
            },
        };
        self.call = Some(reply);
        None
    }

    fn handle(&mut self, reply: Reply, now: Instant) {
        let nodes = &self.cluster.nodes;
        match reply {
            Reply::Refreshed(_, Ok(reply)) => {
                self.turn.handle_refreshed(reply, self.refresh_interval(), now);
            }
            Reply::Watched(_, key, Ok(watched)) => {
                let is_held = watched.is_held() || planted!("watch_replies_nothing");
                self.push = is_held
                    .then(|| -> (_, BoxFuture<'static, ()>) { (key, Box::pin(watched.changed())) });
                self.turn.handle_watched(is_held, now);
            }
            // The refresh will see what no push reports.
            Reply::Watched(id, _, Err(error)) if is_lack(&error) => {
                nodes.note_lack(id, Capabilities::WATCH, &error);
                self.turn.handle_watched(true, now);
            }
            Reply::Refreshed(id, Err(error)) => {
                if is_lack(&error) {
                    nodes.note_lack(id, Capabilities::QUEUE, &error);
                }
                self.turn.handle_failure(now);
            }
            Reply::Watched(_, _, Err(_)) => self.turn.handle_failure(now),
        }
    }

    /// Ready when the machine is to be told the time; pending after the timer is registered.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(next) = self.turn.next_timeout() else {
            self.timer = None;
            return Poll::Pending;
        };
        if self.timer.as_ref().is_none_or(|(at, _)| *at != next) {
            self.timer = Some((next, self.cluster.runtime.sleep_until(next)));
        }
        let Some((_, timer)) = &mut self.timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(context));
        self.timer = None;
        Poll::Ready(())
    }

    fn node(&self, gate: Gate) -> NodeId {
        self.gates[gate.0]
    }

    fn refresh_interval(&self) -> Duration {
        Turn::refresh_interval(u32::try_from(self.cluster.random() >> 32).unwrap_or_default())
    }
}

impl Drop for RemoteQueue {
    fn drop(&mut self) {
        if !planted!("cancelled_wait_stays_in_the_queue") {
            self.turn.cancel();
            self.follow(self.cluster.now());
        }
    }
}

impl fmt::Debug for RemoteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteQueue").field("turn", &self.turn).finish_non_exhaustive()
    }
}
