//! A request, before and after it is checked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::algorithm::fence::FenceHint;
use crate::algorithm::lease::{Ttl, saturating_add};
use crate::attempt::AttemptOptions;
use crate::cluster::Cluster;
use crate::error::{InvalidRequest, LockError};
use crate::resource::{InvalidLabel, InvalidResource, Key, Label, Resources, Token};
use crate::seam::backend::{Capabilities, Claim, Mode};
use crate::turns::tickets::NameSet;

/// The settings of a request, unchecked.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) mode: Mode,
    pub(crate) ttl: Option<Duration>,
    pub(crate) hold_limit: Option<Duration>,
    pub(crate) fencing: bool,
    pub(crate) is_renewed: bool,
    pub(crate) patience: Patience,
    /// Waits only while the lock is held: a round without a quorum is the last one.
    pub(crate) needs_quorum: bool,
    pub(crate) label: Option<Result<Label, InvalidLabel>>,
    /// One of the names is wanted.
    pub(crate) is_choice: bool,
}

/// How long a request waits for a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    For(Duration),
    Forever,
}

impl Patience {
    pub(crate) const fn of(timeout: Duration) -> Self {
        if timeout.is_zero() { Self::None } else { Self::For(timeout) }
    }
}

impl Wishes {
    pub(crate) const fn new(patience: Patience) -> Self {
        Self {
            mode: Mode::Exclusive,
            ttl: None,
            hold_limit: None,
            fencing: false,
            is_renewed: false,
            patience,
            needs_quorum: false,
            label: None,
            is_choice: false,
        }
    }
}

/// The loop of a request.
pub(super) enum Kind<'a> {
    /// All keys, and it waits for a holder.
    Plain,
    /// All keys, and it waits for no holder.
    Trying,
    /// One of several keys.
    AnyOf(&'a Arc<NameSet>),
    /// All keys, together with other readers.
    Shared,
}

/// A request, checked.
pub(crate) struct Wanted {
    /// In sorted order.
    pub(crate) keys: Arc<[Key]>,
    /// If one of several keys is wanted.
    set: Option<Arc<NameSet>>,
    pub(super) ttl: Ttl,
    label: Option<Label>,
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
        let ttl = wishes.ttl.unwrap_or(config.ttl);
        let ttl = match wishes.is_renewed {
            true => config.parse_renewed_ttl(ttl)?,
            false => config.parse_ttl(ttl)?,
        };
        wishes.hold_limit = config.parse_hold_limit(wishes.hold_limit)?;
        let keys = resources.as_slice().iter().map(|name| Key::new(prefix, name));
        let mut keys: Arc<[Key]> = keys.collect();
        if keys.iter().any(|key| key.is_reserved(prefix)) {
            return Err(InvalidResource::Reserved.into());
        }
        Arc::make_mut(&mut keys).sort_unstable();
        let label = wishes.label.take().transpose()?.or_else(|| config.label.clone());
        let lacking = |ability| cluster.nodes.lacking(ability).map(ToString::to_string);
        if wishes.mode == Mode::Shared {
            if wishes.fencing {
                return Err(InvalidRequest::Shared { what: "fenced" });
            } else if wishes.needs_quorum {
                return Err(InvalidRequest::Shared { what: "led under" });
            } else if let Some(node) = lacking(Capabilities::SHARED) {
                return Err(InvalidRequest::Readers { node });
            }
        }
        match lacking(Capabilities::FENCING).filter(|_| wishes.fencing) {
            Some(node) => Err(InvalidRequest::Fencing { node }),
            None => {
                let set = wishes.is_choice.then(|| NameSet::new(&keys)).flatten();
                Ok(Self { keys, set, ttl, label, wishes })
            }
        }
    }

    pub(super) fn kind(&self) -> Kind<'_> {
        match (self.wishes.mode, &self.set) {
            (Mode::Shared, _) => Kind::Shared,
            (Mode::Exclusive, Some(set)) => Kind::AnyOf(set),
            (Mode::Exclusive, None) if self.waits() => Kind::Plain,
            (Mode::Exclusive, None) => Kind::Trying,
        }
    }

    /// Whether the request waits for a holder.
    pub(super) fn waits(&self) -> bool {
        self.wishes.patience != Patience::None
    }

    /// When the request ends without the lock; `None` for never. One that waits for no holder has two node timeouts for
    /// all its rounds.
    pub(super) fn deadline(&self, cluster: &Cluster, start: Instant) -> Option<Instant> {
        let config = &cluster.config;
        let timeout = match self.wishes.patience {
            Patience::None => config.node_timeout(self.ttl).saturating_mul(2),
            Patience::For(timeout) => timeout,
            Patience::Forever => return None,
        };
        Some(saturating_add(start, timeout))
    }

    pub(super) fn label(&self) -> Option<Label> {
        self.label.clone()
    }

    pub(super) const fn needs_quorum(&self) -> bool {
        self.wishes.needs_quorum
    }

    /// A claim of `keys` with a fresh token, for each attempt (C1).
    pub(super) fn claim(&self, cluster: &Cluster, keys: Arc<[Key]>) -> Result<Claim, LockError> {
        let mut token = Token::draw(|bytes| cluster.runtime.fill_random(bytes))?;
        if let Some(label) = &self.label {
            token = token.labelled(label);
        }
        Ok(Claim::new(keys, token, self.ttl).with_mode(self.wishes.mode))
    }

    pub(super) const fn is_renewed(&self) -> bool {
        self.wishes.is_renewed
    }

    pub(super) fn options(
        &self,
        cluster: &Cluster,
        deadline: Option<Instant>,
        haste: Duration,
    ) -> Result<AttemptOptions, LockError> {
        let Wishes { hold_limit, fencing, .. } = self.wishes;
        let mut options =
            AttemptOptions { deadline, hold_limit, haste, ..AttemptOptions::default() };
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
