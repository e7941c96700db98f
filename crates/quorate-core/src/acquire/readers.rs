//! A reader: it competes at the nodes without a ticket, gives way to writers that wait, and waits
//! together with other readers of its manager.

use std::mem::take;
use std::sync::Arc;

use super::request::Request;
use super::rounds::{Round, Rounds, in_time};
use crate::algorithm::attempt::Loss;
use crate::algorithm::lease::saturating_add;
use crate::attempt::Attempt;
use crate::error::{Closed, LockError, Writer};
use crate::seam::backend::Capabilities;
use crate::turns::ManagerState;
use crate::turns::readers::Member;

/// Acquires the lock together with other readers.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired.
pub(super) async fn acquire(
    manager: &Arc<ManagerState>,
    request: &Request,
) -> Result<Arc<Attempt>, LockError> {
    let mut rounds = Rounds::new(manager, request);
    // Readers that wait share an entry in the queue.
    let (mut member, mut gave_way) = (None, false);
    while wait_for_turn(&mut rounds, &mut member, &mut gave_way).await? {
        // A reader with an entry in the queue has its turn.
        rounds.asks = member.is_none();
        let gates = rounds.cluster().nodes.able(Capabilities::QUEUE).len();
        let round = rounds.run(Arc::clone(&request.keys)).await?;
        let goes_on = match round {
            Round::Won if rounds.asks && give_back_to_writer(&mut rounds).await? => {
                gave_way = rounds.is_held();
                request.waits()
            }
            Round::Won => {
                member.into_iter().for_each(Member::won);
                return rounds.finish().await;
            }
            Round::Lost | Round::Final => {
                let said = take(&mut rounds.turn);
                gave_way = false;
                note_writer(&rounds, said.waited_for());
                // A node whose user may not look into the queue has not voted, and is not asked
                // again.
                let is_forbidden = rounds.cluster().nodes.able(Capabilities::QUEUE).len() < gates;
                if is_forbidden {
                    rounds.forget_lost();
                }
                is_forbidden
                    || matches!(round, Round::Lost)
                        && (request.waits() || rounds.try_again_later().await)
            }
        };
        if !goes_on {
            break;
        }
    }
    let unasked = rounds.unasked(member.as_ref().map(Member::wait));
    Err(match rounds.give_up(unasked, member.and_then(Member::leave)).await {
        LockError::Held(failure) if gave_way => {
            let holds =
                |held: Arc<Attempt>| held.claim.keys().iter().any(|key| request.keys.contains(key));
            let for_us = Attempt::all_held(&manager.cluster).any(holds);
            let writer = if for_us { Writer::WaitsForUs } else { Writer::Waits };
            LockError::Held(failure.behind(writer, manager.waiting_label(&request.keys)))
        }
        error => error,
    })
}

/// Waits until the next attempt is worth making. `false` at the deadline.
async fn wait_for_turn(
    rounds: &mut Rounds<'_>,
    member: &mut Option<Member>,
    gave_way: &mut bool,
) -> Result<bool, LockError> {
    let (manager, keys, now) = (rounds.manager, &rounds.request.keys, rounds.now());
    let writer_waits = manager.waited_for(keys, now).is_some();
    *gave_way |= rounds.request.waits() && writer_waits;
    let has_to_wait = rounds.has_lost() || writer_waits || manager.readers.is_waiting(keys);
    if rounds.request.waits() && has_to_wait {
        rounds.note_awaited();
        let waiting = wait_with_others(rounds, member);
        if in_time(rounds.cluster(), rounds.deadline, waiting).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(rounds.is_in_time())
}

/// Waits together with other readers. Its own undo refuses no reader, so it is not awaited.
async fn wait_with_others(rounds: &Rounds<'_>, member: &mut Option<Member>) {
    let (manager, cluster) = (rounds.manager, rounds.cluster());
    rounds.pause_before_gate().await;
    if cluster.nodes.has_gates() {
        member.take_if(|member| member.wait().is_outdated());
        match member {
            Some(member) => member.refused(),
            None => {
                let keys = &rounds.request.keys;
                let home = manager.waited_for(keys, cluster.now()).unwrap_or(&keys[0]);
                *member = manager.readers.join(cluster, keys, home, rounds.node_timeout);
            }
        }
        if let Some(member) = member {
            member.called().await;
            // Writers that wait now stand behind it.
            return manager.forget_word(member.home());
        }
    }
    rounds.back_off().await;
}

/// Gives the lock back if a writer waits (RW1), or if it has expired while the gate was awaited
/// (T2).
async fn give_back_to_writer(rounds: &mut Rounds<'_>) -> Result<bool, LockError> {
    let Some(attempt) = rounds.attempt.clone() else { return Ok(false) };
    let writer = writer(rounds, &attempt).await;
    note_writer(rounds, writer);
    let loss = match attempt.first().await.ok_or(Closed)? {
        _ if writer.is_some() => Loss::Held,
        Ok(()) => return Ok(false),
        Err(lost) => lost.loss,
    };
    rounds.give_back(loss);
    Ok(true)
}

/// The place of the first key for which a writer waits, as a node has answered with its vote. The
/// gates are awaited for as long as the round took, and until each node has said which server it
/// is, but for no longer than the round behind the deadline (RW1).
async fn writer(rounds: &Rounds<'_>, attempt: &Arc<Attempt>) -> Option<usize> {
    let (cluster, took) = (rounds.cluster(), attempt.answers().waited());
    let last = rounds.deadline.map(|at| saturating_add(at.max(cluster.now()), took));
    cluster.before(last, rounds.learn_gates()).await;
    let now = cluster.now();
    let gate = |key| cluster.nodes.gates(key, now).first().copied();
    let gates = rounds.request.keys.iter().filter_map(gate).collect();
    let until = saturating_add(now, took);
    cluster.before(last.map(|last| last.min(until)).or(Some(until)), attempt.heard(gates)).await;
    attempt.look(|state| state.writer())
}

/// Keeps what a node has said for the next readers.
fn note_writer(rounds: &Rounds<'_>, writer: Option<usize>) {
    let (manager, now) = (rounds.manager, rounds.cluster().now());
    let key = writer.and_then(|at| rounds.request.keys.get(at));
    key.into_iter().for_each(|key| manager.note_writer(key, now));
}
