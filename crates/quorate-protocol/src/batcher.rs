//! One task per node and purpose: it makes one connection after the other, and sends what is queued
//! as pipelines.
//!
//! [`Batcher::begin`] queues a call. The task connects at the first call, takes what is queued, at
//! most 64 calls (32 for a [single node](Limits::of_nodes)), and hands it to the client by one poll
//! of [`Connection::send`]. Tasks that can run go first, once before each pipeline. The task of the
//! batcher answers the calls when the replies are there. At most four pipelines are in flight. If
//! only one were allowed, the undo would wait in the queue until a slow node had answered the
//! acquire, and would be lost if the program ended (C8).
//!
//! # One script for many
//!
//! The plain releases of a pipeline are one script of at most 64 keys and 64 KiB of names, with an
//! answer for each, and so are the plain extensions. *Plain* is a call of an exclusive lock; its
//! release has no fencing number and asks no gate. If a script fails as a whole, or answers nil for
//! a call, what it has left open is sent alone. So are releases of one key where the server has a
//! compare-and-delete, extensions before Redis 7, and a command of one call.
//!
//! `CLIENT CACHING YES` in front of an extension or a look makes the server track its keys. It
//! tracks no others, unless the user may not choose.
//!
//! # Order
//!
//! The first commands of calls reach the node in the order of the begins, over all connections.
//! Only a call that joins a script passes others, none of which has one of its keys (C3, H6). A
//! second command (see `operation`) leaves in front of the queue. A command that was in flight when
//! its connection ended is never sent again, and an acquire that was refused neither (C3, C6).
//!
//! # What a failure means
//!
//! - *Not sent*: refused at the begin, since the queue of acquires is full or the task backs off;
//!   or still queued when no connection could be made, when a connection ended without any reply,
//!   or when the runtime ended.
//! - *Lost*: handed to the client before the connection or the runtime ended, even if no reply ever
//!   came.
//!
//! What is queued when a connection with replies ends leaves over the next one, in order.
//!
//! While it backs off after a failed connect, the task refuses calls with the reason of that
//! failure.

mod queue;
mod serving;
mod shared;
mod sharing;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use quorate_core::backend::{Call, NotSent};
use quorate_core::runtime::Runtime;
use quorate_core::{BackendError, BackendErrorKind};
use tokio::task::unconstrained;
use tokio::time::sleep;

use crate::connection::Dial;
use crate::value::Push;

use self::serving::Serving;

pub(crate) use self::shared::{Batcher, Way};
pub use self::shared::{Limits, Settings};

impl<D: Dial> Batcher<D> {
    /// Queues a call.
    pub(crate) fn begin(self: &Arc<Self>, call: Call) -> Result<(), NotSent> {
        if !self.queue.push(call)? {
            let running = Running(Arc::clone(self));
            // Where there is no runtime, the task is dropped at once and refuses what is queued. A
            // task that had spent its budget would be stopped before the hand-over.
            self.way.runtime.spawn(Box::pin(unconstrained(run(running))));
        }
        Ok(())
    }

    /// Ends the connection: no call is begun any more.
    pub(crate) fn end(&self) {
        self.queue.abandon();
    }
}

/// Lives as long as the task, and answers what is queued if the task is dropped with its runtime.
struct Running<D: Dial>(Arc<Batcher<D>>);

impl<D: Dial> Drop for Running<D> {
    fn drop(&mut self) {
        let why = BackendError::new(BackendErrorKind::Connection, "the runtime has ended");
        self.0.queue.end_task(&why);
        self.0.tracking.handle_push(&Push::ConnectionLost);
    }
}

async fn run<D: Dial>(running: Running<D>) {
    let (shared, mut failures) = (&*running.0, 0);
    shared.report_ended_runtime();
    while shared.has_work(true).await {
        let Err(error) = connect_and_serve(shared).await else {
            failures = 0;
            continue;
        };
        shared.queue.back_off(&error);
        sleep(shared.back_off(failures)).await;
        failures += 1;
        shared.queue.end_back_off();
    }
}

/// Serves one connection until it has ended.
async fn connect_and_serve<D: Dial>(shared: &Batcher<D>) -> Result<(), BackendError> {
    let (connection, features) =
        match select(pin!(shared.connect()), pin!(shared.has_work(false))).await {
            Either::Left((connected, _)) => connected?,
            Either::Right(_) => return Ok(()),
        };
    let served = {
        let mut serving = Serving::new(shared, &connection, features);
        poll_fn(|context| serving.poll(context)).await
    };
    drop(connection);
    shared.tracking.handle_push(&Push::ConnectionLost);
    served
}
