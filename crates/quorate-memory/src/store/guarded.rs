//! Acquires under the restart guard: the epoch of the data, and the quarantine.

use std::time::{Duration, Instant};

use quorate_core::protocol::quarantine::{EPOCH, KEY};
use quorate_core::{
    BackendError, BackendErrorKind, Claim, FenceHint, FenceVote, Guarded, GuardedVote,
    RestartGuard, Vote,
};

use super::{Flaw, Store, Value, wrong_type};
use crate::node::process::Run;

impl Store {
    pub(crate) fn guarded_acquire(
        &mut self,
        claim: &Claim,
        hint: Option<FenceHint>,
        guard: RestartGuard,
        now: Instant,
        run: &Run<'_>,
    ) -> Result<Guarded, BackendError> {
        let begins = self.quarantine_left(guard, now).is_none();
        let before = self.enter_epoch(guard, now, run)?;
        let left = self.quarantine_left(guard, now);
        let begins = begins && self.has(Flaw::GrantsBeforeTheQuarantine);
        let hides = self.has(Flaw::QuarantineHidesItsLocks);
        let vote = match left.filter(|_| !begins) {
            Some(_) if self.has(Flaw::QuarantineRefuses) => GuardedVote::Refused,
            Some(left) if hides || !self.is_ours(claim, now)? => GuardedVote::Quarantined { left },
            _ => match hint {
                None => match self.acquire(claim, now)? {
                    Vote::Granted => GuardedVote::Granted(None),
                    Vote::Refused => GuardedVote::Refused,
                },
                Some(hint) => match self.fence_acquire(claim, hint, now)? {
                    FenceVote::Granted(number) => GuardedVote::Granted(Some(number)),
                    FenceVote::Refused => GuardedVote::Refused,
                },
            },
        };
        let guarded = Guarded::new(vote, run.id());
        Ok(match before {
            Some(before) => guarded.after(before),
            None => guarded,
        })
    }

    /// Begins a quarantine, unless this run is known to have kept the data. The run that is known to
    /// have, if it is another.
    fn enter_epoch(
        &mut self,
        guard: RestartGuard,
        now: Instant,
        run: &Run<'_>,
    ) -> Result<Option<String>, BackendError> {
        if run.hides() {
            return Err(no_info());
        }
        let (id, max_ttl) = (run.id(), guard.max_ttl());
        let found = match self.get(EPOCH.as_bytes(), now) {
            None => None,
            Some(Value::List) => return Err(wrong_type()),
            Some(Value::String(epoch)) => Some(parse(epoch).ok_or_else(no_epoch)?),
        };
        let (wait, before) = match found {
            None if self.has(Flaw::CountsTheUptime) => (max_ttl.saturating_sub(run.uptime()), None),
            None => (guard.quarantine_of_unknown(run.uptime()), None),
            Some((_, other)) if other != max_ttl => return Err(another_max_ttl(other, max_ttl)),
            Some((epoch, _)) if epoch == id || self.has(Flaw::AcceptsAnyEpoch) => return Ok(None),
            Some((epoch, _)) => (max_ttl, Some(epoch)),
        };
        if run.evicts() {
            let text = "the node may evict keys: its maxmemory-policy is allkeys-lru";
            return Err(BackendError::new(BackendErrorKind::Evicting, text));
        }
        let wait = if self.has(Flaw::QuarantineIsShort) { wait / 4 } else { wait };
        let key = KEY.as_bytes();
        let left = match self.get(key, now) {
            None => Duration::ZERO,
            // Without an end an operator keeps the node out.
            Some(_) => self.time_left(key, now).unwrap_or(Duration::MAX),
        };
        if wait > left {
            self.put(key, Value::String(id.clone().into_bytes()), Some(now + wait));
        }
        let epoch = format!("{id}:{}", max_ttl.as_millis());
        self.put(EPOCH.as_bytes(), Value::String(epoch.into_bytes()), None);
        Ok(before)
    }

    fn quarantine_left(&self, guard: RestartGuard, now: Instant) -> Option<Duration> {
        self.get(KEY.as_bytes(), now)?;
        Some(self.time_left(KEY.as_bytes(), now).unwrap_or_else(|| guard.max_ttl()))
    }

    fn is_ours(&self, claim: &Claim, now: Instant) -> Result<bool, BackendError> {
        let mut all = true;
        for key in claim.keys() {
            match self.get(key.as_bytes(), now) {
                Some(Value::String(held)) if held == claim.token().as_bytes() => {}
                Some(Value::String(_)) => return Ok(false),
                Some(Value::List) => return Err(wrong_type()),
                None => all = false,
            }
        }
        Ok(all)
    }
}

/// The error of a node that does not tell who it is.
pub(crate) fn no_info() -> BackendError {
    BackendError::from_reply("NOPERM this user has no permissions to run the 'info' command")
}

fn no_epoch() -> BackendError {
    BackendError::new(BackendErrorKind::MaxTtl, format!("no epoch at {EPOCH}"))
}

fn another_max_ttl(other: Duration, ours: Duration) -> BackendError {
    let (other, ours) = (other.as_millis(), ours.as_millis());
    let text = format!("its max_ttl is {other} ms, not {ours} ms");
    BackendError::new(BackendErrorKind::MaxTtl, text)
}

fn parse(epoch: &[u8]) -> Option<(String, Duration)> {
    let (id, millis) = std::str::from_utf8(epoch).ok()?.rsplit_once(':')?;
    Some((id.to_owned(), Duration::from_millis(millis.parse().ok()?)))
}
