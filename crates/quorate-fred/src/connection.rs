//! One fred client, whose one connection is never replaced.
//!
//! A client without a reconnect policy drives its connection in one task, which ends with the
//! connection. fred still calls such a client connected, and a command that is sent then waits for
//! ever. So each pipeline is awaited together with the end of that task.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};

use fred::clients::Client;
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, EventInterface, TrackingInterface};
use fred::types::RespVersion;
use fred::types::client::Invalidation;
use fred::types::config::{Config, ConnectionConfig};
use futures_util::future::{BoxFuture, Either, FutureExt, Shared, maybe_done, select};
use quorate_core::BackendError;
use quorate_protocol::{Connection, Parts, Push, Value};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{AbortHandle, JoinHandle};

use crate::command::exchange;
use crate::error::{of_client, of_first_reply};

/// Why a connection has ended, once it has.
type End = Shared<BoxFuture<'static, Error>>;

/// A connection of fred.
pub struct FredConnection {
    client: Client,
    /// The task that drives the connection.
    driver: AbortHandle,
    listener: AbortHandle,
    end: End,
    /// fred fails the calls before its task ends. Without this, the next call would be lost.
    has_failed: AtomicBool,
    /// A command was answered. fred reports a connection that has ended by then, too.
    has_replied: AtomicBool,
}

impl FredConnection {
    /// Connects once.
    pub(crate) async fn open(
        config: Config,
        connection: ConnectionConfig,
        push: Arc<impl Fn(Push) + Send + Sync + 'static>,
    ) -> Result<Self, BackendError> {
        let client = Client::new(config, None, Some(connection), None);
        let mut connected = client.reconnect_rx();
        let pushes = client.invalidation_rx();
        let task = client.connect();
        let driver = task.abort_handle();
        let end = end_of(task).boxed().shared();
        let listener = tokio::spawn(listen(pushes, end.clone(), push)).abort_handle();
        // Made here, so that the task ends if this future is dropped.
        let (has_failed, has_replied) = (AtomicBool::new(false), AtomicBool::new(false));
        let this = Self { client, driver, listener, end, has_failed, has_replied };
        match select(pin!(connected.recv()), this.end.clone()).await {
            Either::Left((Ok(_), _)) => Ok(this),
            Either::Left((Err(_), end)) => Err(of_first_reply(&end.await)),
            Either::Right((error, _)) => Err(of_first_reply(&error)),
        }
    }

    /// Why a command has no reply. The connection is of no use after that.
    async fn reason(&self, error: &Error) -> BackendError {
        self.has_failed.store(true, Ordering::Relaxed);
        // The ending task found the command in its queue.
        let end = if error.is_canceled() { Some(self.end.clone().await) } else { None };
        let error = end.as_ref().unwrap_or(error);
        if self.has_replied.load(Ordering::Relaxed) {
            of_client(error)
        } else {
            of_first_reply(error)
        }
    }
}

impl fmt::Debug for FredConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_closed = self.is_closed();
        f.debug_struct("FredConnection").field("is_closed", &is_closed).finish_non_exhaustive()
    }
}

impl Connection for FredConnection {
    type Command = Parts;

    async fn send(&self, commands: Vec<Parts>) -> Vec<Result<Value, BackendError>> {
        let exchanges = commands.into_iter().map(|command| exchange(&self.client, command));
        let answers = in_order(exchanges, self.end.clone()).await;
        let mut replies = Vec::with_capacity(answers.len());
        for answer in answers {
            let answer = answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Canceled, "")));
            replies.push(match answer {
                Ok(reply) => {
                    self.has_replied.store(true, Ordering::Relaxed);
                    Ok(reply)
                }
                Err(error) => Err(self.reason(&error).await),
            });
        }
        replies
    }

    fn is_closed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed) || self.driver.is_finished()
    }

    fn receives_pushes(&self) -> bool {
        self.client.protocol_version() == RespVersion::RESP3
    }
}

impl Drop for FredConnection {
    fn drop(&mut self) {
        self.driver.abort();
        self.listener.abort();
    }
}

/// Polls each future once, in order, and then awaits them one after the other, until `end`. `None`:
/// a command that has no reply by then never gets one.
async fn in_order<F: Future + Unpin>(
    futures: impl Iterator<Item = F>,
    mut end: impl Future + Unpin,
) -> Vec<Option<F::Output>> {
    let mut begun: Vec<_> = futures.map(maybe_done).collect();
    let (mut is_handed_over, mut done) = (false, 0);
    poll_fn(|context| {
        if !mem::replace(&mut is_handed_over, true) {
            for future in &mut begun {
                let _ = future.poll_unpin(context);
            }
        }
        while let Some(future) = begun.get_mut(done)
            && future.poll_unpin(context).is_ready()
        {
            done += 1;
        }
        if done < begun.len() {
            ready!(end.poll_unpin(context));
            for future in &mut begun {
                let _ = future.poll_unpin(context);
            }
        }
        Poll::Ready(())
    })
    .await;
    begun.iter_mut().map(|future| Pin::new(future).take_output()).collect()
}

/// Why the task that drives a connection has ended.
async fn end_of(task: JoinHandle<Result<(), Error>>) -> Error {
    match task.await {
        Ok(Err(error)) => error,
        _ => Error::new(ErrorKind::IO, "Connection closed."),
    }
}

/// Passes on what the server pushes, and the end of the connection.
async fn listen(
    mut pushes: Receiver<Invalidation>,
    mut end: End,
    push: Arc<impl Fn(Push) + Send + Sync>,
) {
    loop {
        match select(pin!(pushes.recv()), &mut end).await {
            Either::Left((Ok(message), _)) => {
                message.keys.iter().for_each(|key| push(Push::Key(key.as_bytes().to_vec())));
            }
            // More at once than fred keeps: which keys they were is not known.
            Either::Left((Err(RecvError::Lagged(_)), _)) => push(Push::AllKeys),
            Either::Left((Err(RecvError::Closed), _)) | Either::Right(_) => break,
        }
    }
    push(Push::ConnectionLost);
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn all_are_handed_over_in_order_though_some_wake_at_once() {
        let order = std::sync::Mutex::new(Vec::new());
        let wakes_at_once = |number| {
            let (order, mut is_begun) = (&order, false);
            poll_fn(move |context| {
                if is_begun {
                    return Poll::Ready(number);
                }
                is_begun = true;
                order.lock().unwrap().push(number);
                context.waker().wake_by_ref();
                Poll::Pending
            })
        };
        let replies = in_order((0..8).map(wakes_at_once), pending::<()>().boxed()).await;
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(replies, [0, 1, 2, 3, 4, 5, 6, 7].map(Some));
    }

    #[tokio::test]
    async fn after_the_end_only_what_is_there_is_an_answer() {
        let there = |number| async move { if number == 1 { pending().await } else { number } };
        let replies =
            in_order((0..3).map(|number| there(number).boxed()), std::future::ready(())).await;
        assert_eq!(replies, [Some(0), None, Some(2)]);
    }
}
