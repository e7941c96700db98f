//! A request for one of several names: which name the next attempt is for.
//!
//! ```text
//! ticket of the set
//!    └─▶ fast path: names that no task here has or wants, three rounds at most (S3)
//!           │ tasks here have or want all of them      │ lost, or other processes wait
//!           ▼                                          ▼
//!         the queues of all names in this process ─▶ the wait queue at the gate, which names a free one
//! ```
//!
//! An attempt has the ticket of its name. After a lost round the attempt keeps the ticket until its undo allows the next
//! attempt on that name. If the gate names one that a task here has or wants, the request enters the queue of that
//! name, and goes on waiting at the gate as well. A request that has the ticket of a name waits for nothing.

use std::future::pending;
use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{Either, poll_immediate, select, select_ok};

use super::Competitor;
use super::kind::{Choosing, Kind};
use crate::algorithm::attempt::Loss;
use crate::error::LockError;
use crate::remote_wait::WaitInput;
use crate::resource::Key;
use crate::tickets::{NameSet, NoTicket, Ticket, Turn};

/// How many rounds a request makes before it waits in the wait queue.
const FAST_ROUNDS: usize = 3;

impl Competitor<'_> {
    fn choosing(&mut self) -> Option<&mut Choosing> {
        match &mut self.kind {
            Kind::OneOf(choosing) => Some(choosing),
            Kind::All | Kind::Shared(_) => None,
        }
    }

    /// Takes the ticket of the set. A request that waits for no holder goes on without it, if another has it.
    async fn take_set_ticket(&mut self, set: &NameSet) -> Result<(), LockError> {
        let taken = match self.wanted.waits() {
            true => Some(self.ticket(&set.key, self.now()).await?),
            false => {
                let taking = self.queues.take(set.key.clone(), false, self.now());
                poll_immediate(taking).await.and_then(Result::ok)
            }
        };
        if let Some(choosing) = self.choosing() {
            choosing.is_fast_over |= taken.as_ref().and_then(Ticket::wait).is_some();
            choosing.set_ticket = taken;
        }
        Ok(())
    }

    /// Takes the ticket of the name of the next attempt. `false` if the request ends without one.
    pub(super) async fn choose(&mut self, set: &Arc<NameSet>) -> Result<bool, LockError> {
        let cluster = &self.queues.cluster;
        if self.wait_ticket().is_none()
            && let Err(error) = self.take_set_ticket(set).await
        {
            return if self.last.is_some() { Ok(false) } else { Err(error) };
        }
        while self.deadline.is_none_or(|deadline| self.now() < deadline) {
            let deadline = self.deadline;
            let given = cluster.attempts.unless_closed(self.given());
            match cluster.before(deadline, given).await {
                Some(Some(Ok(ticket))) => {
                    // The wait of a task that wanted this name alone, and gave up.
                    if let Some(wait) = ticket.end_wait(cluster.now()) {
                        wait.input(WaitInput::Cancel);
                    }
                    self.turn = Turn::of(ticket, set);
                    return Ok(true);
                }
                Some(None | Some(Err(NoTicket::Closed))) => return Err(LockError::Closed),
                Some(Some(Err(NoTicket::TooMany))) => return Err(self.too_many(&set.key)),
                Some(Some(Err(NoTicket::Held))) if self.wanted.waits() => {}
                Some(Some(Err(NoTicket::Held))) | None => break,
            }
        }
        Ok(false)
    }

    /// The ticket of a name, once there is one that is worth an attempt. *Held* if that could not be had.
    async fn given(&mut self) -> Result<Ticket, NoTicket> {
        let (queues, keys, now) = (self.queues, &*self.wanted.keys, self.now());
        let (others_are_first, random) = (self.others_are_first(), queues.cluster.random());
        self.fresh_now = None;
        let is_over = self.last.as_ref().is_some_and(|last| last.loss != Loss::Held);
        let Some(choosing) = self.choosing() else { return Err(NoTicket::Closed) };
        if !choosing.is_fast_over && !is_over && choosing.tried.len() < FAST_ROUNDS {
            match queues.pick(keys, &choosing.tried, random, now) {
                Some(name) if !others_are_first => {
                    choosing.tried.push(name.clone());
                    return queues.take(name, false, now).await;
                }
                // After a lost round, its undo may have a ticket.
                None if choosing.tried.is_empty() => self.wait_here(now),
                _ => {}
            }
        }
        let Some(choosing) = self.choosing() else { return Err(NoTicket::Closed) };
        choosing.is_fast_over = true;
        let (mut busy, is_local) = (take(&mut choosing.busy), take(&mut choosing.is_local));
        let here = async {
            if busy.is_empty() {
                return pending().await;
            }
            select_ok(busy.iter_mut()).await.map(|(ticket, _)| ticket)
        };
        let there = async { if is_local { pending().await } else { self.wait_at_gate().await } };
        let given = match select(pin!(here), pin!(there)).await {
            Either::Left((given, _)) => Some(given),
            Either::Right(_) => None,
        };
        if let Some(given) = given {
            if !is_local {
                // It waits at the gate already.
                return given.map_err(|error| match error {
                    NoTicket::TooMany => NoTicket::Held,
                    error => error,
                });
            }
            if self.others_are_first() {
                return Err(NoTicket::Held);
            }
            // The next task goes on. This one takes that ticket again, if it loses.
            self.choosing().into_iter().for_each(|it| it.set_ticket = None);
            return given;
        }
        let (wait, now) = (self.wait_ticket().and_then(Ticket::wait), self.cluster().now());
        let named = wait.as_ref().and_then(|wait| wait.take_free());
        // Without a gate, any name.
        let unnamed = || queues.pick(keys, &[], random, now).filter(|_| self.wanted.waits());
        let Some(name) = named.or_else(unnamed) else {
            self.wait_here(now);
            return Err(NoTicket::Held);
        };
        let taken = queues.take(name.clone(), false, now).await;
        if let (Err(NoTicket::Held), Some(wait)) = (&taken, wait) {
            wait.input(WaitInput::Refused);
            if busy.iter().all(|taking| *taking.key() != name) {
                busy.push(queues.take(name, true, now));
            }
            self.choosing().into_iter().for_each(|it| it.busy = take(&mut busy));
        }
        taken
    }

    /// Tasks here have or want all names: waits for them alone.
    fn wait_here(&mut self, now: Instant) {
        let (queues, waits, is_again) = (self.queues, self.wanted.waits(), self.last.is_some());
        let Kind::OneOf(choosing) = &mut self.kind else { return };
        let take = |key: &Key| queues.take(key.clone(), waits, now).again(is_again);
        choosing.busy = self.wanted.keys.iter().map(take).collect();
        (choosing.is_local, self.was_behind_others) = (true, true);
    }
}
