//! What one node keeps at a key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{BackendError, CallReply, CallResult, Holder, Reader, Sighting};

/// What one node keeps at the key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeView {
    /// The name of the node: its address without secrets.
    pub name: Arc<str>,
    /// The state of the key there, or why it is unknown.
    pub state: KeyState,
}

impl NodeView {
    /// The label of the holder whose key the node keeps, if it has one. None of readers.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        match &self.state {
            KeyState::Held { holder, .. } => holder.label(),
            _ => None,
        }
    }
}

/// The state of a key on one node, or why it is unknown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeyState {
    /// The node keeps no key.
    Free,
    /// The node keeps the key of a holder.
    Held {
        /// The holder: equal on all nodes that keep its key.
        holder: Holder,
        /// How long the node keeps the key, from the end of the inspection. Zero if it expired
        /// before.
        ///
        /// `None` for a key without a ttl, which another program wrote.
        time_left: Option<Duration>,
    },
    /// The node keeps a key of readers.
    Read {
        /// The readers, and how long the node counts each, from the end of the inspection.
        readers: Vec<Reader>,
    },
    /// The node or its backend failed. No reply within the node timeout is of the kind
    /// [`TimedOut`](crate::BackendErrorKind::TimedOut).
    Failed(BackendError),
}

impl KeyState {
    /// The state of a key on a node that answered `age` before the end of the inspection.
    pub(super) fn of(answer: CallResult, age: Duration) -> Self {
        match answer {
            Ok(CallReply::Sighted(None)) => Self::Free,
            Ok(CallReply::Sighted(Some(Sighting { mut readers, .. }))) if !readers.is_empty() => {
                let age_of = |one: &mut Reader| one.time_left = one.time_left.saturating_sub(age);
                readers.iter_mut().for_each(age_of);
                Self::Read { readers }
            }
            Ok(CallReply::Sighted(Some(Sighting { holder, time_left, .. }))) => {
                Self::Held { holder, time_left: time_left.map(|left| left.saturating_sub(age)) }
            }
            Ok(_) => Self::Failed(BackendError::mixed_up()),
            Err(error) => Self::Failed(error),
        }
    }
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::Held { time_left, .. } => {
                f.write_str("held, ")?;
                write_left(f, *time_left)
            }
            Self::Read { readers } if readers.len() == 1 => f.write_str("1 reader"),
            Self::Read { readers } => write!(f, "{} readers", readers.len()),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Also of the whole lock.
pub(super) fn write_left(f: &mut fmt::Formatter<'_>, left: Option<Duration>) -> fmt::Result {
    match left {
        Some(left) => write!(f, "{left:.1?} left"),
        None => f.write_str("without a ttl"),
    }
}
