//! Our own way to a node: one shared connection that a pool of size one keeps alive.
//!
//! The pool decides who dials and who waits for it. What it keeps is cloned and given back at
//! once, so a checkout lasts no longer than a look at the state. And nobody asks the pool before a
//! connection has failed, or refused a command: what was checked out last is used again.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use quorate_core::protocol::{Exchange, Reply, Watches, Wire};
use quorate_core::{BackendError, BackendErrorKind, Call, Key, Watched};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use crate::carrier::{Carried, Carrier, Trouble};
use crate::dial::Dial;
use crate::error;
use crate::keeper::{Keeper, Keeping, Link};
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
        let keeper = Keeper::new(dial);
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
        (!is_there).then(|| self.keeper.obstacle())
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

/// A connection, and what all who use it know of it.
pub(crate) struct Live {
    carrier: Carrier,
    /// Told of changes if the connection is one for watches.
    watches: Watches,
}

impl Live {
    pub(crate) fn new(connection: MultiplexedConnection, watches: Watches) -> Self {
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
    pub(crate) fn is_usable(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
