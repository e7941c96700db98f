//! One operation on one connection, for calls that have a connection to themselves.

use std::sync::{Arc, Mutex, PoisonError};

use quorate_core::backend::{Call, CallResult, Membership, Operation};

use crate::connection::{Connection, Dial};
use crate::features::Features;
use crate::handshake::loads;
use crate::operation::{self, Step};
use crate::value::no_reply;

/// What a connection of a pool has read of the node's group last.
#[derive(Debug, Default)]
pub struct LatestList(Mutex<Option<Arc<Membership>>>);

impl LatestList {
    /// Notes what the connection has just read, or gives it what another one has read since then,
    /// of the same data.
    fn share(&self, features: &mut Features) {
        let has_read = std::mem::take(&mut features.has_read_list);
        let Some(own) = &mut features.membership else { return };
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some(latest) if !has_read && latest.id == own.id => *own = Arc::clone(latest),
            _ if has_read => *latest = Some(Arc::clone(own)),
            _ => {}
        }
    }
}

/// Reads the list of the node's group again, or has the node keep one, if `call` says so. Then it
/// reports to the sender of the call what the node says, by what any connection has read `latest`.
///
/// # Cancel safety
///
/// As that of [`exchange`].
pub async fn exchange_list<D: Dial>(
    dial: &D,
    connection: &D::Connection,
    features: &mut Features,
    call: &Call,
    latest: &LatestList,
) {
    let Some(group) = dial.group() else { return };
    let compares = features.compare_and_delete.is_some();
    let commands = group.commands(call.list_task(), compares);
    if !commands.is_empty() {
        let answers = connection.send(commands).await;
        features.note_group(group, &dial.name(), answers, call.list_task());
    }
    latest.share(features);
    features.report_group(call);
}

/// Carries `operation` out on `connection`, and returns the answer to its call.
///
/// The connection is of no use after an error of the kind `Protocol`, or once it is closed.
///
/// # Errors
///
/// As those of the operation.
///
/// # Cancel safety
///
/// If the future is dropped after its first poll, the command may or may not be executed, and the
/// reply may still come. So the connection is to be closed then.
pub async fn exchange(
    connection: &impl Connection,
    features: &mut Features,
    operation: &Operation,
) -> CallResult {
    let mut step = operation::first(operation, features);
    loop {
        let (command, form) = match step {
            Step::Send(command, form) => (command, form),
            Step::Done(answer) => {
                // At once: the next call may have another connection.
                if std::mem::take(&mut features.must_load) {
                    drop(connection.send(loads(features.runs_when_full).collect()).await);
                }
                return answer;
            }
        };
        let mut answers = connection.send(vec![command]).await;
        let reply = match answers.pop().unwrap_or_else(no_reply) {
            Ok(reply) => reply,
            Err(error) => return operation::end(form, features).unwrap_or(Err(error)),
        };
        step = operation::next(operation, form, reply, features);
    }
}
