//! Where a waiter stands among those of other processes: behind whom it came.
//!
//! All who wait for a lock see the same releases. If all of them asked at each, all but one would be
//! sent away. So the [queue](crate::Queue) at the gate keeps them in order: each watches the place
//! before its own, and only the first the lock. When that has it, it leaves its place, and by that
//! calls the next one to the front, while it holds the lock and nobody has to hurry.
//!
//! The order is no promise. A place that nobody answers for is [passed by](crate::waiting) after a
//! moment; only votes decide.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{OptionFuture, join, select};

use crate::algorithm::lease::{Ttl, saturating_add};
use crate::algorithm::quorum::NodeId;
use crate::backend::{BackendErrorKind, Holder, Watch, Watched};
use crate::cluster::Cluster;
use crate::driver::{Attempt, FIRST_PAUSE, LONGEST_PAUSE};
use crate::manager::Wanted;
use crate::places::Place;
use crate::resource::Key;
use crate::runtime::BoxFuture;
use crate::waiting::MOMENT;

/// What is remembered of those who wait elsewhere when a lock is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Met {
    /// So often in a row they are believed to be there though nobody shows up.
    trust: u32,
    /// Whether it takes them long until it is one's turn.
    for_long: bool,
}

/// Each time costs two questions at one node. But whoever forgets the others takes the lock again at
/// once, and is always quicker.
const TRUST: u32 = 8;

impl Met {
    /// There is somebody.
    pub(crate) const SOMEBODY: Self = Self { trust: TRUST, for_long: false };
    /// There may be somebody.
    pub(crate) const PERHAPS: Self = Self { trust: 1, for_long: false };
}

/// A node that was not heard so often in a row, each time for twice as long, is as good as gone.
const SILENCES: u32 = 5;

/// Where a waiter stands.
#[derive(Default)]
pub(crate) struct Standing {
    joined: Option<Joined>,
    /// Whether nobody has taken the lock out of turn since it set out for its place.
    in_order: bool,
    /// Whether somebody else was there.
    met: bool,
    /// What is left of the trust in those who were met before.
    trust: u32,
    /// Whether the lock was released here a moment ago, and others go first.
    yields: bool,
    /// Whether it can spare a moment before it stands in line.
    has_time: bool,
    /// How often the gate was not heard in time.
    unheard: u32,
    /// How often in a row.
    silences: u32,
}

/// A place in a queue. Dropping it gives it up.
struct Joined {
    queue: Line,
    place: Place,
    since: Instant,
    /// Until when the node keeps the place, at least.
    until: Instant,
    /// The way to it. What gives the place up must not overtake it.
    joining: Option<Joining>,
    /// Who goes first, as far as is known.
    before: Option<Place>,
    /// Who stood before that one when it was last seen.
    further: Option<Place>,
}

type Joining = BoxFuture<'static, Result<Option<Place>, BackendErrorKind>>;

/// The queue before a key, at one node.
#[derive(Clone)]
struct Line {
    cluster: Arc<Cluster>,
    node: NodeId,
    key: Key,
    ttl: Ttl,
}

/// For so long others have a chance where no node keeps them in order. Where one does, what stands in
/// line again would only take time from the one who is about to have the lock.
const PAUSE: Duration = Duration::from_millis(1);

/// Whoever stood in line for so long loses nothing by a pause, which timers may make twice as long.
const LONG: Duration = Duration::from_millis(5);

impl Standing {
    /// The lock was released here a moment ago.
    pub(crate) fn after(met: Met) -> Self {
        Self { trust: met.trust, yields: true, has_time: met.for_long, ..Self::default() }
    }

    /// Somebody else has the lock.
    pub(crate) const fn meets(&mut self) {
        self.met = true;
    }

    /// The nodes were asked, and somebody else has the lock.
    pub(crate) const fn refused(&mut self) {
        (self.met, self.in_order) = (true, false);
    }

    /// Those who go first do not come: they are gone, and so are their places.
    pub(crate) fn passes_by(&mut self) {
        if let Some(joined) = &mut self.joined
            && let Some(gone) = joined.before.take()
        {
            joined.queue.give_up(gone, joined.further.take(), None);
        }
        (self.met, self.in_order) = (false, false);
    }

    /// How long the gate is waited for, which may be far away: after each time that it was not heard
    /// for twice as long, up to `node_timeout`.
    pub(crate) fn patience(&self, node_timeout: Duration) -> Duration {
        MOMENT.saturating_mul(1 << self.unheard.min(16)).min(node_timeout.max(MOMENT))
    }

    /// The gate was waited for.
    pub(crate) const fn hears<T, E>(&mut self, told: &Result<T, E>) {
        match told {
            Ok(_) => self.silences = 0,
            Err(_) => {
                self.unheard = self.unheard.saturating_add(1);
                self.silences = self.silences.saturating_add(1);
            }
        }
    }

    /// Gives its place up if the node has not been heard for so often that it is not just far away:
    /// those who stand elsewhere, or nowhere, would have the lock for ever.
    pub(crate) fn leaves_a_silent_node(&mut self) {
        if self.silences >= SILENCES {
            self.joined = None;
        }
    }

    /// The node at which it has a place.
    pub(crate) fn node(&self) -> Option<NodeId> {
        let joined = self.joined.as_ref().filter(|joined| !joined.is_over())?;
        Some(joined.queue.node)
    }

    /// Whether nobody is known to go first.
    pub(crate) fn is_first(&self) -> bool {
        self.joined.as_ref().is_none_or(|joined| joined.before.is_none() && !joined.is_over())
    }

    /// Whether nobody is known to go before the one that goes before it.
    pub(crate) fn is_second(&self) -> bool {
        self.joined.as_ref().is_some_and(|joined| joined.further.is_none())
    }

    /// Whether it is the first in a queue.
    pub(crate) fn leads(&self) -> bool {
        let has_joined = |joined: &Joined| joined.joining.is_none();
        self.is_first() && self.joined.as_ref().is_some_and(has_joined)
    }

    /// Whether nobody else is expected to ask when the lock is released: this waiter is the first in
    /// the queue, and nobody has taken it out of turn.
    pub(crate) fn is_alone(&self) -> bool {
        self.in_order && self.leads()
    }

    /// For how long it keeps its place from now on, up to `time`.
    pub(crate) fn stands_for(&self, time: Duration) -> Duration {
        let left = |joined: &Joined| {
            joined.until.saturating_duration_since(joined.queue.cluster.runtime.now())
        };
        self.joined.as_ref().map_or(time, |joined| left(joined).min(time))
    }

    /// Joins the queue at `gate`, if the node keeps one.
    pub(crate) async fn join(&mut self, cluster: &Arc<Cluster>, wanted: &Wanted, gate: NodeId) {
        let yields = std::mem::take(&mut self.yields);
        let orders = cluster.queue(gate).is_some();
        if yields && (self.has_time || !orders) {
            let runtime = &*cluster.runtime;
            runtime.sleep_until(saturating_add(runtime.now(), PAUSE)).await;
        }
        if !orders {
            return;
        }
        if self.node() != Some(gate) {
            self.joined = Joined::set_out(cluster, wanted, gate);
            self.in_order = true;
        }
        let Some(joined) = &mut self.joined else { return };
        let Some(joining) = &mut joined.joining else { return };
        let answer = joining.await;
        joined.joining = None;
        match answer {
            Ok(before) => joined.before = before,
            Err(kind) => {
                self.joined = None;
                cluster.unordered(gate, kind);
            }
        }
    }

    /// Looks at who goes first; `None` if nobody does.
    pub(crate) async fn look(
        &mut self,
        watcher: &dyn Watch,
    ) -> Result<Option<Watched>, BackendErrorKind> {
        let Some(joined) = &mut self.joined else { return Ok(None) };
        let Some(before) = &joined.before else { return Ok(None) };
        let look = async |place: &Place| match watcher.look(place.key()).await {
            Ok(seen) => Ok(Some(seen).filter(|seen| seen.holder().is_some())),
            Err(error) => Err(error.kind()),
        };
        let further = OptionFuture::from(joined.further.as_ref().map(look));
        let (seen, beyond) = join(look(before), further).await;
        let seen = match seen? {
            Some(seen) => Some(seen),
            // It was given up. If that was not for the lock, those before it still go first.
            None => {
                let beyond = beyond.transpose()?.flatten();
                joined.before = joined.further.take().filter(|_| beyond.is_some());
                beyond
            }
        };
        if let Some(seen) = &seen {
            self.met = true;
            joined.further = seen.holder().and_then(Holder::as_place);
        }
        Ok(seen)
    }

    /// Looks whether anybody stands before the one who goes first.
    pub(crate) async fn looks_further(&mut self, watcher: &dyn Watch) {
        let Some(joined) = &mut self.joined else { return };
        let Some(further) = &joined.further else { return };
        if let Ok(Ok(seen)) = AssertUnwindSafe(watcher.look(further.key())).catch_unwind().await
            && seen.holder().is_none()
        {
            joined.further = None;
        }
    }

    /// The lock was won: gives the place to the next one, and tells the attempt at it whether it is
    /// to let others go first for `time` when it is released.
    pub(crate) fn won(self, attempt: &Arc<Attempt>, time: Duration) {
        let trust = if self.met { TRUST } else { self.trust.saturating_sub(1) };
        if trust > 0 {
            let now = attempt.cluster.runtime.now();
            let stood = |joined: &Joined| now.saturating_duration_since(joined.since);
            let for_long = self.joined.as_ref().is_some_and(|joined| stood(joined) >= LONG);
            attempt.yield_to(Met { trust, for_long }, time);
        }
    }
}

impl Joined {
    /// Sets out for a place in the queue at a node. Who wants the same keys stands in the same queue.
    fn set_out(cluster: &Arc<Cluster>, wanted: &Wanted, node: NodeId) -> Option<Self> {
        let key = wanted.keys.iter().min()?.clone();
        let place = Place::draw(|bytes| cluster.runtime.fill_random(bytes)).ok()?;
        let queue = Line { cluster: Arc::clone(cluster), node, key, ttl: wanted.ttl };
        // The node counts from later on; its clock may run faster by the drift.
        let since = cluster.runtime.now();
        let until = saturating_add(since, Place::TTL - Place::TTL / 10);
        let joining = Some(queue.clone().join(place.clone()).boxed());
        Some(Self { queue, place, since, until, joining, before: None, further: None })
    }

    /// Whether the node may have forgotten the place.
    fn is_over(&self) -> bool {
        self.queue.cluster.runtime.now() >= self.until
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.queue.give_up(self.place.clone(), self.before.take(), self.joining.take());
    }
}

impl Line {
    async fn join(self, place: Place) -> Result<Option<Place>, BackendErrorKind> {
        let Some(queue) = self.cluster.node(self.node).queue() else { return Ok(None) };
        let joins = AssertUnwindSafe(queue.join(&self.key, &place)).catch_unwind();
        joins.await.map_err(|_panic| BackendErrorKind::Other)?.map_err(|error| error.kind())
    }

    /// Gives a place up in the background, behind those `before` it, after the way to it has ended.
    fn give_up(&self, place: Place, before: Option<Place>, joining: Option<Joining>) {
        let line = self.clone();
        let running = self.cluster.background().enter();
        self.cluster.runtime.spawn(Box::pin(async move {
            let _running = running;
            let runtime = &*line.cluster.runtime;
            let bound = line.cluster.config.cleanup_timeout(line.ttl.as_duration());
            let until = saturating_add(runtime.now(), bound);
            if let Some(joining) = joining {
                select(joining, runtime.sleep_until(until)).await;
            }
            let over = async {
                runtime.sleep_until(until).await;
                // The process may have stood still, and the answer be there.
                let grace = bound.min(LONGEST_PAUSE);
                runtime.sleep_until(saturating_add(runtime.now(), grace)).await;
            };
            select(pin!(line.leave(&place, before.as_ref(), until)), pin!(over)).await;
        }));
    }

    /// Leaves a place, and tries again until then if that fails.
    async fn leave(&self, place: &Place, before: Option<&Place>, until: Instant) {
        let runtime = &*self.cluster.runtime;
        let Some(queue) = self.cluster.node(self.node).queue() else { return };
        let mut pause = FIRST_PAUSE;
        loop {
            let leaves = AssertUnwindSafe(queue.leave(&self.key, place, before)).catch_unwind();
            match leaves.await {
                Ok(Err(error)) if !error.kind().is_permanent() => {}
                _ => return,
            }
            let next = saturating_add(runtime.now(), pause);
            if next >= until {
                return;
            }
            runtime.sleep_until(next).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
