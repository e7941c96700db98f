//! The local queue: the tasks of one manager that want the same key, in order.
//!
//! [`LocalQueue`] decides which task competes at the nodes, which one is given the lease, when the
//! release begins and what `release()` returns. Votes belong to the attempt. The machine is pure: the
//! callers' wishes, what became of the attempt and time go in, [`Output`]s come out.
//!
//! The lock stays under its token, so a released lock can be *passed on* to the next task of the queue
//! without a round trip, when no other process waits for the key. Here a *lease* is one turn at the nodes, which
//! several holders may share; each of them has a `crate::lease::Lease` of its own.
//!
//! | a task | |
//! |---|---|
//! | is queued | and sends nothing |
//! | competes | it is first, the manager has no lease, and its last release is over: answered by the gate, decided, or a node timeout old |
//! | is given the lease | its future has not been polled yet |
//! | holds | it has the guard |
//! | ends | its `release()` has not resolved |
//!
//! A request for several keys enters all their queues in one step, and competes once it may in each: until
//! then it keeps the front of those where it is first. It is never passed on.

mod endings;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use endings::Endings;
pub use messages::{ExtensionId, Found, LeaseId, Output, TaskId, Wish};

/// How often a lease may be passed on before it is released.
pub const PASSES: u8 = 8;

/// For how long "another process waits" makes a task join the wait queue before it competes.
const HINT_LASTS: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    id: LeaseId,
    holder: TaskId,
    wish: Wish,
    /// Whether the holder's future has returned the guard.
    is_polled: bool,
    valid_until: Instant,
    /// The ttl without drift and safety margin.
    validity: Duration,
    is_adopted: bool,
    passes: u8,
    extensions: u32,
    is_extending: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// The manager has nothing.
    Free,
    /// The first of the queue competes.
    Competing(LeaseId),
    Leased(Lease),
    /// The gate has not answered the release.
    Releasing(LeaseId, Instant),
}

/// The tasks of one manager that want the same key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalQueue {
    /// Whether waiting is ordered and the gate keeps a wait queue.
    is_ordered: bool,
    node_timeout: Duration,
    is_closed: bool,
    phase: Phase,
    queue: VecDeque<(TaskId, Wish)>,
    endings: Endings,
    /// Whether another process waits, and since when that is known.
    hint: Option<(bool, Instant)>,
    outputs: VecDeque<Output>,
}

impl LocalQueue {
    /// A queue without tasks.
    #[must_use]
    pub fn new(is_ordered: bool, node_timeout: Duration) -> Self {
        Self {
            is_ordered,
            node_timeout,
            is_closed: false,
            phase: Phase::Free,
            queue: VecDeque::new(),
            endings: Endings::default(),
            hint: None,
            outputs: VecDeque::new(),
        }
    }

    /// What the driver does next; `None` if there is nothing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Leased(lease) => Some(lease.valid_until),
            Phase::Releasing(_, until) => Some(*until),
            Phase::Free | Phase::Competing(_) => None,
        }
    }

    /// Whether a guard or a waiter of this manager is in the way of a request that does not wait.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self.phase, Phase::Leased(_) | Phase::Competing(_)) || !self.queue.is_empty()
    }

    /// The first task of the queue.
    #[must_use]
    pub fn first(&self) -> Option<TaskId> {
        self.queue.front().map(|(task, _)| *task)
    }

    /// The task that is queued behind this one.
    #[must_use]
    pub fn behind(&self, task: TaskId) -> Option<TaskId> {
        let mut queued = self.queue.iter().map(|(queued, _)| *queued);
        queued.find(|queued| *queued == task)?;
        queued.next()
    }

    /// The task that has the lease.
    #[must_use]
    pub const fn holder(&self) -> Option<TaskId> {
        match &self.phase {
            Phase::Leased(lease) => Some(lease.holder),
            _ => None,
        }
    }

    /// The lease that is held, or released and not answered by the gate.
    #[must_use]
    pub const fn lease(&self) -> Option<LeaseId> {
        match &self.phase {
            Phase::Leased(lease) => Some(lease.id),
            Phase::Releasing(id, _) => Some(*id),
            Phase::Free | Phase::Competing(_) => None,
        }
    }

    /// Whether the gate has not answered the release of this manager.
    #[must_use]
    pub const fn is_releasing(&self) -> bool {
        matches!(self.phase, Phase::Releasing(..))
    }

    /// Whether nothing refers to this key any more, and there is no hint to follow.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        let has_task = !self.queue.is_empty() || !self.endings.is_empty();
        self.phase == Phase::Free && !has_task && !self.others_wait(now)
    }

    /// Whether another process waits, as the gate said at most 1 s ago.
    fn others_wait(&self, now: Instant) -> bool {
        let lasts = |at: Instant| now.saturating_duration_since(at) <= HINT_LASTS;
        self.hint.is_some_and(|(others_wait, at)| others_wait && lasts(at))
    }

    /// A task asks for the lock.
    pub fn lock(&mut self, task: TaskId, wish: Wish, now: Instant) {
        if self.is_closed {
            self.outputs.push_back(Output::Refuse(task));
            return;
        }
        self.queue.push_back((task, wish));
        self.go_on(now);
    }

    /// A task adopts a lease from another process; `false` while this manager has or wants the key.
    ///
    /// Without a place here, the adopted lease is for this queue one of another process.
    pub fn adopt(
        &mut self,
        task: TaskId,
        wish: Wish,
        validity: Duration,
        valid_until: Instant,
    ) -> bool {
        let is_free = !self.is_closed && self.phase == Phase::Free;
        if is_free {
            self.hold((task, wish), validity, valid_until, true);
        }
        is_free
    }

    /// The task that competes has won: returns whether it is its turn, which a close ends. `others_wait`: the
    /// gate's reply to this acquire, or to LEAVE.
    pub fn handle_won(
        &mut self,
        id: LeaseId,
        validity: Duration,
        valid_until: Instant,
        others_wait: Option<bool>,
        now: Instant,
    ) -> bool {
        let is_its_turn = self.phase == Phase::Competing(id);
        if is_its_turn && let Some(first) = self.queue.pop_front() {
            self.hint = others_wait.map(|others_wait| (others_wait, now));
            self.hold(first, validity, valid_until, false);
        }
        is_its_turn
    }

    /// The gate said whether another process waits: with LEAVE, an acquire, an extension or a release.
    /// The latest answer counts, and not the one that is handled last.
    pub fn handle_hint(&mut self, others_wait: bool, at: Instant) {
        if self.hint.is_none_or(|(_, known_at)| known_at <= at) {
            self.hint = Some((others_wait, at));
        }
    }

    /// The future of a given task is polled: returns whether it has the lease.
    pub fn handle_polled(&mut self, task: TaskId, now: Instant) -> bool {
        if !planted!("receiver_polls_a_lost_lease") {
            self.handle_timeout(now);
        }
        match &mut self.phase {
            Phase::Leased(lease) if lease.holder == task => {
                lease.is_polled = true;
                true
            }
            _ => false,
        }
    }

    /// A guard is released, or dropped. `is_awaited`: `release()` was called.
    pub fn release(&mut self, task: TaskId, is_awaited: bool, now: Instant) {
        self.handle_timeout(now);
        let next = match &self.phase {
            Phase::Leased(lease) if lease.holder == task => self.receiver(lease, now),
            _ => {
                if is_awaited {
                    self.outputs.push_back(Output::Resolve(task, Found::Lost));
                }
                return;
            }
        };
        let Phase::Leased(lease) = &mut self.phase else { return };
        if is_awaited {
            self.endings.begin(task, lease.id, next.is_some().then_some(lease.extensions));
        }
        let Some(next) = next else { return self.begin_release(now) };
        (lease.holder, lease.is_polled) = (next, false);
        lease.passes = lease.passes.saturating_add(1);
        self.queue.pop_front();
        self.outputs.push_back(Output::Give(next, lease.id));
        self.extend();
    }

    /// The task that the lease may be passed on to.
    fn receiver(&self, lease: &Lease, now: Instant) -> Option<TaskId> {
        let (task, wish) = self.queue.front()?;
        let nobody_else_waits = self.hint.is_some_and(|(others_wait, _)| !others_wait);
        let left = lease.valid_until.saturating_duration_since(now);
        let half = left >= lease.validity / 2;
        let may_pass = self.is_ordered
            && lease.wish.is_some()
            && (*wish == lease.wish || (wish.is_some() && planted!("pass_to_another_ttl")))
            && (nobody_else_waits || planted!("pass_although_others_wait"))
            && (half || planted!("pass_late"))
            // It was not extended to another ttl.
            && left <= lease.validity
            && (!lease.is_adopted || planted!("pass_adopted"))
            && (lease.passes < PASSES || planted!("pass_without_bound"));
        may_pass.then_some(*task)
    }

    /// A future of this task is dropped: its `lock`, or its `release()`.
    pub fn cancel(&mut self, task: TaskId, now: Instant) {
        // Behind the end of the lease, which puts a task that was given it to the front again.
        self.handle_timeout(now);
        self.endings.cancel(task);
        let competes = self.queue.front().is_some_and(|(first, _)| *first == task);
        self.queue.retain(|(queued, _)| *queued != task);
        match &self.phase {
            Phase::Competing(id) if competes => self.undo(*id, now),
            Phase::Leased(lease)
                if lease.holder == task
                    && !lease.is_polled
                    && !planted!("dropped_receiver_keeps_the_lease") =>
            {
                self.release(task, false, now);
            }
            _ => {}
        }
    }

    /// An extension has been decided: the new end of the lease if it won its quorum.
    pub fn handle_extended(&mut self, id: ExtensionId, valid_until: Option<Instant>) {
        let is_held = matches!(&self.phase, Phase::Leased(lease) if lease.id == id.lease);
        if valid_until.is_none() && !is_held {
            // The release cut it short, and will say whether the key was there.
            return;
        }
        self.outputs.extend(self.endings.extended(id, valid_until.is_some()));
        if let Phase::Leased(lease) = &mut self.phase
            && lease.id == id.lease
        {
            lease.valid_until = lease.valid_until.max(valid_until.unwrap_or(lease.valid_until));
            lease.is_extending = false;
            if self.endings.has(id.lease) {
                self.extend();
            }
        }
    }

    /// The holder has extended the lease, by itself or by renewal. It confirms no passer: the extension
    /// may have started before the pass.
    pub fn handle_renewed(&mut self, id: LeaseId, valid_until: Instant) {
        if let Phase::Leased(lease) = &mut self.phase
            && lease.id == id
        {
            lease.valid_until = lease.valid_until.max(valid_until);
        }
    }

    /// The lease has ended at the nodes, or the hold limit has passed.
    pub fn handle_lost(&mut self, id: LeaseId, now: Instant) {
        let Phase::Leased(lease) = &self.phase else { return };
        if lease.id != id {
            return;
        }
        if lease.is_polled {
            self.outputs.push_back(Output::Lose(lease.holder));
        } else {
            self.queue.push_front((lease.holder, lease.wish));
        }
        self.begin_release(now);
    }

    /// The gate has answered the release or the undo, or none is needed there.
    pub fn handle_left(&mut self, id: LeaseId, now: Instant) {
        if matches!(self.phase, Phase::Releasing(releasing, _) if releasing == id) {
            self.phase = Phase::Free;
            self.go_on(now);
        }
    }

    /// The release has been decided.
    pub fn handle_released(&mut self, id: LeaseId, found: Found, now: Instant) {
        self.outputs.extend(self.endings.released(id, found));
        self.handle_left(id, now);
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Instant) {
        match &self.phase {
            Phase::Leased(lease) if lease.valid_until <= now => self.handle_lost(lease.id, now),
            Phase::Releasing(id, until) if *until <= now => self.handle_left(*id, now),
            _ => {}
        }
    }

    /// The holder gives the lease to another process: returns whether it was its own.
    pub fn detach(&mut self, task: TaskId, now: Instant) -> bool {
        let id = match &self.phase {
            Phase::Leased(lease) if lease.holder == task => lease.id,
            _ => return false,
        };
        if !planted!("detach_forgets_the_passers") {
            self.outputs.extend(self.endings.released(id, Found::Unconfirmed));
        }
        self.phase = Phase::Free;
        self.go_on(now);
        true
    }

    /// The manager closes: no task waits any more. Guards are released as ever.
    pub fn close(&mut self, now: Instant) {
        self.is_closed = true;
        self.outputs.extend(self.queue.drain(..).map(|(task, _)| Output::Refuse(task)));
        match &self.phase {
            Phase::Competing(id) => self.undo(*id, now),
            Phase::Leased(lease) if !lease.is_polled => {
                self.outputs.push_back(Output::Refuse(lease.holder));
                self.begin_release(now);
            }
            _ => {}
        }
    }

    /// Lets the first task compete if the manager has nothing.
    fn go_on(&mut self, now: Instant) {
        if self.phase == Phase::Free
            && let Some(&(first, _)) = self.queue.front()
        {
            self.phase = Phase::Competing(first.lease());
            self.outputs.push_back(Output::Compete(first, self.others_wait(now)));
        }
    }

    fn hold(
        &mut self,
        (holder, wish): (TaskId, Wish),
        validity: Duration,
        valid_until: Instant,
        is_adopted: bool,
    ) {
        self.phase = Phase::Leased(Lease {
            id: holder.lease(),
            holder,
            wish,
            is_polled: true,
            valid_until,
            validity,
            is_adopted,
            passes: 0,
            extensions: 0,
            is_extending: false,
        });
    }

    /// Starts an extension if none is in flight.
    fn extend(&mut self) {
        if let Phase::Leased(lease) = &mut self.phase
            && !lease.is_extending
        {
            lease.is_extending = true;
            lease.extensions += 1;
            let id = ExtensionId { lease: lease.id, number: lease.extensions };
            self.outputs.push_back(Output::Extend(id));
        }
    }

    fn begin_release(&mut self, now: Instant) {
        if let Phase::Leased(lease) = &self.phase {
            let id = lease.id;
            self.outputs.push_back(Output::Release(id));
            self.leave(id, now);
        }
    }

    fn undo(&mut self, id: LeaseId, now: Instant) {
        self.outputs.push_back(Output::Cancel(id));
        self.leave(id, now);
    }

    fn leave(&mut self, id: LeaseId, now: Instant) {
        let until = now.checked_add(self.node_timeout).unwrap_or(now);
        self.phase = Phase::Releasing(id, until);
    }
}
