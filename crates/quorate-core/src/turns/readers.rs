//! The readers of a manager that wait between processes.
//!
//! Readers take no turn in the manager: each competes at the nodes. Those that wait for the same keys share one wait, and
//! so one entry of the wait queue. When its turn comes, all of them make an attempt. From then on no other reader joins:
//! else an entry that stands before a writer would never leave.
//!
//! Beside the waits stands the gate's hint that a writer waits. While it is fresh, a new reader joins the queue before its
//! first attempt (RW1).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::resource::Key;
use crate::seam::runtime::lock;
use crate::turns::remote_wait::{Goal, RemoteWait, WaitInput, is_recent};

/// The readers of a manager that wait, and what the gates say of writers.
#[derive(Clone, Default)]
pub(crate) struct Readers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The latest group for each set of keys.
    groups: HashMap<Arc<[Key]>, Arc<Group>>,
    /// When the gate of a key said last that a writer waits.
    hints: HashMap<Key, Instant>,
}

/// Readers that share one wait.
struct Group {
    keys: Arc<[Key]>,
    /// The one of them in whose queue the wait is.
    home: Key,
    wait: Arc<RemoteWait>,
    /// Changed under the lock of the state only.
    members: AtomicUsize,
}

/// One reader of a group. Dropped, it leaves the group, and the last one takes the entry along.
pub(crate) struct Member {
    readers: Readers,
    group: Arc<Group>,
    /// The number of the attempt that it has made last.
    seen: u32,
    has_won: bool,
}

impl Readers {
    /// The gate of `key` said whether a writer waits.
    pub(crate) fn note_hint(&self, key: &Key, writer_waits: bool, now: Instant) {
        let mut state = self.lock();
        state.hints.retain(|_, at| is_recent(*at, now));
        match writer_waits {
            true => drop(state.hints.insert(key.clone(), now)),
            false => drop(state.hints.remove(key)),
        }
    }

    /// Whether a new reader waits for its turn before its first attempt: other readers do so, or a writer waits.
    pub(crate) fn wait_first(&self, keys: &Arc<[Key]>, now: Instant) -> bool {
        let group = self.lock().groups.get(keys).cloned();
        self.hear_of_writer(keys, now) || group.is_some_and(|group| group.is_open())
    }

    /// Whether a gate of `keys` has said lately that a writer waits.
    pub(crate) fn hear_of_writer(&self, keys: &[Key], now: Instant) -> bool {
        self.lock().hinted(keys, now).is_some()
    }

    /// Joins the readers that wait for `keys`, in sorted order: in the queue of the first key for which a writer waits, else
    /// of the first one. `None` without randomness, and once the manager is closed.
    pub(crate) fn join(
        &self,
        cluster: &Arc<Cluster>,
        keys: &Arc<[Key]>,
        node_timeout: Duration,
    ) -> Option<Member> {
        let state = self.lock();
        let hinted = state.hinted(keys, cluster.now());
        let is_home = |group: &&Arc<Group>| hinted.is_none_or(|key| *key == group.home);
        let found = state.groups.get(keys).filter(is_home).cloned();
        let home = hinted.or_else(|| keys.first())?.clone();
        drop(state);
        let member = |group| Member { readers: self.clone(), group, seen: 0, has_won: false };
        if let Some(group) = found.filter(|group| group.is_open()) {
            let _state = self.lock();
            if group.members.load(Ordering::Relaxed) > 0 {
                group.members.fetch_add(1, Ordering::Relaxed);
                return Some(member(group));
            }
        }
        let (key, goal) = (home.clone(), |_| Goal::of_readers(Arc::clone(keys)));
        let wait = RemoteWait::begin(cluster, key, goal, node_timeout, true)?;
        let keys = Arc::clone(keys);
        let group = Arc::new(Group { keys, home, wait, members: AtomicUsize::new(1) });
        self.lock().groups.insert(Arc::clone(&group.keys), Arc::clone(&group));
        Some(member(group))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    /// The first key whose gate has said lately that a writer waits.
    fn hinted<'a>(&self, keys: &'a [Key], now: Instant) -> Option<&'a Key> {
        keys.iter().find(|key| self.hints.get(key).is_some_and(|at| is_recent(*at, now)))
    }
}

impl Group {
    /// Whether its turn has not come yet.
    fn is_open(&self) -> bool {
        self.wait.calls_to_attempt() == 0
    }
}

impl Member {
    pub(crate) fn wait(&self) -> &Arc<RemoteWait> {
        &self.group.wait
    }

    /// Its attempt was not won. The first member that is refused says so for all of the group.
    pub(crate) fn refused(&self) {
        if self.wait().calls_to_attempt() == self.seen {
            self.wait().input(WaitInput::Refused);
        }
    }

    /// Waits for the call to the next attempt. Writers that wait then stand behind this group.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn called(&mut self) {
        if let Some(call) = self.wait().called(self.seen).await {
            self.seen = call;
            self.readers.lock().hints.remove(&self.group.home);
        }
    }

    /// Its attempt was won.
    pub(crate) fn won(mut self) {
        self.has_won = true;
    }

    /// Leaves the group. Returns the wait if it has ended with that.
    #[must_use]
    pub(crate) fn leave(self) -> Option<Arc<RemoteWait>> {
        let wait = Arc::clone(self.wait());
        drop(self);
        wait.is_over().then_some(wait)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.readers.lock();
        if self.group.members.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let latest = state.groups.get(&self.group.keys);
        let is_latest = latest.is_some_and(|latest| Arc::ptr_eq(latest, &self.group));
        let group = is_latest.then(|| state.groups.remove(&self.group.keys));
        drop(state);
        drop(group);
        self.wait().input(if self.has_won { WaitInput::Won } else { WaitInput::Cancel });
    }
}
