//! Warnings: one line for each node that fails, and for each renewal that does, with the reason.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use quorate::error::{Answer, Of};
use quorate::{BackendErrorKind, Lease, LockManager, operators::NodeReadiness};
use tokio::time::{Instant, sleep};

use crate::exit::{Failure, PERMANENT};
use crate::say;

/// How often the nodes and the lease are looked at, which asks no node.
const LOOK: Duration = Duration::from_millis(100);

/// How often the slower nodes are looked at.
const SOON: Duration = Duration::from_millis(1);

/// At least so long the slower nodes are waited for.
const LEAST: Duration = Duration::from_millis(100);

/// At most so long the slower nodes are waited for.
const MOST: Duration = Duration::from_millis(500);

/// The failing nodes of a manager. Each is reported once, and once more if it is another one's
/// server.
#[derive(Debug)]
pub(crate) struct Warnings {
    manager: LockManager,
    pub(crate) is_quiet: bool,
    told: BTreeSet<(String, bool)>,
}

impl Warnings {
    pub(crate) const fn new(manager: LockManager, is_quiet: bool) -> Self {
        Self { manager, is_quiet, told: BTreeSet::new() }
    }

    /// Warns of each node that fails and did not before.
    pub(crate) fn look(&mut self) {
        for node in self.manager.readiness().nodes() {
            let Some(why) = &node.failure else {
                self.told.retain(|(name, _)| **name != *node.name);
                continue;
            };
            if self.told.insert((node.name.to_string(), is_twin(why))) && !self.is_quiet {
                say::line(format!("{} does not vote: {why}", node.name));
            }
        }
    }

    /// Waits for the nodes whose votes the lock did not need, as long as the acquire `took`.
    /// Refuses one server under two addresses, which has voted twice (Q6).
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn await_slower_nodes(&self, took: Duration) -> Result<(), Failure> {
        let until = Instant::now() + took.clamp(LEAST, MOST);
        let is_open = |node: &NodeReadiness| node.last_answer.is_none() && node.failure.is_none();
        while self.manager.readiness().nodes().iter().any(is_open) && Instant::now() < until {
            sleep(SOON).await;
        }
        for node in self.manager.readiness().nodes() {
            if let Some(why) = node.failure.as_ref().filter(|why| is_twin(why)) {
                return Err(Failure::new(PERMANENT, format!("{}: {why}", node.name)));
            }
        }
        Ok(())
    }

    /// Warns while the lease is held: once for each time that a renewal has failed, and once if the
    /// lock is revoked.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn watch(&mut self, lease: &Lease) -> Infallible {
        let (mut was_at_risk, mut is_revoked) = (false, false);
        loop {
            self.look();
            let revoked = tokio::select! {
                biased;
                // An error is the end of the lease: `run` hears of it.
                Ok(by) = lease.revoked(), if !is_revoked => Some(by),
                () = sleep(LOOK) => None,
            };
            is_revoked |= revoked.is_some();
            let is_at_risk = lease.is_at_risk();
            let told = match revoked {
                Some(by) => {
                    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
                    Some((format!("revoked{by}"), String::new()))
                }
                // Nothing is renewed any more.
                None if is_revoked || !is_at_risk || was_at_risk => None,
                None => {
                    let why = lease.failed_extension().map(|why| why.to_string());
                    let why = why.unwrap_or_else(|| "it came too late".to_owned());
                    Some(("a renewal has failed".to_owned(), format!(": {why}")))
                }
            };
            was_at_risk = is_at_risk;
            if let Some((what, why)) = told.filter(|_| !self.is_quiet) {
                let (left, of) = (lease.remaining(), Of::new(lease.keys()));
                say::line(format!("{of}{what}, and {left:.1?} of the lease are left{why}"));
            }
        }
    }
}

/// Whether a node is the same server as another one, which nothing heals.
fn is_twin(why: &Answer) -> bool {
    matches!(why, Answer::Failed(error) if error.kind() == BackendErrorKind::Identity)
}
