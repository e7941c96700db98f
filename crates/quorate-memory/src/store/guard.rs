//! The restart guard: which server's data the node has, and its quarantine.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::backend::{Claim, FenceHint, Reply};
use quorate_core::{BackendError, BackendErrorKind, RestartGuard};

use super::entries::{Store, Value};
use super::lock::Found;
use crate::keys::{EPOCH, QUARANTINE};

/// What a server says about itself (`INFO`).
pub(crate) struct Server {
    /// Its `run_id`.
    pub(crate) id: Arc<str>,
    /// Its `master_replid2` and `second_repl_offset`.
    pub(crate) promotion: Arc<str>,
    /// In whole seconds, rounded up.
    pub(crate) uptime: Duration,
    /// Whether it may evict keys.
    pub(crate) evicts: bool,
    /// Whether the user may not ask.
    pub(crate) hides: bool,
}

impl Server {
    /// Its epoch.
    fn known(&self) -> String {
        format!("{}:{}", self.id, self.promotion)
    }
}

impl Store {
    /// Acquires the keys unless the node is quarantined, and raises their number if there is a
    /// hint.
    pub(crate) fn guarded_acquire(
        &mut self,
        claim: &Claim,
        hint: Option<FenceHint>,
        guard: RestartGuard,
        server: &Server,
    ) -> Result<Reply, BackendError> {
        self.enter_epoch(guard, server)?;
        if let Some(left) = self.quarantine_left(guard.max_ttl())
            && !matches!(self.found(claim)?, Found::Ours(ours) if ours == claim.keys().len())
        {
            let text = format!(
                "quarantined for another {left:.1?}: it restarted, is new or lost its data"
            );
            return Err(BackendError::new(BackendErrorKind::Quarantined, text));
        }
        match hint {
            None => self.acquire_all(claim),
            Some(hint) => self.fence_acquire(claim, hint),
        }
    }

    /// Begins a quarantine, unless the data is known to be this server's.
    fn enter_epoch(&mut self, guard: RestartGuard, server: &Server) -> Result<(), BackendError> {
        if server.hides {
            return Err(no_info());
        }
        let max_ttl = guard.max_ttl();
        let known = server.known();
        let found = match self.string(EPOCH.as_bytes())? {
            None => None,
            Some(epoch) => {
                Some(parse(epoch).ok_or_else(|| max_ttl_error(&format!("no epoch at {EPOCH}")))?)
            }
        };
        let wait = match found {
            None => guard.quarantine_of_unknown(server.uptime),
            Some((_, other)) if other != max_ttl => {
                let (other, ours) = (other.as_millis(), max_ttl.as_millis());
                let text = format!("its max_ttl is {other} ms, not {ours} ms");
                return Err(max_ttl_error(&text));
            }
            Some((epoch, _)) if epoch == known => return Ok(()),
            Some(_) => max_ttl,
        };
        if server.evicts {
            let text = "QUORATEEVICTS the node may evict keys: its maxmemory-policy is allkeys-lru";
            return Err(BackendError::new(BackendErrorKind::Evicting, text));
        }
        // An operator who sets a key without an expiry keeps the node out.
        if wait > self.quarantine_left(Duration::MAX).unwrap_or_default() {
            let id = Value::String(server.id.as_bytes().to_vec());
            self.put(QUARANTINE.as_bytes(), id, Some(self.now + wait));
        }
        let epoch = format!("{known}:{}", max_ttl.as_millis());
        self.put(EPOCH.as_bytes(), Value::String(epoch.into_bytes()), None);
        Ok(())
    }

    /// Whether the epoch is that of this server, and its `max_ttl`; `None` without an epoch.
    pub(crate) fn epoch(&self, server: &Server) -> Option<(bool, Duration)> {
        let (epoch, max_ttl) = parse(self.string(EPOCH.as_bytes()).ok()??)?;
        Some((epoch == server.known(), max_ttl))
    }

    /// How long the quarantine lasts: `without_expiry` if its key has none.
    pub(crate) fn quarantine_left(&self, without_expiry: Duration) -> Option<Duration> {
        let key = QUARANTINE.as_bytes();
        self.get(key)?;
        Some(self.time_left(key).unwrap_or(without_expiry))
    }
}

/// The error of a node whose user may not run `INFO`.
pub(crate) fn no_info() -> BackendError {
    let text = "NOPERM this user has no permissions to run the 'info' command";
    BackendError::new(BackendErrorKind::Permission, text)
}

fn max_ttl_error(text: &str) -> BackendError {
    BackendError::new(BackendErrorKind::MaxTtl, format!("QUORATEMAXTTL {text}"))
}

fn parse(epoch: &[u8]) -> Option<(String, Duration)> {
    let (id, millis) = std::str::from_utf8(epoch).ok()?.rsplit_once(':')?;
    Some((id.to_owned(), Duration::from_millis(millis.parse().ok()?)))
}
