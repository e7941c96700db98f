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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::resource::Key;
use crate::seam::runtime::lock;
use crate::turns::remote_wait::{Goal, RemoteWait, WaitInput};

/// The latest group of waiting readers of a manager, for each set of keys.
#[derive(Default)]
pub(crate) struct Readers(Mutex<HashMap<Arc<[Key]>, Weak<Group>>>);

/// Readers that share one wait. The last one takes the entry along.
struct Group {
    /// The key in whose queue the wait is.
    home: Key,
    wait: Arc<RemoteWait>,
    has_won: AtomicBool,
}

/// One reader of a group. Dropped, it leaves the group.
pub(crate) struct Member {
    group: Arc<Group>,
    /// The number of the attempt that it has made last.
    seen: u32,
}

impl Readers {
    /// Whether readers of `keys` wait whose turn has not come yet.
    pub(crate) fn is_waiting(&self, keys: &Arc<[Key]>) -> bool {
        self.open_group(keys).is_some()
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
        if let Some(group) = self.open_group(keys).filter(|group| group.home == *home) {
            return Some(Member { group, seen: 0 });
        }
        let goal = Goal::of_readers(Arc::clone(keys));
        let wait = RemoteWait::begin(cluster, home.clone(), goal, node_timeout, true)?;
        let group = Arc::new(Group { home: home.clone(), wait, has_won: AtomicBool::new(false) });
        let mut groups = lock(&self.0);
        groups.retain(|_, group| group.strong_count() > 0);
        groups.insert(Arc::clone(keys), Arc::downgrade(&group));
        Some(Member { group, seen: 0 })
    }

    /// The readers of `keys` that wait, if their turn has not come yet.
    fn open_group(&self, keys: &Arc<[Key]>) -> Option<Arc<Group>> {
        let group = lock(&self.0).get(keys).and_then(Weak::upgrade);
        group.filter(|group| group.wait.calls_to_attempt() == 0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let has_won = self.has_won.load(Ordering::Relaxed);
        self.wait.input(if has_won { WaitInput::Won } else { WaitInput::Cancel });
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
    pub(crate) fn won(self) {
        self.group.has_won.store(true, Ordering::Relaxed);
    }

    /// Leaves the group. Returns the wait if it has ended with that.
    #[must_use]
    pub(crate) fn leave(self) -> Option<Arc<RemoteWait>> {
        let wait = Arc::clone(self.wait());
        drop(self);
        wait.is_over().then_some(wait)
    }
}
