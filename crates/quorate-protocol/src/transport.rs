//! One command to one node, whatever carries it.

use std::borrow::Cow;
use std::fmt;

use crate::command::Command;
use crate::features::Features;
use crate::reply::{Failure, Reply};

/// Carries commands to one node: a [`Batcher`](crate::Batcher), or a pool.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Whether commands reach the node in the order of the first polls of their calls, and a command that
    /// was handed to a connection never leaves after its end.
    const IS_ORDERED: bool;

    /// What errors and events call the node: its address without secrets.
    fn name(&self) -> Cow<'_, str>;

    /// Sends a command once, and waits for its reply. The first poll queues it.
    ///
    /// # Errors
    ///
    /// There is no reply: the command was not sent, or may have been executed.
    ///
    /// # Cancel safety
    ///
    /// A dropped command that has not left never leaves. No other call is disturbed.
    fn call(
        &self,
        command: Command,
        admission: Admission,
    ) -> impl Future<Output = Result<Reply, Failure>> + Send;

    /// What the server has, as the latest connection found out; the default before the first one.
    fn features(&self) -> Features;
}

/// How a command is admitted to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition")]
pub enum Admission {
    /// Refused as *not sent* where too many acquires are queued.
    Acquire,
    /// Admitted however many acquires are queued: a release belongs to an acquire that was admitted. Refused only
    /// while the connection backs off.
    Release,
    /// Admitted as a release is: a lease or a wait has at most one such call in flight.
    Other,
}
