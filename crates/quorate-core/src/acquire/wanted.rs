//! A request, before and after it is checked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::fence::FenceHint;
use crate::algorithm::lease::Ttl;
use crate::attempt::AttemptOptions;
use crate::backend::{Capabilities, Claim};
use crate::cluster::Cluster;
use crate::error::{InvalidRequest, LockError};
use crate::resource::{InvalidResource, Key, Resources, Token};

/// The settings of a request, unchecked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    pub(crate) ttl: Option<Duration>,
    pub(crate) hold_limit: Option<Duration>,
    pub(crate) fencing: bool,
    pub(crate) is_renewed: bool,
    /// How long to wait; `None` for one round.
    pub(crate) timeout: Option<Duration>,
}

/// A request, checked.
pub(crate) struct Wanted {
    /// In sorted order.
    pub(crate) keys: Arc<[Key]>,
    pub(super) ttl: Ttl,
    wishes: Wishes,
}

impl Wanted {
    /// Checks a request. Nothing has been sent.
    pub(crate) fn new(
        cluster: &Cluster,
        resources: &Resources,
        mut wishes: Wishes,
    ) -> Result<Self, InvalidRequest> {
        let (config, prefix) = (&cluster.config, &cluster.config.key_prefix);
        let ttl = config.parse_ttl(wishes.ttl.unwrap_or(config.ttl))?;
        wishes.hold_limit = config.parse_hold_limit(wishes.hold_limit)?;
        let keys = resources.as_slice().iter().map(|name| Key::new(prefix, name));
        let mut keys: Vec<Key> = keys.collect();
        if keys.iter().any(|key| key.is_reserved(prefix)) {
            return Err(InvalidResource::Reserved.into());
        }
        keys.sort_unstable();
        match cluster.nodes.lacking(Capabilities::FENCING) {
            Some(node) if wishes.fencing => Err(InvalidRequest::Fencing { node: node.to_string() }),
            _ => Ok(Self { keys: keys.into(), ttl, wishes }),
        }
    }

    pub(super) const fn timeout(&self) -> Option<Duration> {
        self.wishes.timeout
    }

    /// A claim with a fresh token, for each attempt (C1).
    pub(super) fn claim(&self, cluster: &Cluster) -> Result<Claim, LockError> {
        let token = Token::draw(|bytes| cluster.runtime.fill_random(bytes))?;
        Ok(Claim::new(Arc::clone(&self.keys), token, self.ttl))
    }

    pub(super) fn options(
        &self,
        cluster: &Cluster,
        deadline: Option<Instant>,
    ) -> Result<AttemptOptions, LockError> {
        let Wishes { hold_limit, is_renewed, fencing, .. } = self.wishes;
        let mut options =
            AttemptOptions { deadline, hold_limit, is_renewed, ..AttemptOptions::default() };
        options.acquire.guard = cluster.config.restart_guard;
        if fencing {
            let source = cluster.config.fencing_hint.as_ref();
            let hint = source.map_or_else(|| cluster.runtime.unix_micros(), |source| (source.0)());
            let parsed = FenceHint::new(hint).ok_or(InvalidRequest::FencingHint { hint })?;
            options.acquire.fencing = Some(parsed);
        }
        Ok(options)
    }
}
