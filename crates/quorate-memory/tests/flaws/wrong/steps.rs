//! What a wrong backend does to the right node behind it.

use std::time::Duration;

use quorate_core::backend::{AcquireOptions, Claim, FenceHint, LockBackend as _, Reply, Ttl};
use quorate_core::resource::Key;
use quorate_core::{BackendError, FencingToken, RestartGuard};
use quorate_memory::Value;

use super::Wrong;
use crate::list::Flaw;

impl Wrong {
    pub(super) fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// The keys of a claim that hold its token, a key that another token holds, and the free ones.
    pub(super) fn sorted<'a>(
        &self,
        claim: &'a Claim,
    ) -> (Vec<&'a Key>, Vec<&'a Key>, Vec<&'a Key>) {
        let token = Value::String(claim.token().as_bytes().to_vec());
        let (held, free): (Vec<_>, Vec<_>) =
            claim.keys().iter().partition(|key| self.node.get(key.as_bytes()).is_some());
        let is_ours = |key: &&Key| self.node.get(key.as_bytes()).as_ref() == Some(&token);
        let (ours, theirs) = held.into_iter().partition(is_ours);
        (ours, theirs, free)
    }

    pub(super) fn expire(&self, keys: &[&Key]) {
        keys.iter().for_each(|key| self.node.expire(key.as_bytes()));
    }

    pub(super) async fn set(&self, claim: &Claim) -> Result<Reply, BackendError> {
        self.node.acquire(claim, AcquireOptions::default()).await
    }

    pub(super) fn numbers(&self) -> Vec<(Vec<u8>, Value)> {
        let keys = self.node.keys().into_iter().filter(|key| key.starts_with(b"quorate:fence:"));
        keys.filter_map(|key| Some((key.clone(), self.node.get(key)?))).collect()
    }

    pub(super) fn set_numbers(&self, number: FencingToken) {
        for (key, _) in self.numbers() {
            self.node.put(key, Value::String(number.to_string().into_bytes()));
        }
    }

    pub(super) fn claim_with(&self, claim: &Claim) -> Claim {
        let ttl = claim.ttl().as_duration();
        let ttl = match self.flaw {
            Flaw::CutsTtls => Duration::from_secs(ttl.as_secs().max(1)),
            Flaw::ExpiresLate => ttl + Duration::from_millis(30),
            _ => ttl,
        };
        claim.with_ttl(Ttl::try_from(ttl).unwrap())
    }

    pub(super) fn options(&self, claim: &Claim, mut options: AcquireOptions) -> AcquireOptions {
        let AcquireOptions { fencing, guard, .. } = &mut options;
        match self.flaw {
            Flaw::IgnoresItsLimits => *guard = None,
            Flaw::HintForNewNumbersOnly if self.numbers().is_empty() => {}
            Flaw::IgnoresTheHint | Flaw::HintForNewNumbersOnly => {
                *fencing = fencing.map(|_| FenceHint::default());
            }
            Flaw::NumbersEndWithTheLock if self.sorted(claim).2.len() == claim.keys().len() => {
                self.numbers().iter().for_each(|(key, _)| self.node.expire(key));
            }
            Flaw::CountsTheUptime => *guard = guard.map(|one| RestartGuard::soft(one.max_ttl())),
            Flaw::QuarantineIsShort => {
                *guard = guard.map(|one| RestartGuard::strict(one.max_ttl() / 4));
            }
            _ => {}
        }
        options
    }
}
