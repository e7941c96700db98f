//! Calls to the process of a node, and their replies.

use std::sync::Arc;

use quorate_core::backend::{Call, CallResult};

use super::lane::Lane;
use crate::client::SimClient;
use crate::rule::Journey;

/// A connection on which requests, and their replies, keep their order.
#[derive(Default)]
pub(super) struct Connection {
    pub(super) requests: Arc<Lane<Request>>,
    pub(super) replies: Arc<Lane<Answer>>,
}

/// A call that is sent to the process.
pub(super) struct Request {
    pub(super) call: Call,
    pub(super) journey: Journey,
    pub(super) origin: Origin,
    /// The way back. Without order, each reply goes by itself.
    pub(super) replies: Option<Arc<Lane<Answer>>>,
}

/// A call with its reply.
pub(super) type Answer = (Call, CallResult);

/// The handle through which a call comes.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) client: Option<SimClient>,
    /// Whether replies name the server.
    pub(super) names_server: bool,
    /// Whether leases are notified of changes.
    pub(super) pushes: bool,
}

impl Origin {
    pub(super) fn id(&self) -> Option<usize> {
        self.client.as_ref().map(SimClient::id)
    }
}
