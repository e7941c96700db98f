//! Our own way to a node: one shared connection that a pool of size one keeps alive.
//!
//! The pool decides who dials and who waits for it. What it keeps is cloned and given back at
//! once, so a checkout lasts no longer than a look at the state. And while the connection answers,
//! nobody asks the pool: what was checked out last is used again.
//!
//! A pool that fails to connect tells none of those who wait for it: they hang until its timeout.
//! So for the pool connecting never fails. What it keeps is a connection, *or the reason why there
//! is none*, which it hands out until the next attempt is due.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bb8::{ManageConnection, Pool};
use futures_util::FutureExt;
use quorate_core::protocol::{Reply, Watches, Wire};
use quorate_core::{BackendError, BackendErrorKind, Key};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::task::JoinHandle;

use crate::dial::Dial;
use crate::error;
use crate::line::{Line, packed};

/// One connection to a node, made when a call needs it and made again when it broke.
pub(crate) struct Lane {
    keeper: Keeper,
    pool: Mutex<Arc<Pool<Keeper>>>,
    /// What was checked out last.
    last: Mutex<Option<Live>>,
}

impl Lane {
    /// Does no I/O, and needs no runtime.
    pub(crate) fn new(dial: Arc<Dial>) -> Self {
        let keeper = Keeper { dial, failures: Arc::default() };
        let pool = Mutex::new(Arc::new(keeper.pool()));
        Self { keeper, pool, last: Mutex::default() }
    }

    /// Waits until `key` may be free, if this is a lane for watches.
    pub(crate) async fn watch(&self, key: &Key) -> Result<(), BackendError> {
        let live = self.connection().await?;
        let state = Arc::clone(&live.state);
        let told = state.watches.watch(live, key).await;
        if let Err(error) = &told
            && error.kind() == BackendErrorKind::Connection
        {
            // The next one dials again, however lately this connection answered.
            state.broken.store(true, Ordering::Relaxed);
        }
        told
    }

    async fn connection(&self) -> Result<Live, BackendError> {
        if let Some(live) = self.last().as_ref().and_then(Live::warm) {
            return Ok(live);
        }
        let pool = Arc::clone(&self.pool());
        match pool.get().await {
            Ok(link) => match &*link {
                Link::Live(live) => {
                    let live = live.taken_at(live.state.age());
                    *self.last() = Some(live.clone());
                    Ok(live)
                }
                Link::Dead(dead) => Err(dead.reason.clone()),
            },
            // The task that dialled was lost with the runtime that it ran on. The pool counts it
            // as under way for ever.
            Err(_) => {
                let mut current = self.pool();
                if Arc::ptr_eq(&current, &pool) {
                    *current = Arc::new(self.keeper.pool());
                }
                Err(BackendError::new(
                    BackendErrorKind::Connection,
                    "the attempt to connect was abandoned",
                ))
            }
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<Live>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Arc<Pool<Keeper>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Line for Lane {
    async fn send(&self, command: &Cmd) -> Result<Value, BackendError> {
        self.connection().await?.send(command).await
    }
}

/// For how long a connection that answered is taken to be there, in microseconds.
const WARM: u64 = 20_000;

/// What the pool of a lane keeps.
enum Link {
    Live(Live),
    Dead(Dead),
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    state: Arc<State>,
    /// When it was taken to send a command, in microseconds after it was made.
    taken_at: u64,
}

/// What all who use a connection know of it.
struct State {
    broken: AtomicBool,
    /// When the latest command was sent that it has answered, in microseconds after `made`; zero if
    /// it has answered none.
    answered: AtomicU64,
    made: Instant,
    runtime: Sentinel,
    /// Told of changes if the connection is one for watches.
    watches: Watches,
}

impl State {
    /// Microseconds since it was made, at least one.
    fn age(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }
}

/// A task that ends with the runtime in which the connection was made, and with it the task in which
/// the connection lives: tokio does not tell otherwise.
struct Sentinel(JoinHandle<()>);

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Live {
    fn new(connection: MultiplexedConnection, watches: Watches) -> Self {
        let state = State {
            broken: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            made: Instant::now(),
            runtime: Sentinel(tokio::spawn(pending())),
            watches,
        };
        Self { connection, state: Arc::new(state), taken_at: 0 }
    }

    async fn send(mut self, command: &Cmd) -> Result<Value, BackendError> {
        let answer = self.connection.send_packed_command(command).await;
        match answer {
            Ok(value) => {
                self.state.answered.fetch_max(self.taken_at, Ordering::Relaxed);
                Ok(value)
            }
            Err(error) => {
                if error::ends_connection(&error) {
                    self.state.broken.store(true, Ordering::Relaxed);
                }
                Err(error::of_redis(&error))
            }
        }
    }

    /// Another use of it, if it was used and answered a moment ago, so that it needs no closer look.
    fn warm(&self) -> Option<Self> {
        let state = &self.state;
        if state.broken.load(Ordering::Relaxed) || state.runtime.0.is_finished() {
            return None;
        }
        let (answered, now) = (state.answered.load(Ordering::Relaxed), state.age());
        (answered > 0 && now < answered + WARM).then(|| self.taken_at(now))
    }

    fn taken_at(&self, taken_at: u64) -> Self {
        Self { connection: self.connection.clone(), state: Arc::clone(&self.state), taken_at }
    }

    /// Whether a command can be sent, as far as is known here. Waits for nothing.
    fn is_usable(&self) -> bool {
        !self.state.broken.load(Ordering::Relaxed) && !self.is_closed()
    }

    /// A connection that the node closed is told by its refusal to queue a command, and by nothing
    /// else. One that is open queues it, and then skips it, since nobody waits for the answer; or
    /// it is quicker, one time in ten thousand, and a `PING` goes out that harms nobody.
    fn is_closed(&self) -> bool {
        let command = Cmd::ping();
        let mut connection = self.connection.clone();
        let sent = connection.send_packed_command(&command).now_or_never();
        matches!(sent, Some(Err(_)))
    }
}

impl Wire for Live {
    async fn send(&self, command: &[&[u8]]) -> Result<Reply, BackendError> {
        error::reply(self.clone().send(&packed(command)).await?)
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
}

impl Keeper {
    fn pool(&self) -> Pool<Self> {
        // Longer than an attempt, whose own reason shall be told.
        let patience = self.dial.timeout().saturating_add(Duration::from_secs(1));
        Pool::builder()
            .max_size(1)
            .connection_timeout(patience)
            .retry_connection(false)
            // These two would need a runtime here and now.
            .idle_timeout(None)
            .max_lifetime(None)
            .test_on_check_out(true)
            .build_unchecked(self.clone())
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
        Ok(match self.dial.attempt(&watches).await {
            Ok(connection) => {
                self.failures.store(0, Ordering::Relaxed);
                Link::Live(Live::new(connection, watches))
            }
            Err(reason) => {
                let earlier = self.failures.fetch_add(1, Ordering::Relaxed);
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
    use super::*;

    #[test]
    fn the_pause_between_attempts_doubles_up_to_a_second() {
        let millis: Vec<_> = (0..7).map(|n| pause_after(n).as_millis()).collect();
        assert_eq!(millis, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(pause_after(u32::MAX), Duration::from_secs(1));
    }
}
