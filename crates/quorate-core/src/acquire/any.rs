//! A request for one of several names: which name the next attempt is for.
//!
//! ```text
//! ticket of the set
//!    └─▶ fast path: names that no task here has or wants, three rounds at most (S3)
//!           │ tasks here have or want all of them      │ lost, or other processes wait
//!           ▼                                          ▼
//!   the queues of all names in this process ─▶ the wait queue at the gate, which names a free one
//! ```
//!
//! An attempt has the ticket of its name. After a lost round the attempt keeps the ticket until its
//! undo allows the next attempt on that name. If the gate names one that a task here has or wants,
//! the request enters the queue of that name, and goes on waiting at the gate as well. A request
//! that has the ticket of a name waits for nothing.

use std::future::pending;
use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{poll_immediate, select_ok};

use super::rounds::{Round, Rounds, in_time};
use super::wanted::Wanted;
use crate::attempt::Attempt;
use crate::error::{Closed, LockError};
use crate::resource::Key;
use crate::seam::runtime::unless;
use crate::turns::remote_wait::{Goal, RemoteWait, WaitInput};
use crate::turns::tickets::{Inner, NameSet, NoTicket, Taking, Ticket, Turn};

/// How many rounds a request makes before it waits in the wait queue.
const FAST_ROUNDS: usize = 3;

/// Acquires a lock on one of several names.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired, and gives the tickets on.
pub(super) async fn acquire(
    manager: &Arc<Inner>,
    wanted: &Wanted,
    set: &Arc<NameSet>,
) -> Result<Arc<Attempt>, LockError> {
    let mut choice = Choosing {
        rounds: Rounds::new(manager, wanted),
        set,
        set_ticket: None,
        is_fast_over: false,
        tried: Vec::new(),
        busy: Vec::new(),
        is_local: false,
    };
    while let Some(key) = choice.next_key().await? {
        match choice.rounds.run(Arc::from([key])).await? {
            Round::Won => {
                choice.end_wait();
                return choice.rounds.finish().await;
            }
            Round::Lost => {
                choice.leave_turn();
                if !wanted.waits() && !choice.rounds.is_held() {
                    break;
                }
            }
            Round::Final => break,
        }
    }
    Err(choice.give_up().await)
}

/// A request for one of several names.
struct Choosing<'a> {
    rounds: Rounds<'a>,
    set: &'a Arc<NameSet>,
    /// The wait between processes belongs to it.
    set_ticket: Option<Ticket>,
    is_fast_over: bool,
    /// The keys of the fast path.
    tried: Vec<Key>,
    /// The queues in this process that it stands in.
    busy: Vec<Taking>,
    /// It waits for tasks here alone.
    is_local: bool,
}

impl Choosing<'_> {
    fn wait(&self) -> Option<Arc<RemoteWait>> {
        self.set_ticket.as_ref().and_then(Ticket::wait)
    }

    fn others_are_first(&self, now: Instant) -> bool {
        self.set_ticket.as_ref().is_some_and(|ticket| ticket.others_are_first(now))
    }

    /// A name was won: the wait ends, and the next task of the set goes on.
    fn end_wait(&mut self) {
        if self.set_ticket.take().is_some() {
            self.rounds.manager.note_won(&self.set.key, self.rounds.cluster().now());
        }
    }

    /// The undo of the lost round gives the turn on, and the request takes another one.
    fn leave_turn(&mut self) {
        let turn = take(&mut self.rounds.turn);
        if let Some(attempt) = &self.rounds.attempt {
            attempt.leave_with(turn);
        }
    }

    /// Ends the request without a lock.
    async fn give_up(&mut self) -> LockError {
        let wait = self.wait();
        let unasked = self.rounds.unasked(wait.as_ref());
        let set_ticket = self.set_ticket.take();
        let is_last = set_ticket.as_ref().is_some_and(|ticket| !ticket.has_local());
        drop(set_ticket);
        self.busy.clear();
        self.rounds.give_up(unasked, wait.filter(|_| is_last)).await
    }

    /// Takes the ticket of the set. A request that waits for no holder goes on without it, if
    /// another has it.
    async fn take_set_ticket(&mut self) -> Result<(), LockError> {
        let (rounds, set) = (&mut self.rounds, self.set);
        let taken = match rounds.wanted.waits() {
            // The key of a set is no name that a user knows.
            true => Some(rounds.take_ticket(&set.key).await.map_err(|error| match error {
                LockError::TooManyWaiters { .. } => rounds.too_many(&set.gate_keys[0]),
                error => error,
            })?),
            false => {
                let taking = rounds.manager.take(set.key.clone(), false, rounds.now());
                poll_immediate(taking).await.and_then(Result::ok)
            }
        };
        self.is_fast_over |= taken.as_ref().and_then(Ticket::wait).is_some();
        self.set_ticket = taken;
        Ok(())
    }

    /// Takes the ticket of the name of the next attempt. `None` if the request ends without one.
    async fn next_key(&mut self) -> Result<Option<Key>, LockError> {
        let (cluster, deadline) = (self.rounds.cluster(), self.rounds.deadline);
        if self.set_ticket.is_none()
            && let Err(error) = self.take_set_ticket().await
        {
            return if self.rounds.has_lost() { Ok(None) } else { Err(error) };
        }
        while self.rounds.is_in_time() {
            match in_time(cluster, deadline, self.given()).await? {
                Some(Ok(ticket)) => {
                    // The wait of a task that wanted this name alone, and gave up.
                    ticket.cancel_wait();
                    let key = ticket.key.clone();
                    self.rounds.turn = Turn::of(ticket, self.set);
                    return Ok(Some(key));
                }
                Some(Err(NoTicket::Closed)) => return Err(Closed.into()),
                Some(Err(NoTicket::TooMany)) => {
                    return Err(self.rounds.too_many(&self.set.gate_keys[0]));
                }
                Some(Err(NoTicket::Held)) if self.rounds.wanted.waits() => {}
                Some(Err(NoTicket::Held)) | None => break,
            }
        }
        Ok(None)
    }

    /// The ticket of a name, once there is one that is worth an attempt. *Held* if there is none.
    async fn given(&mut self) -> Result<Ticket, NoTicket> {
        let (manager, wanted, now) = (self.rounds.manager, self.rounds.wanted, self.rounds.now());
        let (others_are_first, random) = (self.others_are_first(now), manager.cluster.random());
        self.rounds.note_awaited();
        let is_over = self.rounds.has_lost() && !self.rounds.is_held();
        if !self.is_fast_over && !is_over && self.tried.len() < FAST_ROUNDS {
            match manager.pick(&wanted.keys, &self.tried, random, now) {
                Some(name) if !others_are_first => {
                    self.tried.push(name.clone());
                    return manager.take(name, false, now).await;
                }
                // After a lost round, its undo may have a ticket.
                None if self.tried.is_empty() => self.wait_here(now),
                _ => {}
            }
        }
        self.is_fast_over = true;
        let (mut busy, is_local) = (take(&mut self.busy), take(&mut self.is_local));
        let here = async {
            if busy.is_empty() {
                return pending().await;
            }
            select_ok(busy.iter_mut()).await.map(|(ticket, _)| ticket)
        };
        let there = async { if is_local { pending().await } else { self.wait_at_gate().await } };
        let given = unless(pin!(here), pin!(there)).await;
        if let Some(given) = given {
            if !is_local {
                // It waits at the gate already.
                return given.map_err(|error| match error {
                    NoTicket::TooMany => NoTicket::Held,
                    error => error,
                });
            }
            if self.others_are_first(self.rounds.now()) {
                return Err(NoTicket::Held);
            }
            // The next task goes on. This one takes that ticket again, if it loses.
            self.set_ticket = None;
            return given;
        }
        let (wait, now) = (self.wait(), self.rounds.cluster().now());
        let named = wait.as_ref().and_then(|wait| wait.take_free());
        // Without a gate, any name.
        let unnamed = || manager.pick(&wanted.keys, &[], random, now).filter(|_| wanted.waits());
        let Some(name) = named.or_else(unnamed) else {
            if wanted.waits() {
                self.wait_here(now);
            }
            return Err(NoTicket::Held);
        };
        let taken = manager.take(name.clone(), false, now).await;
        if let (Err(NoTicket::Held), Some(wait)) = (&taken, wait) {
            wait.input(WaitInput::Refused);
            if busy.iter().all(|taking| taking.key != name) {
                busy.push(manager.take(name, true, now));
            }
            self.busy = take(&mut busy);
        }
        taken
    }

    /// Waits until the gate names a key that is free. A request that waits for no holder hears the
    /// gate once.
    async fn wait_at_gate(&self) {
        let rounds = &self.rounds;
        let Some(ticket) = &self.set_ticket else { return };
        rounds.await_undo_on_pools().await;
        rounds.pause_before_gate().await;
        let (keys, is_refused) = (&rounds.wanted.keys, rounds.has_lost());
        match ticket.join_queue(keys, Goal::one_of, rounds.node_timeout, is_refused) {
            Some((wait, seen)) if rounds.wanted.waits() => drop(wait.called(seen).await),
            Some((wait, seen)) => wait.gate_answered(seen).await,
            None => rounds.back_off().await,
        }
    }

    /// Tasks here have or want all names: waits for them alone.
    fn wait_here(&mut self, now: Instant) {
        let (manager, wanted) = (self.rounds.manager, self.rounds.wanted);
        let (waits, is_again) = (wanted.waits(), self.rounds.has_lost());
        let take = |key: &Key| manager.take(key.clone(), waits, now).again(is_again);
        self.busy = wanted.keys.iter().map(take).collect();
        (self.is_local, self.rounds.was_behind_others) = (true, true);
    }
}
