//! What many callers send to one node at the same time travels together.
//!
//! A request through redis-rs costs a message to the task that drives the connection and a message
//! back, far more than a command in it. So a task of our own gathers what is there when it runs, and
//! sends it as one request. A command that has nobody to travel with goes without that task.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, unconstrained};

pub(crate) use self::job::{Carried, Trouble};
use self::job::{Job, gone};
use self::work::{Work, is_closed};
use crate::pulse::{Loner, Pulse};

mod job;
mod work;

/// The task that carries commands together over one connection.
pub(crate) struct Carrier {
    connection: MultiplexedConnection,
    pulse: Arc<Pulse>,
    jobs: UnboundedSender<Job>,
    task: JoinHandle<()>,
}

impl Carrier {
    /// Starts the task in the runtime that the caller is in.
    pub(crate) fn start(connection: MultiplexedConnection) -> Self {
        let (sender, jobs) = unbounded_channel();
        let pulse = Arc::new(Pulse::new());
        // Its requests leave when they are first polled, which a budget would keep some from.
        let work = Work::new(jobs, sender.downgrade(), connection.clone(), Arc::clone(&pulse));
        Self { connection, pulse, jobs: sender, task: tokio::spawn(unconstrained(work)) }
    }

    /// Whether nothing is to be sent over the connection any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.pulse.is_broken()
    }

    /// Nothing is to be sent over the connection any more.
    pub(crate) fn give_up(&self) {
        self.pulse.end();
    }

    /// Whether the runtime has ended in which the task was started, and with it the connection:
    /// tokio does not tell otherwise.
    fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Whether no command can be sent any more, as far as is known here. Waits for nothing.
    pub(crate) fn is_closed(&self) -> bool {
        self.has_ended() || is_closed(&self.connection)
    }

    /// Sends a command, together with others if there are any.
    pub(crate) async fn send(&self, command: Cmd) -> Result<Value, Trouble> {
        if self.is_broken() {
            return Err(Trouble::NotSent(Box::new(command)));
        }
        let loner = if self.has_ended() { None } else { Loner::set_out(&self.pulse) };
        let answer = match loner {
            Some(loner) => alone(&mut self.connection.clone(), &command, loner).await,
            None => self.together(command).await,
        };
        if let Err(trouble) = &answer
            && trouble.ends_connection()
        {
            self.give_up();
        }
        answer
    }

    async fn together(&self, command: Cmd) -> Result<Value, Trouble> {
        let (caller, answer) = oneshot::channel();
        if let Err(SendError(Job::Command(command, _))) = self.queue(Job::Command(command, caller))
        {
            return Err(Trouble::NotSent(Box::new(command)));
        }
        // The task may be lost with its runtime.
        answer.await.unwrap_or_else(|_| Err(Trouble::Failed(gone())))
    }

    /// Whether a command would have others to travel with.
    pub(crate) fn has_company(&self) -> bool {
        self.pulse.company().is_there() && !self.has_ended()
    }

    /// Sends the commands of a call, together with others. If the task is gone, the call is, too.
    pub(crate) fn carry(&self, carried: Carried) {
        let _ = self.queue(Job::Call(carried));
    }

    fn queue(&self, job: Job) -> Result<(), SendError<Job>> {
        self.pulse.company().waits();
        self.jobs.send(job)
    }
}

async fn alone(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    loner: Loner<'_>,
) -> Result<Value, Trouble> {
    let mut sent = pin!(connection.send_packed_command(command));
    poll_fn(|context| match sent.as_mut().poll(context) {
        Poll::Ready(answer) => {
            if answer.is_ok() {
                loner.beat();
            }
            Poll::Ready(answer.map_err(Trouble::Failed))
        }
        Poll::Pending => loner.poll_forgotten(context).map(|()| Err(Trouble::Failed(gone()))),
    })
    .await
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.task.abort();
    }
}
