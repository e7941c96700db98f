//! The waiters hint: whether any entry is in the wait queue of a lock.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use futures_util::future::join;
use quorate_core::Claim;

use super::queue;
use crate::command::Command;
use crate::reply::Reply;
use crate::transport::{Admission, Transport};

/// Runs an operation, and sends the question whether processes wait directly behind it.
///
/// The operation is borrowed: by value, it would be in this future twice. An error leaves the hint unknown and does not touch the vote. Nothing is asked behind an operation
/// that was not sent.
pub(super) async fn with_waiters<T: Transport, R>(
    transport: &T,
    claim: &Claim,
    is_asked: bool,
    mut operation: Pin<&mut impl Future<Output = R>>,
) -> (R, Option<bool>) {
    let first = poll_fn(|context| Poll::Ready(operation.as_mut().poll(context))).await;
    let queue_key = claim.keys().iter().min().filter(|_| is_asked);
    match (first, queue_key) {
        (Poll::Ready(result), _) => (result, None),
        (Poll::Pending, None) => (operation.await, None),
        (Poll::Pending, Some(key)) => {
            let waiters = queue::waiters_key(key);
            let question = Command::new("EXISTS", waiters.len()).arg(waiters);
            let (result, reply) = join(operation, transport.call(question, Admission::Other)).await;
            let hint = match reply {
                Ok(Reply::Int(count)) => Some(count > 0),
                _ => None,
            };
            (result, hint)
        }
    }
}
