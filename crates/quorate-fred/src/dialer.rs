//! Who connects, and when: one attempt at a time, and less and less often where they fail.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fred::types::RespVersion;
use fred::types::config::{Blocking, Config, PerformanceConfig};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use quorate_core::BackendError;
use quorate_core::protocol::Reply;
use quorate_core::runtime::TokioContext;
use tokio::runtime::Handle;

use crate::addresses;
use crate::carrier::Carried;
use crate::error;
use crate::frame::Command;
use crate::link::{Link, dial};
use crate::lobby::{Lobby, Porter};

/// How long a failed attempt answers for the node: at first so short that one which was started again
/// is back before a client notices, and for twice as long after each that fails. A node that turns
/// clients away, since it has too many perhaps, is not helped by a hundred attempts a second of each.
const FAILURE_HOLDS: Duration = Duration::from_millis(10);
const FAILURE_HOLDS_AT_MOST: Duration = Duration::from_millis(320);

/// Connects when there is need, one attempt at a time.
pub(crate) struct Dialer {
    config: Config,
    performance: PerformanceConfig,
    timeout: Duration,
    tokio: TokioContext,
    latest: Mutex<Option<Dialling>>,
    /// Attempts that failed since a node has answered.
    failures: Arc<AtomicU32>,
    /// Why the last of them failed.
    reason: Arc<Mutex<Option<BackendError>>>,
}

/// An attempt to connect, under way or over, and who waits for it.
struct Dialling {
    attempt: Attempt,
    lobby: Arc<Lobby>,
    /// When the next attempt is due, if this leads to a connection on which the node answers nothing.
    until: Instant,
}

pub(crate) type Attempt = Shared<BoxFuture<'static, Result<Arc<Link>, Failure>>>;

#[derive(Clone)]
pub(crate) struct Failure {
    pub(crate) error: BackendError,
    /// When the next attempt is due.
    until: Instant,
}

impl Dialer {
    pub(crate) fn new(mut config: Config, timeout: Duration, tokio: TokioContext) -> Self {
        // Without a policy, `false` means: never even try.
        config.fail_fast = true;
        config.blocking = Blocking::Block;
        let performance = PerformanceConfig::default();
        let (latest, failures, reason) = (Mutex::default(), Arc::default(), Arc::default());
        Self { config, performance, timeout, tokio, latest, failures, reason }
    }

    /// For connections on which the node tells of changes.
    pub(crate) fn for_watches(mut config: Config, timeout: Duration, tokio: TokioContext) -> Self {
        config.version = RespVersion::RESP3;
        // One script may delete many keys at once.
        let performance =
            PerformanceConfig { broadcast_channel_capacity: 256, ..PerformanceConfig::default() };
        Self { performance, ..Self::new(config, timeout, tokio) }
    }

    /// How long an attempt takes at the most.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Uses `tokio` from the next call on.
    pub(crate) fn lend(&mut self, tokio: TokioContext) {
        self.tokio = tokio;
    }

    /// Sends a command once and waits for the reply as long as the connection lives.
    ///
    /// Only what makes a connection needs a runtime: not what goes over one.
    pub(crate) async fn call(&self, command: Command) -> Result<Reply, BackendError> {
        self.linked().await?.call(command).await
    }

    /// Which server the node is. All who ask at the same time are told the same answer.
    pub(crate) async fn server_id(&self) -> Result<Option<String>, BackendError> {
        self.linked().await?.identity().await
    }

    async fn linked(&self) -> Result<Arc<Link>, BackendError> {
        match self.link() {
            Some(link) => Ok(link),
            None => self.tokio.enter(self.connected().boxed()).await,
        }
    }

    /// Why there is no connection, if there is none.
    pub(crate) fn obstacle(&self) -> Option<BackendError> {
        self.link().is_none().then(|| lock(&self.reason).clone().unwrap_or_else(error::not_yet))
    }

    /// Whether there is a connection on which a call would not be alone, or is about to be one.
    pub(crate) fn carries(&self) -> bool {
        let latest = self.latest();
        let Some(Dialling { attempt, lobby, .. }) = latest.as_ref() else { return false };
        lobby.is_open()
            || matches!(attempt.peek(), Some(Ok(link)) if link.is_usable() && link.has_company())
    }

    /// Carries a call on the connection that there is, or will be.
    pub(crate) fn carry(&self, carried: Carried) {
        let latest = self.latest();
        let dialling = latest.as_ref().map(|dialling| {
            let Dialling { attempt, lobby, .. } = dialling;
            (attempt.clone(), Arc::clone(lobby))
        });
        drop(latest);
        let Some((attempt, lobby)) = dialling else { return carried.fails(&error::ended()) };
        if let Err(carried) = lobby.enter(carried) {
            match attempt.peek() {
                Some(Ok(link)) => {
                    link.carry(carried).unwrap_or_else(|left| left.fails(&error::ended()))
                }
                Some(Err(failure)) => carried.fails(&failure.error),
                None => carried.fails(&error::ended()),
            }
        }
    }

    /// The connection, made if there is none.
    async fn connected(&self) -> Result<Arc<Link>, BackendError> {
        self.attempt()?.await.map_err(|failure| failure.error)
    }

    /// The connection that there is.
    fn link(&self) -> Option<Arc<Link>> {
        let latest = self.latest();
        let link = latest.as_ref()?.attempt.peek()?.as_ref().ok()?;
        link.is_usable().then(|| Arc::clone(link))
    }

    /// The attempt under way, or the connection that there is, or a new attempt.
    pub(crate) fn attempt(&self) -> Result<Attempt, BackendError> {
        let mut latest = self.latest();
        if let Some(Dialling { attempt, until, .. }) = latest.as_ref() {
            let still_good = match attempt.peek() {
                None => true,
                Some(Ok(link)) if link.is_usable() => true,
                // Who hangs up at once has turned us away: fred takes that for answers.
                Some(Ok(link)) if !link.has_answered() => Instant::now() < *until,
                Some(Ok(_)) => false,
                Some(Err(failure)) => Instant::now() < failure.until,
            };
            if still_good {
                return Ok(attempt.clone());
            }
            match attempt.peek() {
                Some(Ok(link)) if link.has_answered() => self.failures.store(0, Ordering::Relaxed),
                Some(Ok(_)) => drop(self.failures.fetch_add(1, Ordering::Relaxed)),
                // It has counted itself.
                Some(Err(_)) | None => {}
            }
        }
        // Only where not even quorate's own thread could be started.
        let runtime =
            Handle::try_current().map_err(|_| error::lost("there is no tokio runtime"))?;
        // One that breaks under the first call is replaced at once: only the second may be no accident.
        let earlier = self.failures.load(Ordering::Relaxed).checked_sub(1);
        let until = Instant::now() + earlier.map_or(Duration::ZERO, holds_after);
        let attempt = self.begin(&runtime).boxed().shared();
        let lobby = Arc::<Lobby>::default();
        let (seen, porter) = (attempt.clone(), Porter(Arc::clone(&lobby)));
        drop(runtime.spawn(async move { porter.let_go(seen.await) }));
        Ok(latest.insert(Dialling { attempt, lobby, until }).attempt.clone())
    }

    fn begin(&self, runtime: &Handle) -> impl Future<Output = Result<Arc<Link>, Failure>> + use<> {
        let (config, performance) = (self.config.clone(), self.performance.clone());
        let (timeout, runtime) = (self.timeout, runtime.clone());
        let (failures, last) = (Arc::clone(&self.failures), Arc::clone(&self.reason));
        async move {
            let dial = |config, timeout| dial(config, performance.clone(), timeout, &runtime);
            let looked_up = addresses::of(&config, &runtime);
            let reached =
                addresses::reach(config.clone(), timeout, runtime.clone(), dial, looked_up);
            let reached = reached.await;
            *lock(&last) = reached.as_ref().err().cloned();
            reached.map_err(|error| {
                let earlier = failures.fetch_add(1, Ordering::Relaxed);
                Failure { error, until: Instant::now() + holds_after(earlier) }
            })
        }
    }

    fn latest(&self) -> MutexGuard<'_, Option<Dialling>> {
        lock(&self.latest)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a failed attempt answers for the node, after so many `earlier` ones failed in a row.
fn holds_after(earlier: u32) -> Duration {
    FAILURE_HOLDS.saturating_mul(2u32.saturating_pow(earlier)).min(FAILURE_HOLDS_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_holds_for_longer_after_others_and_for_a_third_of_a_second_at_the_most() {
        let millis: Vec<_> = (0..7).map(|n| holds_after(n).as_millis()).collect();
        assert_eq!(millis, [10, 20, 40, 80, 160, 320, 320]);
        assert_eq!(holds_after(u32::MAX), FAILURE_HOLDS_AT_MOST);
    }
}
