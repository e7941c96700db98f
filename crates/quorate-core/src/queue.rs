//! Whose turn it is among the waiters of this process: first come, first served.
//!
//! One waiter per key asks the nodes; the others wait behind it, and send nothing. It does not ask
//! either while somebody in this process holds the key, but waits to be told.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use crate::algorithm::lease::saturating_add;
use crate::cluster::Cluster;
use crate::driver::Attempt;
use crate::error::LockError;
use crate::lease::Tenure;
use crate::resource::Key;
use crate::standing::Met;
use crate::waiting::MOMENT;

/// The lines before the keys that somebody in this process holds or waits for.
#[derive(Default)]
pub(crate) struct Queues {
    state: Mutex<State>,
    /// How many locks were released.
    released: AtomicU32,
}

#[derive(Default)]
struct State {
    lines: HashMap<Key, Line>,
    /// Keys that were released a moment ago while others, elsewhere, waited for them.
    yielded: VecDeque<Yielded>,
}

#[derive(Default)]
struct Line {
    /// Who waits, the first in front.
    waiting: VecDeque<Arc<Ticket>>,
    /// Whether somebody has the turn.
    taken: bool,
    holder: Option<Holder>,
    /// Why nobody here has the key, as the nodes told the one whose turn it is.
    told: Option<LockError>,
    /// Until when somebody asks the nodes for it, at the latest.
    asked_until: Option<Instant>,
    /// Whether somebody here had it, and the nodes have not said otherwise since.
    had: bool,
    /// How often it was handed over within this process.
    handed_over: u32,
}

/// Who holds a key in this process, for as long as that may be.
#[derive(Clone)]
struct Holder {
    tenure: Weak<Tenure>,
    attempt: Weak<Attempt>,
}

/// Others go first, for a moment.
struct Yielded {
    key: Key,
    until: Instant,
    met: Met,
}

/// So often a lock that was released is asked for from behind the queue, though nobody was met: one
/// who is further from the nodes may stand there, and would never be met.
const LOOKS_AROUND: u32 = 128;

/// So often waiters elsewhere have a chance to take a lock that changes hands within this process.
const EVERY: u32 = 4;

#[derive(Default)]
struct Ticket {
    called: AtomicBool,
    waker: AtomicWaker,
}

impl Queues {
    /// Notes who holds the keys of a lease.
    pub(crate) fn enter(&self, tenure: &Arc<Tenure>) {
        let lines = &mut self.state().lines;
        for key in tenure.keys() {
            let attempt = Arc::downgrade(&tenure.attempt);
            let holder = Holder { tenure: Arc::downgrade(tenure), attempt };
            match lines.get_mut(key) {
                Some(line) => {
                    (line.holder, line.told, line.asked_until) = (Some(holder), None, None);
                    line.had = true;
                }
                None => {
                    let line = Line { holder: Some(holder), had: true, ..Line::default() };
                    lines.insert(key.clone(), line);
                }
            }
        }
    }

    /// Notes that an attempt is over and done, and holds its keys no longer.
    pub(crate) fn leave(&self, attempt: &Attempt) {
        let lines = &mut self.state().lines;
        for key in attempt.claim.keys() {
            if let Entry::Occupied(mut line) = lines.entry(key.clone()) {
                let held = &mut line.get_mut().holder;
                held.take_if(|holder| std::ptr::eq(holder.attempt.as_ptr(), attempt));
                if line.get().is_idle() {
                    line.remove();
                }
            }
        }
    }

    /// Lets waiters elsewhere go first, if somebody here wants `keys` again before `until`.
    pub(crate) fn yield_to(&self, met: Met, keys: &[Key], now: Instant, until: Instant) {
        let yielded = keys.iter().map(|key| Yielded { key: key.clone(), until, met });
        let mut state = self.state();
        state.forget_what_is_over(now);
        state.yielded.extend(yielded);
    }

    /// A lock was released; whether to see now if others wait for it.
    pub(crate) fn looks_around(&self) -> bool {
        self.released.fetch_add(1, Ordering::Relaxed) % LOOKS_AROUND == LOOKS_AROUND - 1
    }

    /// Which waiters elsewhere to let go first, and until when.
    pub(crate) fn yields_to(&self, keys: &[Key], now: Instant) -> Option<(Met, Instant)> {
        self.state().yields_to(keys, now)
    }

    fn holder(&self, key: &Key) -> Option<Holder> {
        self.state().lines.get(key)?.holder.clone()
    }

    /// Why one whose turn does not come has none of `keys`, as far as it is known here.
    pub(crate) fn in_the_way(&self, keys: &[Key]) -> Option<LockError> {
        let is_held = |key: &Key| {
            let tenure = self.holder(key).and_then(|holder| holder.tenure.upgrade());
            tenure.is_some_and(|tenure| tenure.held().is_ok())
        };
        if keys.iter().any(is_held) {
            return Some(LockError::held_here());
        }
        let state = self.state();
        keys.iter().find_map(|key| state.lines.get(key)?.told.clone())
    }

    /// Notes that the nodes are asked for `keys` out of turn, until `until` at the latest. One is enough,
    /// however many wait: the error is until when to leave it to somebody who does it already, or is
    /// about to. That is over by the `deadline`, but where somebody here had one of them a moment ago.
    pub(crate) fn ask_out_of_turn(
        &self,
        keys: &[Key],
        now: Instant,
        until: Instant,
        deadline: Instant,
    ) -> Result<(), Instant> {
        // Whoever has the turn asks once it is gone. An attempt that is dropped takes the lock of the
        // lines, so this comes in front of that.
        let goes = |key: &Key| {
            let going = self.holder(key).and_then(|holder| holder.attempt.upgrade());
            going.is_some_and(|attempt| attempt.is_over() && !attempt.is_free(false))
        };
        if keys.iter().any(goes) {
            return Err(until);
        }
        let mut state = self.state();
        let asked_until = |key: &Key| {
            let line = state.lines.get(key)?;
            line.asked_until.filter(|until| *until > now && (line.had || *until < deadline))
        };
        if let Some(until) = keys.iter().filter_map(asked_until).max() {
            return Err(until);
        }
        state.ask(keys, until);
        Ok(())
    }

    /// Whether the next holder of `key` asks the nodes right behind the release of the last. Not every
    /// time: waiters elsewhere, of whom nothing is known here, would never find it free.
    fn follows(&self, key: &Key) -> bool {
        let mut state = self.state();
        let Some(line) = state.lines.get_mut(key) else { return false };
        line.handed_over = line.handed_over.wrapping_add(1);
        line.handed_over % EVERY != 0
    }

    /// Calls the next one to `key`.
    fn pass_on(&self, key: &Key) {
        let mut state = self.state();
        let Entry::Occupied(mut entry) = state.lines.entry(key.clone()) else { return };
        let line = entry.get_mut();
        let next = line.waiting.pop_front();
        (line.told, line.asked_until) = (None, None);
        match &next {
            Some(ticket) => ticket.called.store(true, Ordering::SeqCst),
            None => {
                line.taken = false;
                if line.is_idle() {
                    entry.remove();
                }
            }
        }
        drop(state);
        if let Some(ticket) = next {
            ticket.waker.wake();
        }
    }

    /// A round for `keys` was lost. Who waits behind need not ask to be told why; where several keys
    /// are asked for, it may be another one's fault.
    pub(crate) fn tell(&self, keys: &[Key], error: &LockError) {
        self.state().tell(keys, error);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn ask(&mut self, keys: &[Key], until: Instant) {
        for key in keys {
            if let Some(line) = self.lines.get_mut(key) {
                line.asked_until = Some(until);
            }
        }
    }

    fn tell(&mut self, keys: &[Key], error: &LockError) {
        for key in keys {
            if let Some(line) = self.lines.get_mut(key) {
                (line.asked_until, line.had) = (None, false);
            }
        }
        if let ([key], LockError::Held { .. } | LockError::NoQuorum { .. }) = (keys, error)
            && let Some(line) = self.lines.get_mut(key)
        {
            line.told = Some(error.clone());
        }
    }

    fn forget_what_is_over(&mut self, now: Instant) {
        while self.yielded.front().is_some_and(|yielded| yielded.until <= now) {
            self.yielded.pop_front();
        }
    }

    fn yields_to(&mut self, keys: &[Key], now: Instant) -> Option<(Met, Instant)> {
        self.forget_what_is_over(now);
        let meant = |yielded: &&Yielded| keys.contains(&yielded.key) && yielded.until > now;
        let yielded = self.yielded.iter().filter(meant);
        // What was met last counts.
        yielded.max_by_key(|yielded| yielded.until).map(|last| (last.met, last.until))
    }
}

impl Line {
    fn is_idle(&self) -> bool {
        !self.taken && self.waiting.is_empty() && self.holder.is_none()
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").field("keys", &self.state().lines.len()).finish_non_exhaustive()
    }
}

/// The turn at all keys of a lock. Dropping it calls the next ones.
pub(crate) struct Turn {
    cluster: Arc<Cluster>,
    keys: Vec<Key>,
    /// What held the keys before, and may not be gone from the nodes yet.
    followed: Vec<Arc<Attempt>>,
}

/// The turn at `keys`, if nobody in this process waits for any of them or has it, and nobody
/// elsewhere goes first, as far as there is time to `wait` for them.
/// The first round takes its `patience` at the most.
pub(crate) fn turn_at_once(
    cluster: &Arc<Cluster>,
    keys: &[Key],
    now: Instant,
    (wait, patience): (Duration, Duration),
) -> Option<Turn> {
    let mut state = cluster.queues().state();
    if wait >= MOMENT && !state.yielded.is_empty() && state.yields_to(keys, now).is_some() {
        return None;
    }
    let asked_until = Some(saturating_add(now, patience));
    let taken = || Line { taken: true, asked_until, ..Line::default() };
    match keys {
        // One look, where two would do.
        [key] => match state.lines.entry(key.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(line) => {
                line.insert(taken());
            }
        },
        keys => {
            if keys.iter().any(|key| state.lines.contains_key(key)) {
                return None;
            }
            state.lines.extend(keys.iter().map(|key| (key.clone(), taken())));
        }
    }
    Some(Turn::new(cluster, keys.to_vec()))
}

/// Waits for the turn at `keys`.
///
/// They are taken one after the other in the order of their bytes, so that two who want the same
/// keys never wait for each other. Dropping the future leaves the line, or hands the turn on.
pub(crate) async fn turn(cluster: &Arc<Cluster>, keys: &[Key]) -> Turn {
    let mut turn = Turn::new(cluster, Vec::with_capacity(keys.len()));
    let mut in_order: Vec<&Key> = keys.iter().collect();
    in_order.sort();
    for key in in_order {
        Waiting { queues: cluster.queues(), key, ticket: None }.await;
        turn.keys.push(key.clone());
    }
    turn
}

impl Turn {
    fn new(cluster: &Arc<Cluster>, keys: Vec<Key>) -> Self {
        Self { cluster: Arc::clone(cluster), keys, followed: Vec::new() }
    }

    /// Waits until nobody in this process holds the keys any more, as far as it is known here: each
    /// was released, handed over or has run out.
    pub(crate) async fn vacated(&mut self) {
        let cluster = &self.cluster;
        for key in &self.keys {
            while let Some(holder) = cluster.queues().holder(key) {
                match holder.tenure.upgrade().filter(|tenure| tenure.held().is_ok()) {
                    Some(tenure) => tenure.ended_by(tenure.valid_until()).await,
                    None => {
                        // It is on its way out: asking before it is gone would be in vain.
                        if let Some(attempt) = holder.attempt.upgrade() {
                            let follows = cluster.queues().follows(key);
                            attempt.freed(follows).await;
                            if !attempt.is_free(false) {
                                self.followed.push(attempt);
                            }
                        }
                        break;
                    }
                }
            }
        }
    }

    /// The first round is about to begin, and is over by `until`.
    pub(crate) fn asks(&self, until: Instant) {
        self.cluster.queues().state().ask(&self.keys, until);
    }

    /// See [`Queues::tell`].
    pub(crate) fn tells(&self, error: &LockError) {
        self.cluster.queues().tell(&self.keys, error);
    }

    /// Whether the keys may still be on the nodes from before.
    pub(crate) const fn has_followed(&self) -> bool {
        !self.followed.is_empty()
    }

    /// Waits until they are not.
    pub(crate) async fn followed_is_gone(&mut self) {
        for attempt in std::mem::take(&mut self.followed) {
            attempt.freed(false).await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        for key in &self.keys {
            self.cluster.queues().pass_on(key);
        }
    }
}

/// A place in one line.
struct Waiting<'a> {
    queues: &'a Queues,
    key: &'a Key,
    ticket: Option<Arc<Ticket>>,
}

impl Future for Waiting<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(ticket) = &self.ticket {
            ticket.waker.register(context.waker());
            if !ticket.called.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
            self.ticket = None;
            return Poll::Ready(());
        }
        let mut state = self.queues.state();
        let line = state.lines.entry(self.key.clone()).or_default();
        if !line.taken {
            line.taken = true;
            return Poll::Ready(());
        }
        let ticket: Arc<Ticket> = Arc::default();
        ticket.waker.register(context.waker());
        line.waiting.push_back(Arc::clone(&ticket));
        drop(state);
        self.ticket = Some(ticket);
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(ticket) = &self.ticket else { return };
        let mut state = self.queues.state();
        if let Some(line) = state.lines.get_mut(self.key) {
            line.waiting.retain(|other| !Arc::ptr_eq(other, ticket));
        }
        drop(state);
        // Called already, but nobody is there any more.
        if ticket.called.load(Ordering::SeqCst) {
            self.queues.pass_on(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Resource;

    /// Nobody need ever look at them: `try_lock` does not.
    #[test]
    fn what_was_yielded_is_forgotten_when_its_time_is_over() {
        let (queues, mut now) = (Queues::default(), Instant::now());
        let key = Key::new(b"", &Resource::new("r").unwrap());
        for _ in 0..1_000 {
            now += Duration::from_millis(3);
            let until = now + Duration::from_millis(2);
            queues.yield_to(Met::PERHAPS, std::slice::from_ref(&key), now, until);
        }
        assert_eq!(queues.state().yielded.len(), 1);
    }
}
