//! What each operation does to the process.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::backend::{
    CallReply, CallResult, Capabilities, Description, Mode, Operation, ReleaseOptions, Reply,
    Waiters,
};
use quorate_core::{BackendError, BackendErrorKind};

use super::process::State;
use crate::fault::Fault;
use crate::keys;
use crate::observer::Observed;
use crate::store::{Server, no_info};

impl State {
    /// Carries an operation out. With `names_server`, the reply says which server the node is, if
    /// it may.
    pub(super) fn perform(&mut self, operation: &Operation, names_server: bool) -> CallResult {
        if matches!(self.fault, Some(Fault::Full))
            && let Operation::Acquire(..) | Operation::Raise(..) | Operation::Refresh { .. } =
                operation
        {
            let text = "OOM command not allowed when used memory > 'maxmemory'.";
            return Err(BackendError::new(BackendErrorKind::OutOfMemory, text));
        }
        let waiters = self.waiters(operation)?;
        let (server, store) = (self.server(), &mut self.store);
        let named = |mut reply: Reply| {
            reply.waiters = waiters;
            reply.server = (names_server && !server.hides).then(|| Arc::clone(&server.id));
            reply.is_nameless = names_server && server.hides;
            CallReply::Voted(reply)
        };
        Ok(match operation {
            Operation::Acquire(claim, options) => named(match (options.guard, options.fencing) {
                (Some(guard), hint) => store.guarded_acquire(claim, hint, guard, &server)?,
                (None, Some(hint)) => store.fence_acquire(claim, hint)?,
                (None, None) => store.acquire(claim)?,
            }),
            Operation::Extend(claim, _) => named(store.extend(claim)?),
            Operation::Look(claim) => named(store.look(claim, Mode::Exclusive)?),
            Operation::Raise(claim, number) => named(Reply::new(store.raise(claim, *number)?)),
            Operation::Release(claim, options) => named(Reply::new(match options.raise_to {
                Some(number) => store.fence_release(claim, number),
                None => store.release(claim),
            })),
            Operation::Refresh { key, entry, locks, choice } => {
                CallReply::Refreshed(store.queue_refresh(key, entry, locks, *choice)?)
            }
            Operation::Leave { key, entry, also } => {
                CallReply::Waiters(store.queue_leave(key, entry, also.as_ref())?)
            }
            Operation::Watch { key, entry } => {
                let watched = keys::watched(key, entry.as_ref());
                CallReply::Watched(store.get(&watched).is_some())
            }
            Operation::Inspect { key } => CallReply::Sighted(store.inspect(key)?),
            Operation::Revoke { key, how } => CallReply::Sighted(store.revoke(key, how)?),
            Operation::Describe => {
                let mut told = describe(&server, names_server);
                told.quarantine_left = store.quarantine_left(Duration::MAX);
                if let Some((is_known, max_ttl)) = store.epoch(&server) {
                    (told.is_known_to_guard, told.guard_max_ttl) = (is_known, Some(max_ttl));
                }
                CallReply::Described(told.into())
            }
            Operation::ServerId if server.hides => return Err(no_info()),
            Operation::ServerId => CallReply::ServerId(Some(server.id)),
            _ => return Err(BackendError::unsupported("the node does not know this operation")),
        })
    }

    /// Whether others wait, if the operation asks and the node keeps wait queues.
    fn waiters(&self, operation: &Operation) -> Result<Waiters, BackendError> {
        let (keys, mode) = match operation {
            Operation::Acquire(claim, options) if options.asks => (claim.keys(), Mode::Shared),
            Operation::Release(_, ReleaseOptions { asks: Some(keys), .. }) => {
                (&**keys, Mode::Exclusive)
            }
            _ => return Ok(Waiters::Unknown),
        };
        for (at, key) in keys.iter().enumerate() {
            if self.store.has_waiters(key, mode)? {
                return Ok(Waiters::For(at));
            }
        }
        Ok(Waiters::Nobody)
    }

    /// What the server says about itself.
    fn server(&self) -> Server {
        let age = self.store.now.saturating_duration_since(self.started);
        let mut id = Arc::clone(&self.server_id);
        // The other of two servers, in step with no pattern of requests.
        if matches!(self.fault, Some(Fault::Flapping)) && self.executed.count_ones() % 2 == 1 {
            id = format!("{id}b").into();
        }
        Server {
            id,
            promotion: Arc::clone(&self.promotion),
            uptime: Duration::from_secs(age.as_secs() + u64::from(age.subsec_nanos() > 0)),
            evicts: matches!(self.fault, Some(Fault::Evicting)),
            hides: matches!(self.fault, Some(Fault::NoInfo)),
        }
    }

    pub(super) fn observe(&self, observed: Observed<'_>) {
        if let Some(observer) = &self.observer {
            observer(observed);
        }
    }
}

/// A server's description of itself. Nothing of a disk: a test decides what a restart keeps.
fn describe(server: &Server, names_server: bool) -> Description {
    let mut told = Description::default();
    if server.hides {
        told.lacks = Capabilities::GUARD | Capabilities::SERVER_ID;
        told.errors.push(no_info());
        return told;
    }
    told.version = Some(concat!("quorate-memory ", env!("CARGO_PKG_VERSION")).into());
    told.server_id = names_server.then(|| Arc::clone(&server.id));
    told.is_replica = Some(false);
    told.max_memory = Some(u64::from(server.evicts) << 30);
    told.eviction = Some(if server.evicts { "allkeys-lru" } else { "noeviction" }.into());
    told.uptime = Some(server.uptime);
    told
}
