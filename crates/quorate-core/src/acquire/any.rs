//! A request for one of several names: which name the next attempt is for.
//!
//! ```text
//! ticket of the set
//!    └─▶ until a name is free here
//!           └─▶ names that are free here are tried, three at most (S3)
//!                  │ all are lost, or other processes wait
//!                  ▼
//!                 the wait queue at the gate, which names a free one
//! ```
//!
//! The tasks of a manager queue in one place, the queue of their set. A name is *free here* while
//! no task of this manager has or wants it alone. An attempt has the ticket of its name, which is
//! taken without a wait. After a lost round it keeps that ticket until its undo allows the next
//! attempt on the name. A task that had to wait until a name was free here gives up the ticket of
//! the set; if it then loses its round, it queues for that again, at the end. A round that was lost
//! without a holder in the way leads to the gate at once. A refresh there looks at the keys of all
//! names, and says which of them is free.

use std::mem::take;
use std::sync::Arc;

use futures_util::future::poll_immediate;

use super::request::Request;
use super::rounds::{Round, Rounds, in_time};
use crate::attempt::Attempt;
use crate::error::LockError;
use crate::resource::Key;
use crate::turns::ManagerState;
use crate::turns::remote_wait::{Goal, RemoteWait};
use crate::turns::tickets::{NameSet, Ticket, Turn};

/// How many rounds a request makes before it waits in the wait queue.
const FAST_ROUNDS: usize = 3;

/// Acquires a lock on one of several names.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired, and hands the tickets over.
pub(super) async fn acquire(
    manager: &Arc<ManagerState>,
    request: &Request,
    set: &Arc<NameSet>,
) -> Result<Arc<Attempt>, LockError> {
    let rounds = Rounds::new(manager, request);
    let mut choice =
        Choosing { rounds, set, set_ticket: None, tried: Vec::new(), is_refused: false };
    while let Some(ticket) = choice.next_ticket().await? {
        // The wait of a task that wanted this name alone, and gave up.
        ticket.cancel_wait();
        let key = ticket.key.clone();
        choice.rounds.turn = Turn::of(ticket, set);
        match choice.rounds.run(Arc::from([key])).await? {
            Round::Won => {
                choice.end_wait();
                return choice.rounds.finish().await;
            }
            Round::Lost => {
                choice.leave_turn();
                if !request.waits() && !choice.rounds.is_held() {
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
    /// The names that were tried before the request waits at the gate.
    tried: Vec<Key>,
    /// The gate named one that a task here has or wants.
    is_refused: bool,
}

impl Choosing<'_> {
    fn wait(&self) -> Option<Arc<RemoteWait>> {
        self.set_ticket.as_ref().and_then(Ticket::wait)
    }

    /// A name was won: the wait ends, and the next task of the set goes on.
    fn end_wait(&mut self) {
        // The ticket goes last: without a task behind it, it would take the wait along.
        if let Some(_ticket) = self.set_ticket.take() {
            self.rounds.manager.note_won(&self.set.key, self.rounds.cluster().now());
        }
    }

    /// The undo of the lost round hands the turn over, and the request takes another one.
    fn leave_turn(&mut self) {
        let turn = take(&mut self.rounds.turn);
        if let Some(attempt) = &self.rounds.attempt {
            attempt.leave_with(turn);
        }
    }

    /// Ends the request without a lock.
    async fn give_up(&mut self) -> LockError {
        let wait = self.wait();
        self.note_others_here();
        let unasked = self.rounds.unasked(wait.as_ref());
        let set_ticket = self.set_ticket.take();
        let is_last = set_ticket.as_ref().is_some_and(|ticket| !ticket.has_local());
        drop(set_ticket);
        self.rounds.give_up(unasked, wait.filter(|_| is_last)).await
    }

    /// Notes whether guards or tasks of this manager are in the way now, and not only releases.
    fn note_others_here(&mut self) {
        let (manager, keys) = (self.rounds.manager, &self.rounds.request.keys);
        self.rounds.was_behind_others |= manager.are_others_here(keys);
    }

    /// Takes the ticket of the set. A request that waits for no holder goes on without it, if
    /// another has it.
    async fn take_set_ticket(&mut self) -> Result<(), LockError> {
        let (rounds, set) = (&mut self.rounds, self.set);
        self.set_ticket = match rounds.request.waits() {
            // The key of a set is no name that a user knows.
            true => Some(rounds.take_ticket(&set.key).await.map_err(|error| match error {
                LockError::TooManyWaiters { most, .. } => {
                    LockError::TooManyWaiters { key: set.gate_keys[0].clone(), most }
                }
                error => error,
            })?),
            false => {
                let taking = rounds.manager.take(set.key.clone(), false, rounds.now());
                poll_immediate(taking).await.and_then(Result::ok)
            }
        };
        Ok(())
    }

    /// The ticket of the name of the next attempt. `None` if the request ends without one.
    async fn next_ticket(&mut self) -> Result<Option<Ticket>, LockError> {
        let (cluster, deadline) = (self.rounds.cluster(), self.rounds.deadline);
        if self.set_ticket.is_none()
            && let Err(error) = self.take_set_ticket().await
        {
            let is_answer = error.is_closed() || !self.rounds.has_lost();
            return if is_answer { Err(error) } else { Ok(None) };
        }
        while self.rounds.is_in_time() {
            self.rounds.note_awaited();
            match in_time(cluster, deadline, self.choose()).await? {
                Some(Some(ticket)) => return Ok(Some(ticket)),
                Some(None) if self.rounds.request.waits() => {}
                Some(None) | None => break,
            }
        }
        Ok(None)
    }

    /// The ticket of a name that is worth an attempt; `None` if there is none by now.
    async fn choose(&mut self) -> Option<Ticket> {
        let has_waited = self.wait_here().await?;
        if self.is_fast()
            && let Some(ticket) = self.take_free_here()
        {
            if has_waited {
                // The next task goes on. This one takes the ticket of the set again, if it loses.
                self.set_ticket = None;
            }
            return Some(ticket);
        }
        self.wait_at_gate().await;
        self.take_named().await
    }

    /// Waits until a name is free here. Returns whether all were not; `None` if the request does
    /// not wait for that.
    async fn wait_here(&mut self) -> Option<bool> {
        let (manager, request) = (self.rounds.manager, self.rounds.request);
        if manager.has_free_here(&request.keys) {
            return Some(false);
        }
        self.note_others_here();
        manager.freed_here(&request.keys, request.waits()).await.then_some(true)
    }

    /// Takes the ticket of a name that is free here and was not tried before.
    fn take_free_here(&mut self) -> Option<Ticket> {
        let (keys, now) = (&self.rounds.request.keys, self.rounds.now());
        let ticket = self.rounds.manager.take_free_here(keys, &self.tried, now)?;
        self.tried.push(ticket.key.clone());
        Some(ticket)
    }

    /// Takes the ticket of the name that the gate has named; without a gate, of any that is free
    /// here.
    async fn take_named(&mut self) -> Option<Ticket> {
        let (manager, request, now) = (self.rounds.manager, self.rounds.request, self.rounds.now());
        let Some(name) = self.wait().and_then(|wait| wait.take_free()) else {
            return match request.waits() {
                true => manager.take_free_here(&request.keys, &[], now),
                false => None,
            };
        };
        let taken = manager.take(name, false, now).await;
        self.is_refused = taken.is_err();
        taken.ok()
    }

    /// Whether another name is tried before the request waits at the gate.
    fn is_fast(&self) -> bool {
        let (rounds, set_ticket) = (&self.rounds, self.set_ticket.as_ref());
        let others_are_first = set_ticket.is_some_and(|it| it.others_are_first(rounds.now()));
        let is_short = rounds.has_lost() && !rounds.is_held();
        !others_are_first && !is_short && self.tried.len() < FAST_ROUNDS
    }

    /// Waits until the gate names a key that is free. A request that waits for no holder hears the
    /// gate once.
    async fn wait_at_gate(&self) {
        let rounds = &self.rounds;
        let Some(ticket) = &self.set_ticket else { return };
        rounds.await_undo_on_pools().await;
        rounds.pause_before_gate().await;
        let is_refused = rounds.has_lost() || self.is_refused;
        let goal = Goal::one_of(Arc::clone(&rounds.request.keys));
        match ticket.join_queue(goal, rounds.node_timeout, is_refused) {
            Some((wait, seen)) if rounds.request.waits() => drop(wait.called(seen).await),
            Some((wait, seen)) => wait.gate_answered(seen).await,
            None => rounds.back_off().await,
        }
    }
}
