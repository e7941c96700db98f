//! Calls to the process of a node, and their replies.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::Instant;

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
    pub(super) sent: Instant,
}

impl Request {
    /// Where it goes among the requests in flight. As on Redis, the plain releases that are sent at one moment are one script,
    /// and so are the plain extensions: the last one passes each request behind the others that has none of its keys.
    pub(super) fn place(&self, requests: &VecDeque<Self>) -> usize {
        let (own, end) = (self.call.operation(), requests.len());
        let kind = discriminant(own);
        let shares = |one: &Self| {
            one.sent == self.sent
                && discriminant(one.call.operation()) == kind
                && one.call.operation().is_plain()
        };
        let script = requests.iter().rposition(shares).filter(|_| own.is_plain());
        let Some(place) = script.map(|script| script + 1) else { return end };
        let mut keys = requests.range(place..).flat_map(|one| one.call.operation().keys());
        if keys.any(|key| own.keys().any(|other| other == key)) { end } else { place }
    }
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
