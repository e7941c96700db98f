//! What one node keeps at a key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{BackendError, CallReply, CallResult, KeyState};

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

/// The state of a key on a node that answered `age` before the end of the inspection.
pub(super) fn aged(answer: CallResult, age: Duration) -> KeyState {
    let mut state = match answer {
        Ok(CallReply::Sighted(state)) => state,
        Ok(_) => KeyState::Failed(BackendError::mixed_up()),
        Err(error) => KeyState::Failed(error),
    };
    let less = |left: &mut Duration| *left = left.saturating_sub(age);
    match &mut state {
        KeyState::Held { time_left, .. } => time_left.iter_mut().for_each(less),
        KeyState::Read { readers } => {
            readers.iter_mut().for_each(|one| less(&mut one.time_left));
        }
        KeyState::Free | KeyState::Failed(_) => {}
    }
    state
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
