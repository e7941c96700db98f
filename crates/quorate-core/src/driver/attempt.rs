//! One attempt at a lock: what nodes may have of it, and who waits until they do not.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{self, Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_listener::Event;
use futures_util::future::{Either, select};

use super::calling::{self, Operation};
use super::calls::Calls;
use super::fencing::Fencing;
use crate::algorithm::fence::FencingToken;
use crate::algorithm::lease::saturating_add;
use crate::algorithm::node_set::NodeSet;
use crate::algorithm::quorum::{NodeId, Vote};
use crate::backend::{BackendError, BackendErrorKind, Claim};
use crate::cluster::Cluster;
use crate::shared_set::AtomicNodeSet;
use crate::standing::Met;

/// Long enough for a waiter elsewhere to hear of the release and to ask the nodes.
pub(crate) const YIELD: Duration = Duration::from_millis(2);

/// One attempt at a lock, from its first acquire to its last release.
///
/// It is signed by one token. The lanes let one call at a time through to each node, so that a
/// release comes after the acquire that it undoes; where order is kept, a release that is
/// carried may come right behind that acquire.
pub(crate) struct Attempt {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) claim: Claim,
    pub(super) fencing: Option<Fencing>,
    /// The node that is asked first. It is the one that waiters elsewhere watch, unless it hangs.
    first: NodeId,
    /// The nodes to which a call is under way.
    lanes: AtomicNodeSet,
    /// Those of them at which that is an acquire which the backend carries.
    acquiring: AtomicNodeSet,
    /// One of them is not any more.
    left: Event,
    /// The nodes that are known to have granted it: there a release must not fail for good.
    granted: AtomicNodeSet,
    /// The nodes at which a release went behind an acquire that had not been answered. If both are
    /// lost with their connection, it is worth another.
    unheard: AtomicNodeSet,
    /// The longest ttl that a node was asked for, in milliseconds.
    longest_ttl: AtomicU64,
    /// The nodes that may have it, so that there is something to release.
    asked: AtomicNodeSet,
    /// The nodes that are known not to have it any more.
    rid: AtomicNodeSet,
    /// The nodes to which a release is on its way, in front of all that sets out later.
    leaving: AtomicNodeSet,
    /// From now on nothing may be set or prolonged: it would come back after its release.
    over: AtomicBool,
    free: Event,
    /// Whether anybody waits until it is free.
    awaited: AtomicBool,
    /// For how long this process lets which waiters elsewhere go first when this is released, if
    /// any were met.
    yields: sync::Mutex<Option<(Duration, Met)>>,
    /// Whether a node refused it: somebody else wanted it at the same time.
    disputed: AtomicBool,
    /// Whether waiters of this process look at it.
    entered: AtomicBool,
}

impl Attempt {
    pub(crate) fn new(cluster: Arc<Cluster>, claim: Claim, fencing: Option<Fencing>) -> Arc<Self> {
        let longest_ttl = AtomicU64::new(claim.ttl().as_millis());
        let first = cluster.first_gate(claim.keys());
        Arc::new(Self {
            cluster,
            claim,
            fencing,
            first,
            lanes: AtomicNodeSet::default(),
            acquiring: AtomicNodeSet::default(),
            left: Event::new(),
            granted: AtomicNodeSet::default(),
            unheard: AtomicNodeSet::default(),
            longest_ttl,
            asked: AtomicNodeSet::default(),
            rid: AtomicNodeSet::default(),
            leaving: AtomicNodeSet::default(),
            over: AtomicBool::new(false),
            free: Event::new(),
            awaited: AtomicBool::new(false),
            yields: sync::Mutex::default(),
            disputed: AtomicBool::new(false),
            entered: AtomicBool::new(false),
        })
    }

    /// One that any node may have: it began elsewhere.
    pub(crate) fn adopted(
        cluster: Arc<Cluster>,
        claim: Claim,
        token: Option<FencingToken>,
    ) -> Arc<Self> {
        let fencing = token.map(|token| Fencing::adopted(&cluster, token));
        let attempt = Self::new(cluster, claim, fencing);
        attempt.asked.insert_all();
        attempt.granted.insert_all();
        attempt
    }

    /// Waiters of this process look at it from now on, until it is dropped.
    pub(crate) fn enter(&self) {
        self.entered.store(true, Ordering::SeqCst);
    }

    /// Lets no call through any more that sets or prolongs a key. Those that have left are not
    /// called back: a release comes to each node after them.
    pub(crate) fn close(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Waits until a quorum of nodes is rid of it, but no longer than a node may take to answer. Who
    /// `follows` does not wait for the answers to releases that arrive before anything of its own.
    pub(crate) async fn freed(&self, follows: bool) {
        self.awaited.store(true, Ordering::SeqCst);
        let runtime = &*self.cluster.runtime;
        let patience = self.cluster.config.node_timeout(self.claim.ttl());
        let mut timer = None;
        loop {
            let free = self.free.listen();
            if !self.is_over() || self.is_free(follows) {
                return;
            }
            let until = || runtime.sleep_until(saturating_add(runtime.now(), patience));
            match select(free, timer.take().unwrap_or_else(until)).await {
                Either::Left(((), running)) => timer = Some(running),
                Either::Right(_) => return,
            }
        }
    }

    /// In the order in which calls leave for them.
    pub(super) fn in_order(&self, nodes: NodeSet) -> impl Iterator<Item = NodeId> + use<> {
        nodes.ids_from(self.first)
    }

    /// Takes the lane of a node for a call, if there is none under way.
    pub(super) fn enters_lane(&self, node: NodeId) -> bool {
        self.lanes.try_insert(node) || planted!("release_overtakes_the_acquire")
    }

    /// The same for a release that is to be carried. Where calls keep their order, it need not wait
    /// for the answer to an acquire that is carried, too: it comes behind it, or that acquire does not
    /// leave any more.
    pub(super) fn enters_lane_behind(&self, node: NodeId) -> bool {
        if self.enters_lane(node) {
            return true;
        }
        let is_ordered =
            self.cluster.orderly().contains(node) || planted!("calls_of_a_pool_keep_their_order");
        let goes_behind = is_ordered && self.acquiring.contains(node);
        if goes_behind {
            self.unheard.insert(node);
        }
        goes_behind
    }

    /// Whether a call to a node is under way.
    pub(crate) fn is_called(&self) -> bool {
        !self.lanes.get().is_empty()
    }

    pub(super) fn acquires_by_carrier(&self, node: NodeId) {
        self.acquiring.insert(node);
    }

    pub(super) fn has_acquired(&self, node: NodeId) {
        self.acquiring.remove(node);
    }

    /// Takes the lane of a node once those before it have settled.
    pub(super) async fn enter_lane(&self, node: NodeId) {
        loop {
            let left = self.left.listen();
            if self.enters_lane(node) {
                return;
            }
            left.await;
        }
    }

    pub(super) fn leave_lane(&self, node: NodeId) {
        self.lanes.remove(node);
        self.left.notify(usize::MAX);
    }

    /// Whether a quorum of nodes is rid of it, as far as who `follows` or not is concerned.
    pub(crate) fn is_free(&self, follows: bool) -> bool {
        let mut rid = self.rid.get();
        if follows && !self.lets_others_go_first() {
            rid = rid.union(self.leaving.get());
        }
        rid.len() >= self.cluster.count().quorum()
    }

    /// Releases have set out to these nodes, and to all others that can be asked by now.
    pub(super) fn record_leaving(&self, nodes: NodeSet) {
        self.leaving.insert_these(nodes.intersection(self.cluster.orderly()));
        self.tell_who_waits();
    }

    fn tell_who_waits(&self) {
        if self.awaited.load(Ordering::SeqCst) {
            self.free.notify(usize::MAX);
        }
    }

    /// Whether waiters elsewhere, met on the way to it, are to have a chance.
    fn lets_others_go_first(&self) -> bool {
        self.disputed.load(Ordering::Relaxed) || self.yields().is_some()
    }

    /// The node answered a release, so it does not have the keys, whoever removed them.
    pub(super) fn record_rid(&self, node: NodeId) {
        let quorum = self.cluster.count().quorum();
        let rid = self.rid.insert(node).len();
        if rid < quorum {
            // With those to which releases are on their way, it may be enough.
            if self.awaited.load(Ordering::SeqCst) && self.is_free(true) {
                self.free.notify(usize::MAX);
            }
            return;
        }
        let was_held = self.entered.load(Ordering::SeqCst);
        let disputed = self.disputed.swap(false, Ordering::Relaxed) && was_held;
        let looks = was_held && rid == quorum && self.cluster.queues().looks_around();
        let yields = self
            .yields()
            .take()
            .or_else(|| disputed.then_some((YIELD, Met::SOMEBODY)))
            .or_else(|| looks.then_some((YIELD, Met::PERHAPS)));
        if let Some((time, met)) = yields {
            let now = self.cluster.runtime.now();
            self.cluster.queues().yield_to(met, self.claim.keys(), now, now + time);
        }
        self.tell_who_waits();
    }

    /// Others, elsewhere, were met on the way to it: they go first the next time.
    pub(crate) fn yield_to(&self, met: Met, time: Duration) {
        *self.yields() = Some((time, met));
    }

    fn yields(&self) -> MutexGuard<'_, Option<(Duration, Met)>> {
        self.yields.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn may_have_now(&self, node: NodeId) {
        self.asked.insert(node);
    }

    fn may_have(&self, node: NodeId) -> bool {
        self.asked.contains(node)
    }

    pub(super) fn record_grant(&self, node: NodeId) {
        self.granted.insert(node);
    }

    /// A node refused it.
    pub(super) fn record_dispute(&self) {
        self.disputed.store(true, Ordering::Relaxed);
    }

    /// Whether a release that failed is to be sent again.
    pub(super) fn may_have_granted(&self, node: NodeId) -> bool {
        self.granted.contains(node) || self.unheard.contains(node)
    }

    /// The same for one that is sent again now, which has been heard of the acquire before it.
    pub(super) fn releases_again(&self, node: NodeId) -> bool {
        let unheard = self.unheard.take(node);
        self.granted.contains(node) || unheard || self.acquiring.contains(node)
    }

    /// It was asked for that ttl, too.
    pub(super) fn asked_for(&self, claim: &Claim) {
        self.longest_ttl.fetch_max(claim.ttl().as_millis(), Ordering::Relaxed);
    }

    /// How long cleanup goes on: no node keeps the keys for longer.
    pub(super) fn cleanup_timeout(&self) -> Duration {
        let longest = if planted!("cleanup_ends_with_the_first_ttl") {
            self.claim.ttl().as_duration()
        } else {
            Duration::from_millis(self.longest_ttl.load(Ordering::Relaxed))
        };
        self.cluster.config.cleanup_timeout(longest)
    }

    /// Adds the calls of an operation to `nodes` to those on their way.
    pub(super) fn set_out(
        self: &Arc<Self>,
        calls: &mut Calls,
        operation: &Operation,
        nodes: impl Iterator<Item = NodeId>,
        now: Instant,
    ) {
        let mut asked = NodeSet::default();
        if matches!(operation, Operation::Release) {
            self.close();
            for node in nodes {
                let is_left_out = match node.index() < self.cluster.count().quorum() {
                    false if planted!("release_is_sent_to_a_quorum") => true,
                    _ if planted!("undo_skips_silent_nodes") => self.lanes.get().contains(node),
                    _ if planted!("release_only_where_granted") => !self.granted.contains(node),
                    _ => false,
                };
                if self.may_have(node) && !is_left_out {
                    asked.insert(node);
                } else {
                    self.record_rid(node);
                    calls.add_settled(node, Ok(Vote::Refused));
                }
            }
        } else {
            let hung = self.cluster.hung(now, self.claim.ttl());
            for node in nodes {
                match hung.iter().find(|(hung, _)| *hung == node) {
                    Some((_, silent)) => {
                        let obstacle = self.cluster.obstacle(node);
                        calls.add_settled(node, Err(not_asked(*silent, obstacle.as_ref())));
                    }
                    None => {
                        self.may_have_now(node);
                        asked.insert(node);
                    }
                }
            }
        }
        calling::set_out(self, operation, asked, now, calls);
    }
}

fn not_asked(silent: Duration, obstacle: Option<&BackendError>) -> BackendError {
    let mut message = format!("not asked: it has not answered for {silent:.1?}");
    if let Some(error) = obstacle {
        message = format!("{message}: {error}");
    }
    BackendError::new(BackendErrorKind::TimedOut, message)
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if *self.entered.get_mut() {
            self.cluster.queues().leave(self);
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("claim", &self.claim).finish_non_exhaustive()
    }
}
