//! What a request asks for, checked.

use std::sync::Arc;
use std::time::Duration;

use crate::algorithm::lease::Ttl;
use crate::algorithm::quorum::NodeId;
use crate::cluster::Cluster;
use crate::error::LockError;
use crate::observe;
use crate::resource::{InvalidResource, Key, Resources};

/// The keys, and how they are to be locked.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) keys: Arc<[Key]>,
    pub(crate) ttl: Ttl,
    pub(super) hold_limit: Option<Duration>,
    pub(super) fenced: bool,
}

impl Wanted {
    pub(crate) fn new(
        cluster: &Cluster,
        resources: Result<Resources, InvalidResource>,
        ttl: Option<Duration>,
        hold_limit: Option<Duration>,
        fenced: bool,
    ) -> Result<Self, LockError> {
        let checked = resources.map_err(LockError::from);
        let checked = checked.and_then(|all| Self::check(cluster, &all, ttl, hold_limit, fenced));
        checked.inspect_err(observe::invalid)
    }

    fn check(
        cluster: &Cluster,
        resources: &Resources,
        ttl: Option<Duration>,
        hold_limit: Option<Duration>,
        fenced: bool,
    ) -> Result<Self, LockError> {
        let config = &cluster.config;
        let ttl = ttl.map_or(Ok(config.ttl), |ttl| config.parse_ttl(ttl))?;
        let hold_limit = hold_limit.or(config.hold_limit);
        config
            .check_hold_limit(hold_limit, ttl)
            .map_err(|(limit, least)| LockError::HoldLimit { limit, least })?;
        let keys = resources.as_slice().iter().map(|name| Key::new(&config.prefix, name)).collect();
        let unable = |node: &NodeId| cluster.node(*node).fencer().is_none();
        if let Some(node) = cluster.count().ids().find(unable).filter(|_| fenced) {
            return Err(LockError::NotFenced { node: cluster.name(node).to_string() });
        }
        Ok(Self { keys, ttl, hold_limit, fenced })
    }
}
