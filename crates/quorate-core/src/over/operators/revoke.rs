//! Taking a lock away from its holder, from outside.
//!
//! A revoke puts a mark in place of the token at each node and leaves the ttl. From then on the
//! holder can neither extend nor repair, and its lease ends by time before the keys do (T1, T2). So
//! no two clients hold the lock at once. The holder knows the mark for its own token, and no other
//! client does: its release removes it (V9).
//!
//! Between the look at a lock and the wish to free it, another client may have acquired it. So a
//! revoke can name the holder that was seen, and each node compares (V7).

use std::fmt;
use std::time::{Duration, Instant};

use crate::backend::{Holder, Leaves, Operation, Revoke};
use crate::over::access::Ttl;
use crate::over::operators::inspect::{Inspection, KeyState, NodeView};
use crate::resource::{Key, Label};
use crate::{IntoResource, InvalidResource, LockManager};

/// The result of a revoke or a delete: what each node kept before it.
///
/// Returned by [`LockManager::revoke`](crate::LockManager::revoke) and
/// [`LockManager::delete`](crate::LockManager::delete). `Display` is one line: whether it took
/// effect, and each node where nothing was done.
#[derive(Clone, Debug)]
pub struct Revocation {
    found: Inspection,
    how: Revoke,
    key: Key,
    /// When it was sent, and when it was done.
    sent: Instant,
    at: Instant,
}

/// How a lock that was revoked has become free. See [`Revocation::until_free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Leaving {
    /// The holder heard of the revoke, and has left.
    Left {
        /// How long after the revoke that was seen.
        after: Duration,
    },
    /// The holder has not left, and its ttl has passed.
    Expired,
}

impl Revocation {
    /// What was found. Its [`state`](Inspection::state) says whether there was a lock to take away.
    ///
    /// A key with a ttl was replaced or deleted. A key without one was left alone: another program
    /// wrote it. So was the key of another holder than the one that was seen.
    #[must_use]
    pub const fn found(&self) -> &Inspection {
        &self.found
    }

    /// Whether so many nodes did it that the others are no quorum: more than N − quorum.
    ///
    /// Then no extension by the old holder succeeds (V2). False also if the lock was free. If nodes
    /// failed, repeat the call: that is safe.
    #[must_use]
    pub fn is_effective(&self) -> bool {
        self.times_left().count() >= self.needed()
    }

    /// The longest time for which a node keeps the key from now on; zero if the lock was deleted,
    /// or free.
    ///
    /// When that has passed, no node that answered keeps the lock. A node that failed may keep its
    /// key for longer. With an even number of nodes, the lock may be free only when that has
    /// expired, too.
    #[must_use]
    pub fn free_in(&self) -> Duration {
        if self.is_deleted() {
            return Duration::ZERO;
        }
        self.times_left().max().unwrap_or_default()
    }

    fn is_deleted(&self) -> bool {
        self.how.leaves == Leaves::Nothing
    }

    /// Waits until the lock is free, and says whether its holder has left before the ttl has
    /// passed. `locks` is the manager that revoked it, or one of the same nodes.
    ///
    /// A quorum of the nodes is asked, again and again. A holder that renews its lease hears of the
    /// revoke at once, if its nodes push, else at its next renewal. What is free by then may be
    /// held by the next client.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub async fn until_free(&self, locks: &LockManager) -> Leaving {
        let (runtime, end) = (&locks.cluster().runtime, self.at + self.free_in());
        let mut pause = FIRST_PAUSE;
        loop {
            let seen = locks.ask_all(&Operation::Inspect { key: self.key.clone() }).await;
            let now = locks.cluster().now();
            if now >= end {
                return Leaving::Expired;
            }
            let is_gone = |node: &NodeView| match &node.state {
                KeyState::Failed(_) => false,
                seen => !seen.holders().any(|one| one.is_revoked() || self.has_found(one)),
            };
            // A key that its node may have forgotten by itself says nothing of the holder.
            let drift = locks.cluster().config.drift;
            let may_expire = |node: &NodeView| {
                let left = self.taken(&node.state)?;
                Some(self.sent + drift.validity_of(Ttl::of_mark(left)))
            };
            let gone =
                seen.nodes().iter().zip(self.found.nodes()).filter(|(node, _)| is_gone(node));
            let ends: Vec<_> = gone.map(|(_, before)| may_expire(before)).collect();
            if ends.len() >= seen.quorum() {
                let left = ends.iter().filter(|end| end.is_none_or(|end| now < end)).count();
                return match left >= seen.quorum() {
                    true => Leaving::Left { after: now.saturating_duration_since(self.at) },
                    false => Leaving::Expired,
                };
            }
            runtime.sleep_until(end.min(now + pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether a node had a key of it. Where the revoke did nothing, the key is still there.
    fn has_found(&self, one: &Holder) -> bool {
        self.found.nodes().iter().any(|node| node.state.holders().any(|holder| holder == one))
    }

    /// What was left of each key that was taken away.
    fn times_left(&self) -> impl Iterator<Item = Duration> {
        self.found.nodes().iter().filter_map(|node| self.taken(&node.state))
    }

    /// What was left of a key that was taken away; `None` for a key that was not.
    fn taken(&self, state: &KeyState) -> Option<Duration> {
        state.time_left().filter(|_| self.how.takes(state))
    }

    /// How many nodes have to do it.
    fn needed(&self) -> usize {
        self.found.nodes().len() - self.found.quorum() + 1
    }
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, nodes, needed) =
            (self.times_left().count(), self.found.nodes().len(), self.needed());
        f.write_str(if self.is_effective() { "" } else { "not " })?;
        let is_deleted = self.is_deleted();
        f.write_str(if is_deleted { "deleted" } else { "revoked" })?;
        write!(f, ": done on {done} of {nodes} nodes, {needed} needed")?;
        if done > 0 && !is_deleted {
            write!(f, ", free in {:.1?}", self.free_in())?;
        }
        for NodeView { name, state } in self.found.nodes() {
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

impl LockManager {
    /// Takes a lock away safely: it can no longer be extended, and is free when its ttl has passed.
    ///
    /// No two clients hold the lock at once, whatever the holder does. To free it at once is
    /// [`delete`](Self::delete). Each node replaces the token of the holder by a mark and keeps
    /// what is left of the ttl. Others wait as before. The lock is free in
    /// [`free_in`](Revocation::free_in): an extension just before the revoke counts in full.
    ///
    /// The holder is asked to leave: [`Lease::revoked`](crate::Lease::revoked). If it
    /// releases, the lock is free at once: [`Revocation::until_free`] waits for that.
    ///
    /// All nodes are asked at once, and each may reply for a node timeout. A node that does not
    /// reply may do it later, and may then meet the next holder, which loses the vote of this node.
    /// Fencing numbers, the restart guard and wait queues stay as they are. A lock on several names
    /// ends when one of them is revoked.
    ///
    /// ```
    /// use quorate_core::{InvalidResource, LockManager};
    ///
    /// async fn free(locks: &LockManager) -> Result<(), InvalidResource> {
    ///     let revocation = locks.revoke("orders:42").await?;
    ///     match revocation.is_effective() {
    ///         true => println!("free in {:.1?} at the latest", revocation.free_in()),
    ///         false => println!("{revocation}"), // what each node said
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidResource`]: the name cannot be locked, or is reserved. Nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the nodes may have done it. It is safe to call it again.
    pub async fn revoke(&self, resource: impl IntoResource) -> Result<Revocation, InvalidResource> {
        let key = self.lockable(resource)?;
        Ok(self.take_away(key, self.mark()).await)
    }

    /// Takes the lock on `resource` away from the holder that `seen` shows, as
    /// [`revoke`](Self::revoke) does, and from no other.
    ///
    /// `seen` is an [inspection](Self::inspect) of the same name. Each node compares: a key of a
    /// client that has acquired the lock since is left alone, and the [`Revocation`] shows it. Of
    /// readers, a key is left alone that has a reader who was not seen. If `seen` shows no holder,
    /// nothing is done.
    ///
    /// ```
    /// use quorate_core::{InvalidResource, LockManager};
    ///
    /// async fn free_if_held_by(label: &str, locks: &LockManager) -> Result<(), InvalidResource> {
    ///     let seen = locks.inspect("orders:42").await?;
    ///     if seen.label() == Some(label) {
    ///         println!("{}", locks.revoke_seen("orders:42", &seen).await?);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`revoke`](Self::revoke).
    ///
    /// # Cancel safety
    ///
    /// As [`revoke`](Self::revoke).
    pub async fn revoke_seen(
        &self,
        resource: impl IntoResource,
        seen: &Inspection,
    ) -> Result<Revocation, InvalidResource> {
        let key = self.lockable(resource)?;
        Ok(self.take_away(key, self.mark().of(of(seen))).await)
    }

    /// Frees a lock at once, unsafely: its holder does not know, and may work beside the next one.
    ///
    /// Deletes its key on all nodes. The holder may go on working until its lease ends, while the
    /// next one works already. So this is for holders that are known to be dead, and for resources
    /// that check [fencing tokens](crate::LockRequest::fenced). Otherwise [`revoke`](Self::revoke).
    ///
    /// All nodes are asked at once, and each may reply for a node timeout. A node that does not
    /// reply may do it later.
    ///
    /// # Errors
    ///
    /// [`InvalidResource`]: the name cannot be locked, or is reserved. Nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the nodes may have deleted the lock.
    pub async fn delete(&self, resource: impl IntoResource) -> Result<Revocation, InvalidResource> {
        Ok(self.take_away(self.lockable(resource)?, Revoke::delete()).await)
    }

    /// Deletes the lock on `resource` of the holder that `seen` shows, as [`delete`](Self::delete)
    /// does, and of no other.
    ///
    /// What [`revoke_seen`](Self::revoke_seen) says of `seen` holds here, too. A
    /// [mark](crate::LockGuard::keep), of which the inspection says that it [is
    /// done](Inspection::is_done), can be deleted without risk: no holder works under it.
    ///
    /// # Errors
    ///
    /// As [`delete`](Self::delete).
    ///
    /// # Cancel safety
    ///
    /// As [`delete`](Self::delete).
    pub async fn delete_seen(
        &self,
        resource: impl IntoResource,
        seen: &Inspection,
    ) -> Result<Revocation, InvalidResource> {
        Ok(self.take_away(self.lockable(resource)?, Revoke::delete().of(of(seen))).await)
    }

    async fn take_away(&self, key: Key, how: Revoke) -> Revocation {
        let sent = self.cluster().now();
        let revoke = Operation::Revoke { key: key.clone(), how: how.clone() };
        let found = self.ask_all(&revoke).await;
        Revocation { found, how, key, sent, at: self.cluster().now() }
    }

    /// A mark whose label says who revoked the lock (V6).
    fn mark(&self) -> Revoke {
        Revoke::mark(Label::of_revoked(self.cluster().config.label.as_ref()))
    }

    /// The key of a resource whose name is not reserved (V4).
    fn lockable(&self, resource: impl IntoResource) -> Result<Key, InvalidResource> {
        let prefix = &self.cluster().config.key_prefix;
        let key = Key::new(prefix, &resource.into_resource()?);
        if key.is_reserved(prefix) { Err(InvalidResource::Reserved) } else { Ok(key) }
    }
}

/// The pauses between two looks at a lock that was revoked.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The holders that an inspection shows.
fn of(seen: &Inspection) -> Vec<Holder> {
    seen.holders().into_iter().cloned().collect()
}
