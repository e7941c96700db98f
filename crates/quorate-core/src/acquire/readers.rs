//! A reader: it competes at the nodes without a ticket, gives way to writers that wait, and waits together with other
//! readers of its manager.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::FutureExt;

use super::rounds::{Round, Rounds};
use super::wanted::Wanted;
use crate::algorithm::attempt::Loss;
use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::NodeId;
use crate::attempt::Attempt;
use crate::error::LockError;
use crate::seam::backend::{Asked, CallReply, CallResult, Mode, Operation};
use crate::turns::readers::Member;
use crate::turns::tickets::Inner;

/// A gate that was asked whether a writer waits, with its answer to come.
type Question = Option<(NodeId, Asked)>;

/// Acquires the lock together with other readers.
///
/// # Cancel safety
///
/// Dropping the future releases in the background what was acquired.
pub(super) async fn acquire(
    manager: &Arc<Inner>,
    wanted: &Wanted,
) -> Result<Arc<Attempt>, LockError> {
    let mut rounds = Rounds::new(manager, wanted);
    // Readers that wait share an entry in the queue.
    let mut member = None;
    while wait_for_turn(&mut rounds, &mut member).await? {
        // In front of the acquire in the same pipeline (RW1). A reader with an entry in the queue has its turn.
        let gives_way = member.is_none();
        let mut question = if gives_way { ask_gate(&rounds, None) } else { None };
        let round = rounds.run(Arc::clone(&wanted.keys), rounds.haste()).await?;
        let goes_on = match round {
            Round::Won
                if gives_way && give_back_to_writer(&mut rounds, question.take()).await? =>
            {
                wanted.waits()
            }
            Round::Won => {
                member.into_iter().for_each(Member::won);
                return rounds.finish().await;
            }
            Round::Lost | Round::Final => {
                let answer = question.as_mut().and_then(|(_, asked)| asked.now_or_never());
                if let Some(answer) = answer {
                    note_answer(&rounds, &answer, rounds.now());
                }
                matches!(round, Round::Lost) && (wanted.waits() || rounds.try_again_later().await)
            }
        };
        if !goes_on {
            break;
        }
    }
    let unasked = rounds.unasked(member.as_ref().map(Member::wait));
    Err(rounds.give_up(unasked, member.and_then(Member::leave)).await)
}

/// Waits until the next attempt is worth making. `false` at the deadline.
async fn wait_for_turn(
    rounds: &mut Rounds<'_>,
    member: &mut Option<Member>,
) -> Result<bool, LockError> {
    let (readers, keys) = (&rounds.manager.turns.readers, &rounds.wanted.keys);
    let has_to_wait = rounds.has_lost() || readers.wait_first(keys, rounds.now());
    if rounds.wanted.waits() && has_to_wait {
        rounds.note_awaited();
        if rounds.await_in_time(wait_with_others(rounds, member)).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(rounds.is_in_time())
}

/// Waits together with other readers. Its own undo refuses no reader, so it is not awaited.
async fn wait_with_others(rounds: &Rounds<'_>, member: &mut Option<Member>) {
    let (manager, cluster) = (rounds.manager, rounds.cluster());
    // Behind it, each node has said which server it is.
    rounds.pause_before_gate().await;
    if cluster.nodes.has_gates() {
        member.take_if(|member| member.wait().is_outdated());
        match member {
            Some(member) => member.refused(),
            None => {
                *member =
                    manager.turns.readers.join(cluster, &rounds.wanted.keys, rounds.node_timeout);
            }
        }
        if let Some(member) = member {
            return member.called().await;
        }
    }
    rounds.back_off().await;
}

/// Gives the lock back if a writer waits (RW1), or if it has expired while the gate was awaited (T2).
async fn give_back_to_writer(
    rounds: &mut Rounds<'_>,
    question: Question,
) -> Result<bool, LockError> {
    let Some(attempt) = rounds.attempt().cloned() else { return Ok(false) };
    let writer_waits = writer_waits(rounds, &attempt, question).await;
    let loss = match attempt.first(false).await.ok_or(LockError::Closed)? {
        _ if writer_waits => Loss::Held,
        Ok(()) => return Ok(false),
        Err(lost) => lost.loss,
    };
    rounds.give_back(loss);
    Ok(true)
}

/// Whether the gate says that a writer waits. A process that has just learned which node the gate is asks that one. Each
/// answer is awaited for as long as the round took, and none for longer than that behind the deadline (RW1).
async fn writer_waits(rounds: &Rounds<'_>, attempt: &Arc<Attempt>, mut question: Question) -> bool {
    let (cluster, took) = (rounds.cluster(), attempt.failure().waited());
    let last = rounds.deadline().map(|at| saturating_add(at.max(cluster.now()), took));
    let mut before = None;
    loop {
        if let Some((gate, asked)) = question {
            before = Some(gate);
            let answer = cluster.within(took, cluster.before(last, asked)).await.flatten();
            if answer.is_some_and(|answer| note_answer(rounds, &answer, cluster.now())) {
                return true;
            }
        }
        question = ask_gate(rounds, before);
        if question.is_none() {
            return false;
        }
    }
}

/// Asks the gate of the first key whether a writer waits, if it is another one than `before`.
fn ask_gate(rounds: &Rounds<'_>, before: Option<NodeId>) -> Question {
    let (cluster, now, key) = (rounds.cluster(), rounds.now(), &rounds.wanted.keys[0]);
    let gate = cluster.nodes.gates(key, now).first().copied();
    let gate = gate.filter(|gate| Some(*gate) != before)?;
    let hint = Operation::Hint { key: key.clone(), mode: Mode::Shared };
    Some((gate, cluster.ask(gate, hint, now)))
}

/// Keeps the gate's answer for the next readers. Returns whether a writer waits.
fn note_answer(rounds: &Rounds<'_>, answer: &CallResult, now: Instant) -> bool {
    let writer_waits = matches!(answer, Ok(CallReply::Waiters(true)));
    rounds.manager.turns.readers.note_hint(&rounds.wanted.keys[0], writer_waits, now);
    writer_waits
}
