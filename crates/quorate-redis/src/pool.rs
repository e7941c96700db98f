//! Our own way to a node: one shared connection that a pool of size one keeps alive.
//!
//! The pool decides who dials and who waits for it. What it keeps is cloned and given back at
//! once, so a checkout lasts no longer than a look at the state. And nobody asks the pool before a
//! connection has failed, or refused a command: what was checked out last is used again.
//!
//! A pool that fails to connect tells none of those who wait for it: they hang until its timeout.
//! So for the pool connecting never fails. What it keeps is a connection, *or the reason why there
//! is none*, which it hands out until the next attempt is due.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bb8::{ManageConnection, Pool};
use futures_util::FutureExt;
use quorate_core::protocol::{Exchange, Reply, Watches, Wire};
use quorate_core::{BackendError, BackendErrorKind, Call, Key, Watched};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use crate::carrier::{Carried, Carrier, Trouble};
use crate::dial::Dial;
use crate::error;
use crate::line::packed;

/// One connection to a node, made when a call needs it and made again when it broke.
pub(crate) struct Lane {
    keeper: Keeper,
    pool: Mutex<Keeping>,
    /// What was checked out last.
    last: Mutex<Option<Arc<Live>>>,
}

impl Lane {
    /// Does no I/O, and needs no runtime.
    pub(crate) fn new(dial: Arc<Dial>) -> Self {
        let (failures, reason, patience) = (Arc::default(), Arc::default(), Arc::default());
        let keeper = Keeper { dial, failures, reason, patience };
        let pool = Mutex::new(keeper.keeping());
        Self { keeper, pool, last: Mutex::default() }
    }

    /// What was checked out last.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.last().clone()
    }

    /// Why there is no connection, if there is none.
    pub(crate) fn obstacle(&self) -> Option<BackendError> {
        let is_there = self.last().as_ref().is_some_and(|live| !live.carrier.is_broken());
        (!is_there).then(|| self.keeper.reason().clone().unwrap_or_else(error::not_yet))
    }

    /// Whether there is a connection on which a call would not be alone.
    pub(crate) fn carries(&self) -> bool {
        let last = self.last();
        let live = last.as_ref().filter(|live| !live.carrier.is_broken());
        live.is_some_and(|live| live.carrier.has_company())
    }

    /// Carries a call, on what was checked out last.
    pub(crate) fn carry(self: &Arc<Self>, call: Call, exchange: Exchange) {
        // If there is nothing any more, the call is dropped, which is an answer.
        if let Some(live) = self.live() {
            live.carrier.carry(Carried::new(call, exchange, Arc::downgrade(self)));
        }
    }

    /// Sends `command` once, on what the pool has or makes.
    pub(crate) async fn send_anew(&self, command: Cmd) -> Result<Value, BackendError> {
        self.checked_out().await?.send(command).await.map_err(Trouble::told)
    }

    /// Carries a call that has not left, on what the pool has or makes.
    pub(crate) async fn carry_anew(&self, carried: Carried) {
        match self.checked_out().await {
            Ok(live) => live.carrier.carry(carried),
            Err(error) => carried.fails(error),
        }
    }

    /// Looks at `key` and watches it, if this is a lane for watches.
    pub(crate) async fn look(&self, key: &Key) -> Result<Watched, BackendError> {
        let live = self.checked_out().await?;
        let seen = live.watches.look(Loan(Arc::clone(&live)), key).await;
        let seen = seen.inspect_err(|error| live.ends_with(error))?;
        let holder = seen.holder().cloned();
        let changed = async move {
            let told = seen.changed().await;
            told.inspect_err(|error| live.ends_with(error))
        };
        Ok(Watched::new(holder, changed))
    }

    async fn checked_out(&self) -> Result<Arc<Live>, BackendError> {
        let Keeping { pool, patience } = self.keeping();
        // bb8 panics in a runtime without timers.
        let Ok(got) = AssertUnwindSafe(pool.get()).catch_unwind().await else {
            return Err(BackendError::new(
                BackendErrorKind::Connection,
                "bb8 panicked while it connected: has the tokio runtime timers?",
            ));
        };
        match got {
            Ok(link) => {
                patience.ends();
                match &*link {
                    Link::Live(live) => {
                        *self.last() = Some(Arc::clone(live));
                        Ok(Arc::clone(live))
                    }
                    Link::Dead(dead) => Err(dead.reason.clone()),
                }
            }
            Err(_) => {
                let mut current = self.pool();
                if Arc::ptr_eq(&current.pool, &pool) {
                    *current = self.keeper.keeping();
                }
                Err(BackendError::new(
                    BackendErrorKind::Connection,
                    "the attempt to connect was abandoned",
                ))
            }
        }
    }

    /// The pool, or another one where the task that dialled was lost with the runtime that it ran on:
    /// the pool counts it as under way for ever. Callers may all give up sooner than the pool does.
    fn keeping(&self) -> Keeping {
        let mut current = self.pool();
        if current.patience.has_run_out(self.keeper.longest()) {
            *current = self.keeper.keeping();
        }
        current.patience.begins();
        current.clone()
    }

    fn last(&self) -> MutexGuard<'_, Option<Arc<Live>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Keeping> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool, and since when somebody waits for it.
#[derive(Clone)]
struct Keeping {
    pool: Arc<Pool<Keeper>>,
    patience: Arc<Patience>,
}

/// Since when the pool has been asked for what it has not got.
#[derive(Default)]
struct Patience(Mutex<Option<tokio::time::Instant>>);

impl Patience {
    /// Somebody asks. What began earlier goes on.
    fn begins(&self) {
        self.since().get_or_insert_with(tokio::time::Instant::now);
    }

    fn has_run_out(&self, longest: Duration) -> bool {
        self.since().is_some_and(|since| since.elapsed() > longest)
    }

    /// The pool has something.
    fn ends(&self) {
        *self.since() = None;
    }

    fn since(&self) -> MutexGuard<'_, Option<tokio::time::Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the pool of a lane keeps.
enum Link {
    Live(Arc<Live>),
    Dead(Dead),
}

/// A connection, and what all who use it know of it.
pub(crate) struct Live {
    carrier: Carrier,
    /// Told of changes if the connection is one for watches.
    watches: Watches,
}

impl Live {
    fn new(connection: MultiplexedConnection, watches: Watches) -> Self {
        let carrier = Carrier::start(connection);
        Self { carrier, watches }
    }

    /// After this, the next one dials again, if the connection was lost.
    fn ends_with(&self, error: &BackendError) {
        if error.kind() == BackendErrorKind::Connection {
            self.carrier.give_up();
        }
    }

    /// Sends `command` once, unless nothing more can be sent.
    pub(crate) fn send(&self, command: Cmd) -> impl Future<Output = Result<Value, Trouble>> {
        self.carrier.send(command)
    }

    /// Whether a command can be sent, as far as is known here. Waits for nothing.
    fn is_usable(&self) -> bool {
        !self.carrier.is_broken() && !self.carrier.is_closed()
    }
}

/// A connection of which somebody keeps hold.
struct Loan(Arc<Live>);

impl Wire for Loan {
    type Command = Cmd;

    fn pack(&self, command: &[&[u8]]) -> Cmd {
        packed(command)
    }

    async fn send(&self, command: Cmd) -> Result<Reply, BackendError> {
        error::reply(self.0.send(command).await.map_err(Trouble::told)?)
    }
}

struct Dead {
    reason: BackendError,
    /// When the next attempt is due.
    until: Instant,
}

#[derive(Clone)]
struct Keeper {
    dial: Arc<Dial>,
    /// Attempts that failed since the last that did not.
    failures: Arc<AtomicU32>,
    /// Why the last of them failed.
    reason: Arc<Mutex<Option<BackendError>>>,
    /// Of the pool that this is the manager of.
    patience: Arc<Patience>,
}

impl Keeper {
    /// A new pool.
    fn keeping(&self) -> Keeping {
        let patience = Arc::new(Patience::default());
        let keeper = Self { patience: Arc::clone(&patience), ..self.clone() };
        Keeping { pool: Arc::new(keeper.pool()), patience }
    }

    /// Longer than an attempt, whose own reason shall be told.
    fn longest(&self) -> Duration {
        self.dial.timeout().saturating_add(Duration::from_secs(1))
    }

    fn reason(&self) -> MutexGuard<'_, Option<BackendError>> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(self) -> Pool<Self> {
        Pool::builder()
            .max_size(1)
            .connection_timeout(self.longest())
            .retry_connection(false)
            // These two would need a runtime here and now.
            .idle_timeout(None)
            .max_lifetime(None)
            .test_on_check_out(true)
            .build_unchecked(self)
    }
}

/// The error of [`Keeper`]: what was kept is to be replaced.
#[derive(Debug)]
struct Stale;

impl ManageConnection for Keeper {
    type Connection = Link;
    type Error = Stale;

    async fn connect(&self) -> Result<Link, Stale> {
        let watches = Watches::new();
        let outcome = self.dial.attempt(&watches).await;
        // Who waited for it may be gone.
        self.patience.ends();
        Ok(match outcome {
            Ok(connection) => {
                self.failures.store(0, Ordering::Relaxed);
                *self.reason() = None;
                Link::Live(Arc::new(Live::new(connection, watches)))
            }
            Err(reason) => {
                let earlier = self.failures.fetch_add(1, Ordering::Relaxed);
                *self.reason() = Some(reason.clone());
                Link::Dead(Dead { reason, until: Instant::now() + pause_after(earlier) })
            }
        })
    }

    async fn is_valid(&self, link: &mut Link) -> Result<(), Stale> {
        let is_valid = match link {
            Link::Live(live) => live.is_usable(),
            Link::Dead(dead) => Instant::now() < dead.until,
        };
        if is_valid { Ok(()) } else { Err(Stale) }
    }

    /// Never: `is_valid` is asked before each use.
    fn has_broken(&self, _: &mut Link) -> bool {
        false
    }
}

/// How long a failure holds after `earlier` failures in a row.
fn pause_after(earlier: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);
    FIRST.saturating_mul(2u32.saturating_pow(earlier)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use futures_util::future::poll_immediate;
    use tokio::runtime::{Builder, Runtime};
    use tokio::time::timeout;

    use super::*;

    fn current_thread() -> Runtime {
        Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
    }

    #[test]
    fn a_dial_that_ended_with_its_runtime_is_made_again_though_nobody_waits_for_long() {
        let address = "redis+unix:///there/is/none";
        let client = redis::Client::open(address).unwrap();
        let dial = Dial::new(client.get_connection_info(), Duration::from_secs(1));
        let lane = Lane::new(Arc::new(dial));
        let first = current_thread();
        let asked = first.block_on(async { poll_immediate(lane.checked_out()).await.is_some() });
        assert!(!asked, "it is dialled by a task");
        drop(first);
        let told = current_thread().block_on(async {
            for _ in 0..10 {
                let asked = timeout(Duration::from_millis(500), lane.checked_out()).await;
                if let Ok(answer) = asked {
                    return answer.err().map(|error| error.to_string());
                }
            }
            None
        });
        let told = told.expect("nobody dials any more");
        assert!(!told.contains("abandoned"), "{told}");
    }

    #[test]
    fn the_pause_between_attempts_doubles_up_to_a_second() {
        let millis: Vec<_> = (0..7).map(|n| pause_after(n).as_millis()).collect();
        assert_eq!(millis, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(pause_after(u32::MAX), Duration::from_secs(1));
    }
}
