//! What `run` and `lock` have in common: a manager, the signals that end the wait for a lock, and
//! warnings.

use std::time::Duration;

use quorate::{CloseReport, LockGuard, LockManager, LockRequest};
use tokio::time::Instant;

use crate::args::{Common, Held};
use crate::exit::Failure;
use crate::line;
use crate::nodes::{CLOSE, open};
use crate::signals::Signals;
use crate::warnings::Warnings;

/// A manager that holds one lock.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) manager: LockManager,
    pub(crate) signals: Signals,
    pub(crate) warnings: Warnings,
}

impl Session {
    pub(crate) fn open(common: &Common, held: &Held) -> Result<Self, Failure> {
        let manager = open(common, held.ttl(), held.label.as_deref())?;
        let warnings = Warnings::new(manager.clone(), common.quiet);
        Ok(Self { manager, signals: Signals::new()?, warnings })
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
            self.warnings.await_slower_nodes(begun.elapsed()).await?;
            Ok(guard)
        };
        tokio::select! {
            biased;
            failure = self.signals.end() => Err(failure),
            acquired = acquired => acquired,
            never = line::show(&self.manager, names, wait) => match never {},
        }
    }

    /// Waits until the nodes have all messages, and warns of nodes that fail.
    pub(crate) async fn close(mut self, result: &Result<u8, Failure>) -> CloseReport {
        let report = self.manager.close(CLOSE).await;
        if result.is_ok() {
            self.warnings.look();
        }
        report
    }
}
