//! One operation on one connection, for calls that have a connection to themselves.

use quorate_core::backend::{CallResult, Operation};

use crate::connection::Connection;
use crate::features::Features;
use crate::handshake::loads;
use crate::operation::{self, Step};
use crate::value::no_reply;

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
