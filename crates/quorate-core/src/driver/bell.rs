//! Which of the calls of a batch asks to be polled.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::calls::Inbox;
use crate::algorithm::quorum::NodeId;

/// The waker of one call: where several threads work, each answer wakes the batch by itself, and to
/// poll for all the others each time costs more than an allocation for each.
struct Bell {
    node: NodeId,
    inbox: Arc<Inbox>,
}

/// The waker of the call to `node`, whose answer goes to `inbox`.
pub(super) fn of(node: NodeId, inbox: &Arc<Inbox>) -> Waker {
    Waker::from(Arc::new(Bell { node, inbox: Arc::clone(inbox) }))
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.asks(self.node);
    }
}
