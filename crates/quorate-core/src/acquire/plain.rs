//! A lock of all its names, which may wait until it is free. Read this first.
//!
//! The request takes a ticket for each of its keys, in sorted order, so that one task of this
//! manager competes for a key at a time. Then it makes one attempt at the nodes after another,
//! until one is won. Between two of them, and before the first if an earlier task of this manager
//! waits there or other processes do (a word of the gate, a second old at most), it waits for its
//! turn in the wait queue of its first key, which a node keeps. On a free lock it waits for its
//! round alone. A request that waits for no holder tries again only while the votes are split (O8).
//!
//! While an attempt runs, it has the tickets. A win ends the wait at the gate; one that is still
//! valid when the request hears of it keeps them until its releases are on their way
//! (`Turn::hand_over` says when each goes on); a loss gives them back to the request, which stays
//! the first of its process.

use std::sync::Arc;

use futures_util::future::FutureExt;

use super::request::Request;
use super::rounds::{Round, Rounds, in_time};
use crate::attempt::Attempt;
use crate::error::LockError;
use crate::turns::ManagerState;
use crate::turns::tickets::Ticket;

/// Acquires the lock, before the deadline.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired, and hands the tickets over: by
/// `Rounds::drop`, before the first round by `Ticket::drop`, while it is queued in this process by
/// that of `Taking`. With the last task of this manager the wait at the gate ends.
pub(super) async fn acquire(
    manager: &Arc<ManagerState>,
    request: &Request,
) -> Result<Arc<Attempt>, LockError> {
    let mut rounds = Rounds::new(manager, request);
    rounds.take_tickets().await?;
    while wait_for_turn(&mut rounds).await? {
        match rounds.run(Arc::clone(&request.keys)).await? {
            Round::Won => {
                rounds.end_wait();
                return rounds.finish().await;
            }
            Round::Lost if request.waits() || rounds.try_again_later().boxed().await => {}
            Round::Lost | Round::Final => break,
        }
    }
    Err(give_up(&mut rounds).boxed().await)
}

/// Waits until the next attempt is worth making: at once, if none was lost and no other process
/// waits. `false` at the deadline.
async fn wait_for_turn(rounds: &mut Rounds<'_>) -> Result<bool, LockError> {
    if rounds.request.waits() && (rounds.has_lost() || rounds.others_are_first()) {
        rounds.note_awaited();
        let waiting = in_time(rounds.cluster(), rounds.deadline, wait_at_gate(rounds));
        if waiting.boxed().await?.is_none() {
            return Ok(false);
        }
    }
    Ok(rounds.is_in_time())
}

/// Waits in the queue at the node that keeps it, the *gate*, once each node has said which server
/// it is. After a lost round it pauses at random first, so that requests that split the votes do
/// not meet again; on a pool it awaits the undo before that. Without a gate, backs off
/// (`acquire/back_off`).
async fn wait_at_gate(rounds: &Rounds<'_>) {
    rounds.await_undo_on_pools().await;
    rounds.pause_before_gate().await;
    match rounds.join_queue() {
        Some((wait, seen)) => drop(wait.called(seen).await),
        None => rounds.back_off().await,
    }
}

/// Ends the request without the lock: it is too late, or the nodes' errors are permanent. Leaves
/// the queue at the gate, unless another task of this manager goes on there.
async fn give_up(rounds: &mut Rounds<'_>) -> LockError {
    let ticket = rounds.turn.first();
    let wait = ticket.and_then(Ticket::wait);
    let unasked = rounds.unasked(wait.as_ref());
    let leaving = wait.filter(|_| !ticket.is_some_and(Ticket::has_local));
    rounds.give_up(unasked, leaving).await
}
