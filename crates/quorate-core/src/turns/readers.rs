//! The readers of a manager that wait between processes.
//!
//! Readers take no turn in the manager: each competes at the nodes. Those that wait for the same
//! keys share one wait, and so one entry of the wait queue. When its turn comes, all of them make
//! an attempt. From then on no other reader joins: else an entry that stands before a writer would
//! never leave.
//!
//! While the gate's word is fresh that others wait, a new reader joins the queue before its first
//! attempt (RW1).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::resource::Key;
use crate::seam::runtime::lock;
use crate::turns::remote_wait::{Goal, RemoteWait, WaitInput};

/// The latest group of readers for each set of keys.
type Groups = HashMap<Arc<[Key]>, Arc<Group>>;

/// The readers of a manager that wait.
#[derive(Clone, Default)]
pub(crate) struct Readers(Arc<Mutex<Groups>>);

/// Readers that share one wait.
struct Group {
    keys: Arc<[Key]>,
    /// The one of them in whose queue the wait is.
    home: Key,
    wait: Arc<RemoteWait>,
    /// Changed under the lock of the groups only.
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
    /// Whether readers of `keys` wait whose turn has not come yet.
    pub(crate) fn is_waiting(&self, keys: &Arc<[Key]>) -> bool {
        let group = self.lock().get(keys).cloned();
        group.is_some_and(|group| group.is_open())
    }

    /// Joins the readers that wait for `keys`, in sorted order, in the queue of one of them. `None`
    /// without randomness, and once the manager is closed.
    pub(crate) fn join(
        &self,
        cluster: &Arc<Cluster>,
        keys: &Arc<[Key]>,
        home: &Key,
        node_timeout: Duration,
    ) -> Option<Member> {
        let found = self.lock().get(keys).filter(|group| group.home == *home).cloned();
        let member = |group| Member { readers: self.clone(), group, seen: 0, has_won: false };
        if let Some(group) = found.filter(|group| group.is_open()) {
            let _groups = self.lock();
            if group.members.load(Ordering::Relaxed) > 0 {
                group.members.fetch_add(1, Ordering::Relaxed);
                return Some(member(group));
            }
        }
        let goal = Goal::of_readers(Arc::clone(keys));
        let wait = RemoteWait::begin(cluster, home.clone(), goal, node_timeout, true)?;
        let (keys, home, members) = (Arc::clone(keys), home.clone(), AtomicUsize::new(1));
        let group = Arc::new(Group { keys, home, wait, members });
        self.lock().insert(Arc::clone(&group.keys), Arc::clone(&group));
        Some(member(group))
    }

    fn lock(&self) -> MutexGuard<'_, Groups> {
        lock(&self.0)
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

    /// The key in whose queue it waits.
    pub(crate) fn home(&self) -> &Key {
        &self.group.home
    }

    /// Waits for the call to the next attempt.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn called(&mut self) {
        if let Some(call) = self.wait().called(self.seen).await {
            self.seen = call;
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
        let mut groups = self.readers.lock();
        if self.group.members.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        let latest = groups.get(&self.group.keys);
        let is_latest = latest.is_some_and(|latest| Arc::ptr_eq(latest, &self.group));
        let group = is_latest.then(|| groups.remove(&self.group.keys));
        drop(groups);
        drop(group);
        self.wait().input(if self.has_won { WaitInput::Won } else { WaitInput::Cancel });
    }
}
