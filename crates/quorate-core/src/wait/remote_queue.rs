//! Waiting in a queue on one of the nodes, the gate: drives the [`Turn`] of a waiter.
//!
//! All decisions are the machine's. The driver carries its commands out, and returns replies, pushes
//! and time to it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use event_listener::{Event as Signal, EventListener};
use futures_util::future::{OptionFuture, join};

use super::pauses::{LostRound, pause};
use crate::algorithm::lease::saturating_add;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::NodeId;
use crate::algorithm::turn::{Command, Entry, Refreshed, Turn, WatchedKey};
use crate::backend::{BackendError, Capabilities, Watched};
use crate::cluster::Cluster;
use crate::resource::Key;
use crate::runtime::BoxFuture;
use crate::tasks::{NotifyOnDrop, OpenWork};

/// For how long a gate that failed is no gate for new waits.
const SKIPPED: Duration = Duration::from_secs(1);

/// After how long an entry that nobody refreshes has left no key at the gate.
const ENTRY_LASTS: Duration = Duration::from_secs(10);

/// The driver of one wait.
pub(crate) struct RemoteQueue {
    waiter: Arc<Waiter>,
    turn: Turn,
    /// Whether the caller makes an attempt.
    is_trying: bool,
    /// The call whose reply the machine awaits.
    call: Option<Call>,
    /// Resolves when the watched key may have been written.
    push: Option<(WatchedKey, BoxFuture<'static, ()>)>,
    /// Names the gate as long as it may have our entry, so that `close` waits for LEAVE (C8).
    open: Option<OpenWork>,
    /// Resolves when the gate has answered LEAVE, or has failed to.
    left: Option<EventListener>,
}

/// What all calls of a wait need.
struct Waiter {
    cluster: Arc<Cluster>,
    /// The key whose queue it is: the first one in sorted order.
    key: Key,
    /// The keys of the lock.
    locks: Arc<[Key]>,
    entry: Entry,
    node_timeout: Duration,
}

struct Call {
    is_refresh: bool,
    reply: BoxFuture<'static, Event>,
}

/// What happens while the machine waits.
enum Event {
    Refreshed(Result<Refreshed, BackendError>),
    Watched(WatchedKey, Result<Watched, BackendError>),
    Push,
    Timeout,
}

impl RemoteQueue {
    /// `None` if no node can be the gate now, or there is no randomness for the entry's name.
    pub(super) fn begin(
        cluster: &Arc<Cluster>,
        locks: &Arc<[Key]>,
        node_timeout: Duration,
        others_wait: bool,
    ) -> Option<Self> {
        let key = locks.iter().min()?.clone();
        let gates = cluster.nodes.gates(&key, cluster.now());
        let (cluster, locks) = (Arc::clone(cluster), Arc::clone(locks));
        Self::at(gates, cluster, key, locks, node_timeout, others_wait)
    }

    fn at(
        gates: Vec<NodeId>,
        cluster: Arc<Cluster>,
        key: Key,
        locks: Arc<[Key]>,
        node_timeout: Duration,
        others_wait: bool,
    ) -> Option<Self> {
        let mut name = [0; 16];
        if gates.is_empty() || cluster.runtime.fill_random(&mut name).is_err() {
            return None;
        }
        if planted!("waits_share_an_entry") {
            name = [0; 16];
        }
        let (entry, now) = (Entry::new(name), cluster.now());
        Some(Self {
            waiter: Arc::new(Waiter { cluster, key, locks, entry, node_timeout }),
            turn: Turn::begin(gates, node_timeout, others_wait, now),
            is_trying: false,
            call: None,
            push: None,
            open: None,
            left: None,
        })
    }

    pub(super) fn gate(&self) -> Option<NodeId> {
        self.turn.gate()
    }

    pub(super) const fn has_entry(&self) -> bool {
        self.turn.has_entry()
    }

    pub(super) const fn has_answer(&self) -> bool {
        self.turn.has_answer()
    }

    /// Tells the machine of the lost round, after a pause, and drives it until it asks for an attempt.
    pub(super) async fn next(&mut self, lost: Option<LostRound>) {
        if let Some(lost) = lost
            && self.is_trying
        {
            pause(&self.waiter.cluster, lost.took, self.waiter.node_timeout).await;
            self.is_trying = false;
            self.turn.handle_refused(self.refresh_interval(), self.waiter.cluster.now());
        }
        while !self.is_trying {
            self.is_trying = self.follow();
            if !self.is_trying {
                let event = self.event().await;
                self.handle(event);
            }
        }
    }

    /// All gates have failed: goes on with a new entry at the first one that is skipped no more, if any.
    fn begin_again(&mut self) -> bool {
        let Waiter { cluster, key, locks, node_timeout, .. } = &*self.waiter;
        let gates = cluster.nodes.gates(key, cluster.now()).into_iter().take(1).collect();
        let (cluster, locks) = (Arc::clone(cluster), Arc::clone(locks));
        let again = Self::at(gates, cluster, key.clone(), locks, *node_timeout, true);
        again.map(|again| *self = again).is_some()
    }

    pub(super) fn won(mut self, on_hint: impl FnOnce(bool) + Send + 'static) {
        self.turn.handle_won();
        if let Some(Command::Leave { gate, also }) = self.turn.poll_command() {
            self.leave(gate, also, on_hint);
        }
    }

    /// Ends the wait without a win. The listener resolves when the gate has answered LEAVE; `None` where
    /// nothing is sent.
    pub(super) fn end(mut self) -> Option<EventListener> {
        self.cancel();
        self.left.take()
    }

    fn cancel(&mut self) {
        if !planted!("cancelled_wait_stays_in_the_queue") {
            self.turn.cancel();
            self.follow();
        }
    }

    /// Carries out commands. Returns whether an attempt is to be made.
    fn follow(&mut self) -> bool {
        while let Some(command) = self.turn.poll_command() {
            match command {
                Command::Attempt => return true,
                Command::Refresh(gate) => self.refresh(gate),
                Command::Watch(gate, key) => self.watch(gate, key),
                Command::Leave { gate, also } => self.leave(gate, also, |_| ()),
                Command::Skip(gate) => {
                    if planted!("silent_gate_stays_the_gate_of_new_waits") {
                        continue;
                    }
                    let cluster = &self.waiter.cluster;
                    let until = saturating_add(cluster.now(), SKIPPED);
                    cluster.nodes.skip_gate(gate, until);
                }
            }
        }
        false
    }

    fn refresh(&mut self, gate: NodeId) {
        let waiter = Arc::clone(&self.waiter);
        let open = self.open.get_or_insert_with(|| waiter.cluster.tasks.begin());
        open.set(NodeSet::from_iter([gate]));
        let reply = Box::pin(async move {
            let Waiter { cluster, key, locks, entry, .. } = &*waiter;
            let result = cluster.nodes.backend(gate).queue_refresh(key, entry, locks).await;
            if let Err(error) = &result {
                cluster.nodes.note_lack(gate, Capabilities::QUEUE, error);
            }
            Event::Refreshed(result)
        });
        self.call = Some(Call { is_refresh: true, reply });
    }

    fn watch(&mut self, gate: NodeId, watched: WatchedKey) {
        let waiter = Arc::clone(&self.waiter);
        let reply = Box::pin(async move {
            let (key, entry) = match &watched {
                WatchedKey::Lock(at) => (waiter.locks.get(*at).unwrap_or(&waiter.key), None),
                WatchedKey::Predecessor(entry) => (&waiter.key, Some(entry)),
            };
            let result = waiter.cluster.nodes.watch(gate, key, entry).await;
            Event::Watched(watched, result)
        });
        // The machine watches one key.
        self.push = None;
        self.call = Some(Call { is_refresh: false, reply });
    }

    /// Sends LEAVE in the background. A refresh in flight goes first: after LEAVE it would append the
    /// entry again.
    fn leave(
        &mut self,
        gate: NodeId,
        also: Option<Entry>,
        on_hint: impl FnOnce(bool) + Send + 'static,
    ) {
        self.push = None;
        let refresh = self.call.take().filter(|call| call.is_refresh).map(|call| call.reply);
        let refresh = OptionFuture::from(refresh);
        let waiter = Arc::clone(&self.waiter);
        let open = self.open.take();
        let signal = NotifyOnDrop(Signal::new());
        self.left = Some(signal.0.listen());
        self.waiter.cluster.tasks.spawn(async move {
            let (_open, _signal) = (open, signal);
            let Waiter { cluster, key, entry, .. } = &*waiter;
            let leave = cluster.nodes.backend(gate).queue_leave(key, entry, also.as_ref());
            let is_ordered = cluster.nodes.can(gate, Capabilities::ORDERED);
            let _in_flight = cluster.nodes.begin_call(gate, cluster.now());
            let note_settled = || cluster.nodes.health(gate).note_settled(cluster.now());
            let reply = cluster.within(ENTRY_LASTS, async {
                if is_ordered || planted!("leave_overtakes_the_refresh") {
                    return join(refresh, leave).await.1;
                }
                refresh.await;
                note_settled();
                leave.await
            });
            let Some(reply) = reply.await else { return };
            note_settled();
            if let Ok(others_wait) = reply {
                on_hint(others_wait);
            }
        });
    }

    /// The next event. A push comes before a reply, and a reply before the time (T5).
    async fn event(&mut self) -> Event {
        let next = self.turn.next_timeout();
        let mut timer = next.map(|next| self.waiter.cluster.runtime.sleep_until(next));
        poll_fn(|context| {
            if let Some((_, push)) = &mut self.push
                && push.as_mut().poll(context).is_ready()
            {
                return Poll::Ready(Event::Push);
            }
            if let Some(call) = &mut self.call
                && let Poll::Ready(event) = call.reply.as_mut().poll(context)
            {
                return Poll::Ready(event);
            }
            let Some(timer) = &mut timer else { return Poll::Pending };
            timer.as_mut().poll(context).map(|()| Event::Timeout)
        })
        .await
    }

    /// Gives the machine an event.
    fn handle(&mut self, event: Event) {
        let now = self.waiter.cluster.now();
        if matches!(event, Event::Refreshed(_) | Event::Watched(..)) {
            self.call = None;
        }
        match event {
            Event::Refreshed(Ok(reply)) => {
                self.turn.handle_refreshed(reply, self.refresh_interval(), now);
            }
            Event::Watched(key, Ok(watched)) => {
                let is_there = watched.is_held() || planted!("watch_replies_nothing");
                let changed: BoxFuture<'static, ()> = Box::pin(watched.changed());
                self.push = is_there.then_some((key, changed));
                self.turn.handle_watched(is_there, now);
            }
            Event::Refreshed(Err(_)) | Event::Watched(_, Err(_)) => self.turn.handle_failure(now),
            Event::Push => {
                if let Some((key, _)) = self.push.take() {
                    self.turn.handle_push(&key, now);
                }
            }
            Event::Timeout if self.gate().is_none() && self.begin_again() => {}
            Event::Timeout => self.turn.handle_timeout(now),
        }
    }

    fn refresh_interval(&self) -> Duration {
        let random = self.waiter.cluster.random() >> 32;
        Turn::refresh_interval(u32::try_from(random).unwrap_or_default())
    }
}

impl Drop for RemoteQueue {
    fn drop(&mut self) {
        self.cancel();
    }
}
