//! A request, before and after it is checked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::attempt::Settings;
use crate::algorithm::fence::FenceHint;
use crate::algorithm::lease::{InvalidTtl, Ttl, saturating_add};
use crate::attempt::settings;
use crate::cluster::Cluster;
use crate::config::LEAST_RENEWED;
use crate::error::{InvalidRequest, LockError};
use crate::resource::{InvalidLabel, InvalidResource, Key, Label, Resources, Token};
use crate::seam::backend::{AcquireOptions, Capabilities, Claim, Mode};
use crate::turns::tickets::NameSet;

/// The settings of a request, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestSettings {
    pub(crate) mode: Mode,
    pub(crate) ttl: Option<Duration>,
    pub(crate) hold_limit: Option<Duration>,
    pub(crate) fencing: bool,
    pub(crate) is_renewed: bool,
    /// How long it waits for a holder: not at all if zero, for ever if `None`.
    pub(crate) wait_limit: Option<Duration>,
    /// Waits only while the lock is held: a round without a quorum is the last one.
    pub(crate) needs_quorum: bool,
    pub(crate) label: Option<Result<Label, InvalidLabel>>,
    /// One of the names is wanted.
    pub(crate) is_choice: bool,
}

/// A request, checked.
pub(crate) struct Request {
    /// In sorted order.
    pub(crate) keys: Arc<[Key]>,
    /// If one of several keys is wanted.
    pub(super) set: Option<Arc<NameSet>>,
    pub(super) ttl: Ttl,
    pub(super) label: Option<Label>,
    pub(super) settings: RequestSettings,
}

impl Request {
    /// Checks a request. Nothing has been sent.
    pub(crate) fn new(
        cluster: &Cluster,
        resources: &Resources,
        mut settings: RequestSettings,
    ) -> Result<Self, InvalidRequest> {
        let (config, prefix) = (&cluster.config, &cluster.config.key_prefix);
        let wanted = settings.ttl.unwrap_or(config.ttl);
        let ttl = config.parse_ttl(wanted)?;
        if settings.is_renewed && wanted < LEAST_RENEWED {
            return Err(InvalidTtl::TooShortToRenew { ttl: wanted, least: LEAST_RENEWED }.into());
        }
        settings.hold_limit = settings.hold_limit.or(config.hold_limit);
        if settings.hold_limit == Some(Duration::ZERO) {
            return Err(InvalidRequest::HoldLimit);
        }
        let keys = resources.as_slice().iter().map(|name| Key::new(prefix, name));
        let mut keys: Arc<[Key]> = keys.collect();
        if keys.iter().any(|key| key.is_reserved(prefix)) {
            return Err(InvalidResource::Reserved.into());
        }
        Arc::make_mut(&mut keys).sort_unstable();
        let label = settings.label.take().transpose()?.or_else(|| config.label.clone());
        let lacking = |ability| cluster.nodes.lacking(ability).map(ToString::to_string);
        if settings.mode == Mode::Shared {
            if settings.fencing {
                return Err(InvalidRequest::Shared { what: "fenced" });
            } else if settings.needs_quorum {
                return Err(InvalidRequest::Shared { what: "led under" });
            } else if let Some(node) = lacking(Capabilities::SHARED) {
                return Err(InvalidRequest::Readers { node });
            }
        }
        if let Some(node) = lacking(Capabilities::FENCING).filter(|_| settings.fencing) {
            return Err(InvalidRequest::Fencing { node });
        }
        let set = settings.is_choice.then(|| NameSet::new(&keys)).flatten();
        Ok(Self { keys, set, ttl, label, settings })
    }

    /// Whether the request waits for a holder.
    pub(super) fn waits(&self) -> bool {
        self.settings.wait_limit != Some(Duration::ZERO)
    }

    /// When the request ends without the lock; `None` for never. One that waits for no holder has
    /// two node timeouts for all its rounds, and the time that a first connect may take.
    pub(super) fn deadline(&self, cluster: &Cluster, start: Instant) -> Option<Instant> {
        let config = &cluster.config;
        let timeout = match self.settings.wait_limit? {
            Duration::ZERO => {
                let rounds = config.node_timeout(self.ttl).saturating_mul(2);
                rounds.saturating_add(cluster.nodes.connecting().1)
            }
            timeout => timeout,
        };
        Some(saturating_add(start, timeout))
    }

    /// A claim of `keys` with a fresh token, for each attempt (C1).
    pub(super) fn claim(&self, cluster: &Cluster, keys: Arc<[Key]>) -> Result<Claim, LockError> {
        let mut token = Token::draw(|bytes| cluster.runtime.fill_random(bytes))?;
        if let Some(label) = &self.label {
            token = token.labelled(label);
        }
        Ok(Claim::new(keys, token, self.ttl).with_mode(self.settings.mode))
    }

    /// What an attempt asks for, besides the claim.
    pub(super) fn options(
        &self,
        cluster: &Cluster,
        claim: &Claim,
    ) -> Result<(Settings, AcquireOptions), LockError> {
        let mut settings = settings(cluster, claim);
        settings.hold_limit = self.settings.hold_limit;
        settings.fencing = self.settings.fencing;
        let guard = cluster.config.restart_guard;
        let mut acquire = AcquireOptions { guard, ..AcquireOptions::default() };
        if self.settings.fencing {
            let hint = cluster.runtime.unix_micros();
            let parsed = FenceHint::new(hint).ok_or(InvalidRequest::FencingHint { hint })?;
            acquire.fencing = Some(parsed);
        }
        Ok((settings, acquire))
    }
}
