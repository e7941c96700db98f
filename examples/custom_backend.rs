//! A backend for a store of your own, and the proof that it keeps the contract.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate::backend::{
    AcquireOptions, Claim, ExtendOptions, Mode, ReleaseOptions, Reply, Vote, async_trait,
};
use quorate::memory::conformance::{self, Testbed};
use quorate::resource::Key;
use quorate::runtime::TokioRuntime;
use quorate::{BackendError, BackendErrorKind, LockBackend, LockManager, Runtime};

/// A node on a map. In its place stands the store that you have.
#[derive(Clone, Debug, Default)]
struct MapNode {
    entries: Arc<Mutex<HashMap<Vec<u8>, Entry>>>,
}

#[derive(Clone, Debug)]
struct Entry {
    /// `None` is a value that is no lock.
    token: Option<Vec<u8>>,
    end: Option<Instant>,
}

impl MapNode {
    fn entries(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Entry>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        entries.retain(|_, entry| entry.end.is_none_or(|end| now < end));
        entries
    }
}

/// Whether every key is ours; an error if one of them is no lock at all.
fn all_ours(entries: &HashMap<Vec<u8>, Entry>, claim: &Claim) -> Result<bool, BackendError> {
    let mut ours = true;
    for key in claim.keys() {
        match entries.get(key.as_bytes()).map(|entry| entry.token.as_deref()) {
            Some(None) => {
                return Err(BackendError::new(BackendErrorKind::WrongType, "that is no lock"));
            }
            Some(Some(token)) => ours &= token == claim.token().as_bytes(),
            None => ours = false,
        }
    }
    Ok(ours)
}

#[async_trait]
impl LockBackend for MapNode {
    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        let is_shared = claim.mode() == Mode::Shared;
        if is_shared || options.fencing.is_some() || options.guard.is_some() {
            return Err(BackendError::unsupported("a map keeps only keys"));
        }
        let mut entries = self.entries();
        let theirs = |key: &Key| {
            let held = entries.get(key.as_bytes()).and_then(|entry| entry.token.as_deref());
            held.is_some_and(|token| token != claim.token().as_bytes())
        };
        all_ours(&entries, claim)?;
        if claim.keys().iter().any(theirs) {
            return Ok(Reply::new(Vote::Refused));
        }
        let entry = Entry {
            token: Some(claim.token().as_bytes().to_vec()),
            end: Some(Instant::now() + claim.ttl().as_duration()),
        };
        for key in claim.keys() {
            // What is ours already may have been extended since.
            entries.entry(key.as_bytes().to_vec()).or_insert_with(|| entry.clone());
        }
        Ok(Reply::new(Vote::Granted))
    }

    async fn extend(&self, claim: &Claim, _: ExtendOptions) -> Result<Reply, BackendError> {
        let mut entries = self.entries();
        if !all_ours(&entries, claim)? {
            return Ok(Reply::new(Vote::Refused));
        }
        let end = Instant::now() + claim.ttl().as_duration();
        for key in claim.keys() {
            if let Some(entry) = entries.get_mut(key.as_bytes()) {
                // Never shortens.
                entry.end = entry.end.map(|before| before.max(end));
            }
        }
        Ok(Reply::new(Vote::Granted))
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        if options.raise_to.is_some() {
            return Err(BackendError::unsupported("a map keeps only keys"));
        }
        let mut entries = self.entries();
        let before = entries.len();
        for key in claim.keys() {
            let held = entries.get(key.as_bytes()).and_then(|entry| entry.token.as_deref());
            if held == Some(claim.token().as_bytes()) {
                entries.remove(key.as_bytes());
            }
        }
        let all = before - entries.len() == claim.keys().len();
        Ok(Reply::new(if all { Vote::Granted } else { Vote::Refused }))
    }
}

/// What the conformance suite does behind the backend's back.
#[async_trait]
impl Testbed for MapNode {
    fn backend(&self) -> Arc<dyn LockBackend> {
        Arc::new(self.clone())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(TokioRuntime::new())
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.entries().get(key)?.token.clone()
    }

    async fn time_left(&self, key: &[u8]) -> Option<Duration> {
        Some(self.entries().get(key)?.end?.saturating_duration_since(Instant::now()))
    }

    async fn expire(&self, key: &[u8]) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.end = Some(Instant::now());
        }
    }

    async fn put_list(&self, key: &[u8]) {
        self.entries().insert(key.to_vec(), Entry { token: None, end: None });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for case in conformance::backend(&MapNode::default()).await? {
        println!("ok: {case}");
    }
    let nodes = [MapNode::default(), MapNode::default(), MapNode::default()];
    let manager = LockManager::builder(nodes).build()?;
    quorate_examples::tell(&manager).await
}
