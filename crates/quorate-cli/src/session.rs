//! What `run` and `lock` have in common: a manager, the signals that end the wait for a lock, and
//! warnings: one line for each node that fails, and for each renewal that does, with the reason.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use quorate::error::{Answer, Of};
use quorate::operators::NodeReadiness;
use quorate::{BackendErrorKind, Lease, LockGuard, LockManager, LockRequest};
use tokio::time::{Instant, sleep};

use crate::args::{Common, Held};
use crate::exit::{Failure, PERMANENT};
use crate::nodes::{CLOSE, open};
use crate::signals::Signals;
use crate::{line, say};

/// How often the slower nodes are looked at, which asks no node.
const SOON: Duration = Duration::from_millis(1);

/// At least so long the slower nodes are waited for.
const LEAST: Duration = Duration::from_millis(100);

/// At most so long the slower nodes are waited for.
const MOST: Duration = Duration::from_millis(500);

/// A manager that holds one lock.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) manager: LockManager,
    pub(crate) signals: Signals,
    /// Prints no warnings.
    pub(crate) is_quiet: bool,
    is_verbose: bool,
    /// The nodes that fail. Each is named once, and once more if it is another one's server.
    named: BTreeSet<(String, bool)>,
    was_at_risk: bool,
}

impl Session {
    pub(crate) fn open(common: &Common, held: &Held) -> Result<Self, Failure> {
        let manager = open(common, Some(held))?;
        let (signals, named, was_at_risk) = (Signals::new(), BTreeSet::new(), false);
        let (is_quiet, is_verbose) = (common.quiet, common.verbose);
        Ok(Self { manager, signals, is_quiet, is_verbose, named, was_at_risk })
    }

    /// Waits for the lock, or for no holder without a `wait`. A signal ends the wait. Then, and
    /// after an error, [`close`](Self::close) waits for the release of the locks (X3).
    pub(crate) async fn acquire(
        &mut self,
        request: LockRequest,
        names: &[String],
        wait: Option<Duration>,
    ) -> Result<LockGuard, Failure> {
        let request = match wait {
            Some(wait) => request.timeout(wait),
            None => request.no_wait(),
        };
        let acquired = async {
            let begun = Instant::now();
            let guard = request.await?;
            await_slower_nodes(&self.manager, begun.elapsed()).await?;
            Ok(guard)
        };
        tokio::select! {
            biased;
            failure = self.signals.end() => Err(failure),
            acquired = acquired => acquired,
            never = line::show(&self.manager, names, wait) => match never {},
        }
    }

    /// Prints a warning.
    pub(crate) fn warn(&self, text: impl Display) {
        if !self.is_quiet {
            say::line(text);
        }
    }

    /// Prints what happens to the lock, where that is wanted.
    pub(crate) fn note(&self, text: impl Display) {
        if self.is_verbose {
            say::line(text);
        }
    }

    /// Warns of each node that fails and did not before. Asks no node.
    pub(crate) fn look(&mut self) {
        for node in self.manager.readiness().nodes() {
            let Some(why) = &node.failure else {
                self.named.retain(|(name, _)| **name != *node.name);
                continue;
            };
            if self.named.insert((node.name.to_string(), is_twin(why))) {
                self.warn(format!("{} does not vote: {why}", node.name));
            }
        }
    }

    /// Warns once for each time that a renewal has failed.
    pub(crate) fn look_at_risk(&mut self, lease: &Lease) {
        let is_at_risk = lease.is_at_risk();
        if is_at_risk && !self.was_at_risk {
            let why = lease.failed_extension().map(|why| why.to_string());
            let why = why.unwrap_or_else(|| "it came too late".to_owned());
            let (of, left) = (Of(lease.keys()), lease.remaining());
            self.warn(format!(
                "{of}a renewal has failed, and {left:.1?} of the lease are left: {why}"
            ));
        }
        self.was_at_risk = is_at_risk;
    }

    /// Waits until the nodes have all messages, and warns of nodes that fail.
    pub(crate) async fn close(mut self, result: &Result<u8, Failure>) {
        let report = self.manager.close(CLOSE).await;
        if result.is_ok() {
            self.look();
        }
        self.note(report);
    }
}

/// Waits for the nodes whose votes the lock did not need, as long as the acquire `took`. Refuses
/// one server under two addresses, which has voted twice (Q6).
async fn await_slower_nodes(manager: &LockManager, took: Duration) -> Result<(), Failure> {
    let until = Instant::now() + took.clamp(LEAST, MOST);
    let is_open = |node: &NodeReadiness| node.last_answer.is_none() && node.failure.is_none();
    while manager.readiness().nodes().iter().any(is_open) && Instant::now() < until {
        sleep(SOON).await;
    }
    for node in manager.readiness().nodes() {
        if let Some(why) = node.failure.as_ref().filter(|why| is_twin(why)) {
            return Err(Failure::new(PERMANENT, format!("{}: {why}", node.name)));
        }
    }
    Ok(())
}

/// Whether a node is the same server as another one, which nothing heals.
fn is_twin(why: &Answer) -> bool {
    matches!(why, Answer::Failed(error) if error.kind() == BackendErrorKind::Identity)
}
