//! What a node says unasked on the connection for watches.

use quorate_core::protocol::Watches;
use quorate_core::{BackendError, BackendErrorKind};
use redis::aio::{AsyncPushSender, SendError};
use redis::{PushInfo, PushKind, Value};

/// Passes on to the watches of a connection what the node says, and that it has ended.
///
/// redis-rs drops it with the task that drives the connection, and not before: whether the node
/// closed it, the runtime has shut down, or nobody uses it any more.
pub(crate) struct Ear(Watches);

impl Ear {
    pub(crate) fn of(watches: &Watches) -> Self {
        Self(watches.clone())
    }
}

impl AsyncPushSender for Ear {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        if push.kind != PushKind::Invalidate {
            return Ok(());
        }
        match push.data.as_slice() {
            [Value::Array(keys)] => keys.iter().for_each(|key| match key {
                Value::BulkString(key) => self.0.told(key),
                // Not a key that can be told apart: it may be any.
                _ => self.0.told_all(),
            }),
            // Nil: everything was flushed.
            _ => self.0.told_all(),
        }
        Ok(())
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let lost = "the connection for watches was lost";
        self.0.end(&BackendError::new(BackendErrorKind::Connection, lost));
    }
}
