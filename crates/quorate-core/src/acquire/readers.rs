//! A reader: it competes at the nodes without a ticket, gives way to writers that wait, and waits together with other
//! readers of its manager.

use std::mem::take;
use std::sync::Arc;

use futures_util::future::FutureExt;

use super::rounds::{Round, Rounds};
use super::wanted::Wanted;
use crate::algorithm::attempt::Loss;
use crate::algorithm::lease::saturating_add;
use crate::attempt::Attempt;
use crate::error::{Closed, LockError, Writer};
use crate::resource::Key;
use crate::seam::backend::{Asked, CallReply, CallResult, Mode, Operation};
use crate::turns::readers::Member;
use crate::turns::tickets::Inner;

/// The gate of a key was asked whether a writer waits there.
type Question<'a> = (&'a Key, Asked);

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
    let (mut member, mut gave_way) = (None, false);
    while wait_for_turn(&mut rounds, &mut member, &mut gave_way).await? {
        // In front of the acquire in the same pipeline (RW1). A reader with an entry in the queue has its turn.
        let gives_way = member.is_none();
        let asks = gives_way && rounds.knows_gates();
        let mut questions = if asks { ask_gates(&rounds) } else { Vec::new() };
        let round = rounds.run(Arc::clone(&wanted.keys)).await?;
        let goes_on = match round {
            Round::Won
                if gives_way && give_back_to_writer(&mut rounds, take(&mut questions)).await? =>
            {
                gave_way = rounds.is_held();
                wanted.waits()
            }
            Round::Won => {
                member.into_iter().for_each(Member::won);
                return rounds.finish().await;
            }
            Round::Lost | Round::Final => {
                gave_way = false;
                for (key, asked) in questions {
                    if let Some(answer) = asked.now_or_never() {
                        note_answer(&rounds, key, &answer);
                    }
                }
                matches!(round, Round::Lost) && (wanted.waits() || rounds.try_again_later().await)
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
                |held: Arc<Attempt>| held.claim.keys().iter().any(|key| wanted.keys.contains(key));
            let for_us = Attempt::all_held(&manager.cluster).any(holds);
            let writer = if for_us { Writer::WaitsForUs } else { Writer::Waits };
            LockError::Held(failure.behind(writer, manager.waiting_label(&wanted.keys)))
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
    let (readers, keys) = (&rounds.manager.turns.readers, &rounds.wanted.keys);
    *gave_way |= rounds.wanted.waits() && readers.hear_of_writer(keys, rounds.now());
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
    questions: Vec<Question<'_>>,
) -> Result<bool, LockError> {
    let Some(attempt) = rounds.attempt.clone() else { return Ok(false) };
    let writer_waits = writer_waits(rounds, &attempt, questions).await;
    let loss = match attempt.first().await.ok_or(Closed)? {
        _ if writer_waits => Loss::Held,
        Ok(()) => return Ok(false),
        Err(lost) => lost.loss,
    };
    rounds.give_back(loss);
    Ok(true)
}

/// Whether a gate says that a writer waits. A process that has just learned which node each gate is asks now. The answers
/// are awaited for as long as the round took, and the learning, but for no longer than the round behind the deadline (RW1).
async fn writer_waits(
    rounds: &Rounds<'_>,
    attempt: &Arc<Attempt>,
    mut questions: Vec<Question<'_>>,
) -> bool {
    let (cluster, took) = (rounds.cluster(), attempt.answers().waited());
    let (won, mut limit) = (cluster.now(), took);
    let last = rounds.deadline.map(|at| saturating_add(at.max(won), took));
    if questions.is_empty() {
        cluster.before(last, rounds.learn_gates()).await;
        limit = took.saturating_add(cluster.now().saturating_duration_since(won));
        questions = ask_gates(rounds);
    }
    let until = saturating_add(cluster.now(), limit);
    let until = last.map_or(until, |last| last.min(until));
    let mut writer_waits = false;
    for (key, asked) in questions {
        let answer = cluster.before(Some(until), asked).await;
        writer_waits |= answer.is_some_and(|answer| note_answer(rounds, key, &answer));
    }
    writer_waits
}

/// Asks the gate of each key whether a writer waits.
fn ask_gates<'a>(rounds: &Rounds<'a>) -> Vec<Question<'a>> {
    let (cluster, now, wanted) = (rounds.cluster(), rounds.now(), rounds.wanted);
    let ask = |key: &'a Key| {
        let gate = *cluster.nodes.gates(key, now).first()?;
        let hint = Operation::Hint { key: key.clone(), mode: Mode::Shared };
        Some((key, cluster.ask(gate, hint, now)))
    };
    wanted.keys.iter().filter_map(ask).collect()
}

/// Keeps the gate's answer for the next readers. Returns whether a writer waits.
fn note_answer(rounds: &Rounds<'_>, key: &Key, answer: &CallResult) -> bool {
    let writer_waits = matches!(answer, Ok(CallReply::Waiters(true)));
    rounds.manager.turns.readers.note_hint(key, writer_waits, rounds.cluster().now());
    writer_waits
}
