//! A backend with the three required methods is complete.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quorate_core::backend::{
    AcquireOptions, Claim, ExtendOptions, LockBackend, ReleaseOptions, Reply, Vote,
};
use quorate_core::{BackendError, Runtime};
use quorate_memory::Sim;
use quorate_memory::conformance::{self, Testbed};

/// Each key with its token and its end.
type Entries = HashMap<Vec<u8>, (Vec<u8>, Instant)>;

/// A node on a map.
#[derive(Clone, Debug)]
struct MapNode {
    sim: Sim,
    entries: Arc<Mutex<Entries>>,
}

impl MapNode {
    fn with<T>(&self, act: impl FnOnce(&mut Entries, Instant) -> T) -> T {
        let (mut entries, now) = (self.entries.lock().unwrap(), self.sim.now());
        entries.retain(|_, (_, end)| now < *end);
        act(&mut entries, now)
    }
}

fn vote(is_granted: bool) -> Vote {
    if is_granted { Vote::Granted } else { Vote::Refused }
}

fn check(is_asked: bool) -> Result<(), BackendError> {
    if is_asked { Err(BackendError::unsupported("this node has plain locks")) } else { Ok(()) }
}

#[async_trait]
impl LockBackend for MapNode {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        let is_asked = options.fencing.is_some() || options.guard.is_some();
        check(is_asked)?;
        Ok(Reply::new(self.with(|entries, now| {
            let token = claim.token().as_bytes();
            let is_theirs = |key: &[u8]| entries.get(key).is_some_and(|(held, _)| held != token);
            if claim.keys().iter().any(|key| is_theirs(key.as_bytes())) {
                return Vote::Refused;
            }
            let end = now + claim.ttl().as_duration();
            for key in claim.keys() {
                entries.entry(key.as_bytes().to_vec()).or_insert_with(|| (token.to_vec(), end));
            }
            Vote::Granted
        })))
    }

    async fn extend(&self, claim: &Claim, _: ExtendOptions) -> Result<Reply, BackendError> {
        Ok(Reply::new(self.with(|entries, now| {
            let (token, end) = (claim.token().as_bytes(), now + claim.ttl().as_duration());
            let is_ours = |key: &[u8]| entries.get(key).is_some_and(|(held, _)| held == token);
            let ours: Vec<_> = claim.keys().iter().filter(|key| is_ours(key.as_bytes())).collect();
            let is_all = ours.len() == claim.keys().len();
            if is_all {
                for key in ours {
                    entries.entry(key.as_bytes().to_vec()).and_modify(|(_, at)| *at = end.max(*at));
                }
            }
            vote(is_all)
        })))
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        check(options.raise_to.is_some())?;
        Ok(Reply::new(self.with(|entries, _| {
            let (before, token) = (entries.len(), claim.token().as_bytes());
            let keys: Vec<&[u8]> = claim.keys().iter().map(|key| key.as_bytes()).collect();
            entries.retain(|key, (held, _)| !keys.contains(&key.as_slice()) || held != token);
            vote(before - entries.len() == keys.len())
        })))
    }
}

#[async_trait]
impl Testbed for MapNode {
    fn backend(&self) -> Arc<dyn LockBackend> {
        Arc::new(self.clone())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(self.sim.clone())
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.with(|entries, _| Some(entries.get(key)?.0.clone()))
    }

    async fn time_left(&self, key: &[u8]) -> Option<Duration> {
        self.with(|entries, now| Some(entries.get(key)?.1 - now))
    }

    async fn expire(&self, key: &[u8]) {
        self.with(|entries, _| drop(entries.remove(key)));
    }

    fn has_other_values(&self) -> bool {
        false
    }
}

#[test]
fn three_methods_are_enough() {
    let sim = Sim::new(1);
    let node = MapNode { sim: sim.clone(), entries: Arc::default() };
    let passed = sim.block_on(conformance::backend(&node)).unwrap();
    assert!(passed.contains(&"several keys are acquired together or not at all"), "{passed:?}");
}
