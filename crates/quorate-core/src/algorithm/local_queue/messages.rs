//! What goes into the local queue and comes out of it.

use std::time::Duration;

/// A call of `lock`, and the guard that comes of it. New for each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a number")]
pub struct TaskId(pub u64);

impl TaskId {
    /// The lease for which this task competes, or that it adopts.
    #[must_use]
    pub const fn lease(self) -> LeaseId {
        LeaseId(self.0)
    }
}

/// One turn at the nodes: the attempts of a task, then the lock that one of them wins, to its release.
/// A task competes once at most, so the lease has the task's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a number")]
pub struct LeaseId(pub u64);

/// One extension of a lease, numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "two numbers")]
pub struct ExtensionId {
    /// The lease.
    pub lease: LeaseId,
    /// Its place among the extensions of this lease.
    pub number: u32,
}

/// The ttl of a lease that a task can take over from another one, and pass on; `None` with fencing or with
/// several keys, for which it cannot.
pub type Wish = Option<Duration>;

/// What a release found: what `release()` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "all that a release can find")]
pub enum Found {
    /// The key was at a quorum when the guard ended.
    Held,
    /// The lease had ended before.
    Lost,
    /// It is unknown whether the key was held when the guard ended.
    Unconfirmed,
}

/// What the driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: the driver acts on each")]
pub enum Output {
    /// The task begins a wait and attempts. `others_wait`: it joins the wait queue first.
    Compete(TaskId, bool),
    /// The attempts under this lease are to be undone. The task's own future does that when it is polled or
    /// dropped.
    Cancel(LeaseId),
    /// The task has been given the lease, and its future is to be polled.
    Give(TaskId, LeaseId),
    /// An extension starts. Its reply is [`LocalQueue::handle_extended`](super::LocalQueue::handle_extended).
    Extend(ExtensionId),
    /// The release begins. No extension of this lease is sent from now on (rule H6).
    Release(LeaseId),
    /// The lease of this holder has ended. Its `lost()` sees that by itself.
    Lose(TaskId),
    /// The task's `release()` returns.
    Resolve(TaskId, Found),
    /// The manager is closed: the task's `lock` fails.
    Refuse(TaskId),
}
