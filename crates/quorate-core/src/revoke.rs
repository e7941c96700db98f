//! Taking a lock away from its holder, from outside.
//!
//! A revoke replaces the token at each node and leaves the ttl. From then on the holder can neither extend nor
//! repair, and its lease ends by time before the keys do (T1, T2). So no two clients hold the lock at once.
//!
//! Between the look at a lock and the wish to free it, another client may have acquired it. So a revoke can be told which
//! holder was seen, and each node compares (V7).

use std::fmt;
use std::time::Duration;

use crate::backend::{Revoke, Sighting};
use crate::inspect::{Inspection, KeyState, NodeView};

/// The result of a revoke or a delete: what each node kept before it.
///
/// Returned by [`LockManager::revoke`](crate::LockManager::revoke) and
/// [`LockManager::delete`](crate::LockManager::delete). `Display` is one line: whether it took effect, and each node
/// where nothing was done.
#[derive(Clone, Debug)]
pub struct Revocation {
    found: Inspection,
    how: Revoke,
}

impl Revocation {
    pub(crate) const fn new(found: Inspection, how: Revoke) -> Self {
        Self { found, how }
    }

    /// What was found. Its [`state`](Inspection::state) says whether there was a lock to take away.
    #[must_use]
    pub const fn found(&self) -> &Inspection {
        &self.found
    }

    /// What each node kept, in the order in which the nodes are configured.
    ///
    /// A key with a ttl was replaced or deleted. A key without one was left alone: another program wrote it. So was the
    /// key of another holder than the one that was seen.
    #[must_use]
    pub fn nodes(&self) -> &[NodeView] {
        self.found.nodes()
    }

    /// Whether so many nodes did it that the others are no quorum: more than N − quorum.
    ///
    /// Then no extension by the old holder succeeds (V2). False also if the lock was free. If nodes failed, repeat
    /// the call: that is safe.
    #[must_use]
    pub fn is_effective(&self) -> bool {
        self.times_left().count() >= self.needed()
    }

    /// The longest time for which a node keeps the key from now on; zero if the lock was deleted, or free.
    ///
    /// When that has passed, no node that answered keeps the lock. A node that failed may keep its key for longer. With
    /// an even number of nodes, the lock may be free only when that has expired, too.
    #[must_use]
    pub fn free_in(&self) -> Duration {
        if self.how.token.is_none() {
            return Duration::ZERO;
        }
        self.times_left().max().unwrap_or_default()
    }

    /// What was left of each key that was taken away.
    fn times_left(&self) -> impl Iterator<Item = Duration> {
        self.nodes().iter().filter_map(|node| self.taken(&node.state))
    }

    /// What was left of a key that was taken away; `None` for a key that was not.
    fn taken(&self, state: &KeyState) -> Option<Duration> {
        let seen = match state {
            KeyState::Held { holder, time_left } => Sighting::new(holder.clone(), *time_left),
            KeyState::Read { readers } => Sighting::of_readers(readers.clone()),
            _ => return None,
        };
        seen.time_left.filter(|_| self.how.takes(&seen))
    }

    /// How many nodes have to do it.
    fn needed(&self) -> usize {
        self.found.count() - self.found.quorum() + 1
    }
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, nodes, needed) = (self.times_left().count(), self.nodes().len(), self.needed());
        f.write_str(if self.is_effective() { "" } else { "not " })?;
        let is_deleted = self.how.token.is_none();
        f.write_str(if is_deleted { "deleted" } else { "revoked" })?;
        write!(f, ": done on {done} of {nodes} nodes, {needed} needed")?;
        if done > 0 && !is_deleted {
            write!(f, ", free in {:.1?}", self.free_in())?;
        }
        for NodeView { name, state } in self.nodes() {
            match state {
                _ if self.taken(state).is_some() => {}
                KeyState::Held { time_left: Some(_), .. } | KeyState::Read { .. } => {
                    write!(f, "; {name}: {state}, of another, left alone")?;
                }
                KeyState::Held { .. } => write!(f, "; {name}: {state}, left alone")?,
                _ => write!(f, "; {name}: {state}")?,
            }
        }
        Ok(())
    }
}
