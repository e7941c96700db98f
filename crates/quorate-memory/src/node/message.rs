//! Calls to the process of a node, and their replies.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quorate_core::backend::{Call, CallResult, Capabilities};

use super::lane::Lane;
use crate::client::SimClient;
use crate::rule::Journey;

/// A connection on which requests, and their replies, keep their order.
#[derive(Default)]
pub(super) struct Connection {
    pub(super) requests: Arc<Lane<Request>>,
    pub(super) replies: Arc<Lane<Answer>>,
    /// How it is made; `None` for one that is there.
    connect: Option<Connect>,
    /// When it is there, or when the connect fails.
    made_at: Mutex<Option<Instant>>,
}

/// How a connection is made.
#[derive(Clone, Copy)]
pub(super) struct Connect {
    pub(super) takes: Duration,
    pub(super) limit: Duration,
}

impl Connection {
    pub(super) fn to_make(connect: Connect) -> Self {
        Self { connect: Some(connect), ..Self::default() }
    }

    pub(super) fn connect_limit(&self) -> Duration {
        self.connect.map_or(Duration::ZERO, |connect| connect.limit)
    }

    /// How long a call that begins `now` waits for the connection. An error: until the connect
    /// fails.
    pub(super) fn wait(&self, now: Instant) -> Result<Duration, Duration> {
        let Some(Connect { takes, limit }) = self.connect else { return Ok(Duration::ZERO) };
        let mut made_at = self.made_at.lock().unwrap_or_else(PoisonError::into_inner);
        let fails = takes > limit;
        if fails {
            // A connect that has failed is made again.
            made_at.take_if(|at| *at <= now);
        }
        let left = made_at.get_or_insert(now + takes.min(limit)).saturating_duration_since(now);
        if fails { Err(left) } else { Ok(left) }
    }
}

/// A call that is sent to the process.
pub(super) struct Request {
    pub(super) call: Call,
    pub(super) journey: Journey,
    pub(super) origin: Origin,
    /// The way back.
    pub(super) replies: Arc<Lane<Answer>>,
    pub(super) sent: Instant,
}

impl Request {
    /// Where it goes among the requests in flight. As on Redis, the plain releases that are sent at
    /// one moment are one script, and so are the plain extensions: the last one passes each request
    /// behind the others that has none of its keys.
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
    /// What the backend and its server can do.
    pub(super) has: Capabilities,
}

impl Origin {
    pub(super) fn id(&self) -> Option<usize> {
        self.client.as_ref().map(SimClient::id)
    }
}
