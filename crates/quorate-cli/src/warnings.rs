//! Warnings: one line for each node that fails, and for each renewal that does, with the reason.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use quorate::error::Answer;
use quorate::{BackendErrorKind, Lease, LockManager, NodeReadiness};
use tokio::time::{Instant, sleep};

use crate::exit::Failure;
use crate::say;

/// How often the nodes are looked at, which asks none of them.
const LOOK: Duration = Duration::from_secs(1);

/// How often a lease at risk is looked at: a risk that passed and came back meanwhile is one.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How often the slower nodes are looked at.
const SOON: Duration = Duration::from_millis(1);

/// At least and at most so long the slower nodes are waited for.
const SLOWER: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];

/// The failing nodes of a manager. Each is told once, and once more if it is another one's server.
#[derive(Debug)]
pub(crate) struct Warnings<'a> {
    manager: &'a LockManager,
    pub(crate) is_quiet: bool,
    told: BTreeSet<(String, bool)>,
}

impl<'a> Warnings<'a> {
    pub(crate) const fn new(manager: &'a LockManager, is_quiet: bool) -> Self {
        Self { manager, is_quiet, told: BTreeSet::new() }
    }

    /// Warns of each node that fails and did not before.
    pub(crate) fn look(&mut self) {
        for node in self.manager.nodes().nodes() {
            let Some(why) = node.failure() else {
                self.told.retain(|(name, _)| name != node.name());
                continue;
            };
            if self.told.insert((node.name().to_owned(), is_twin(why))) && !self.is_quiet {
                say::line(format!("{} does not vote: {why}", node.name()));
            }
        }
    }

    /// Warns while the lease is held.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn watch(&mut self, lease: &Lease) -> Infallible {
        let is_quiet = self.is_quiet;
        let nodes = async {
            loop {
                self.look();
                sleep(LOOK).await;
            }
        };
        let renewals = async {
            if !is_quiet {
                warn(lease).await;
            }
        };
        tokio::join!(nodes, renewals).0
    }
}

/// Warns once for each time that the lease is at risk. Ends with the lease.
async fn warn(lease: &Lease) {
    while let Ok(left) = lease.at_risk().await {
        let why = lease.failed_extension();
        let why = why.map_or_else(|| "it came too late".to_owned(), |why| why.to_string());
        say::line(format!("a renewal has failed, and {left:.1?} of the lease are left: {why}"));
        while lease.is_at_risk() {
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// Whether a node is the same server as another one, which nothing heals.
fn is_twin(why: &Answer) -> bool {
    matches!(why, Answer::Failed(error) if error.kind() == BackendErrorKind::Identity)
}

/// Waits for the nodes whose votes the lock did not need, as long as the acquire `took`. Refuses one server under two
/// addresses, which has voted twice (Q6).
///
/// # Cancel safety
///
/// The future can be dropped at any time.
pub(crate) async fn await_slower_nodes(
    manager: &LockManager,
    took: Duration,
) -> Result<(), Failure> {
    let [least, most] = SLOWER;
    let until = Instant::now() + took.clamp(least, most);
    let is_open = |node: &NodeReadiness| node.last_answer().is_none() && node.failure().is_none();
    while manager.nodes().nodes().iter().any(is_open) && Instant::now() < until {
        sleep(SOON).await;
    }
    for node in manager.nodes().nodes() {
        if let Some(why) = node.failure().filter(|why| is_twin(why)) {
            return Err(Failure::permanent(format!("{}: {why}", node.name())));
        }
    }
    Ok(())
}
