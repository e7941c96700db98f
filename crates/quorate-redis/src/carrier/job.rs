//! What is to be sent over a connection, and who waits for the answer.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use quorate_core::protocol::{Exchange, Joint};
use quorate_core::{Ask, BackendError, Call};
use redis::{Cmd, RedisError, Value};
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::oneshot;

use crate::error;
use crate::line::packed;
use crate::pool::Lane;

/// What is to be sent.
pub(super) enum Job {
    Command(Cmd, oneshot::Sender<Result<Value, Trouble>>),
    Call(Carried),
    Calls(Joint, Vec<Carried>),
}

impl Job {
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Self::Command(_, caller) => !caller.is_closed(),
            Self::Call(carried) => carried.call.is_wanted(),
            Self::Calls(_, calls) => calls.iter().any(|carried| carried.call.is_wanted()),
        }
    }

    pub(super) fn set_out(self) -> (Cmd, Waiter) {
        match self {
            Self::Command(command, caller) => (command, Waiter::Caller(caller)),
            Self::Call(carried) => (carried.command(), Waiter::Call(carried)),
            Self::Calls(joint, mut calls) => {
                calls.retain(|carried| carried.call.is_wanted());
                let each = calls.iter().map(|carried| (carried.exchange, carried.call.claim()));
                (joint.command(each, packed), Waiter::Calls(joint, calls))
            }
        }
    }

    /// The connection has ended before it could leave.
    pub(super) fn turn_away(self) {
        match self {
            Self::Command(command, caller) => {
                let _ = caller.send(Err(Trouble::NotSent(Box::new(command))));
            }
            Self::Call(carried) => {
                tokio::spawn(carried.go_on());
            }
            Self::Calls(_, calls) => calls.into_iter().map(Self::Call).for_each(Self::turn_away),
        }
    }
}

/// A call to carry, and what is next for it.
pub(crate) struct Carried {
    call: Call,
    exchange: Exchange,
    /// Where it goes if it has not left when the connection ends. Who waits for it keeps that.
    lane: Weak<Lane>,
}

impl Carried {
    pub(crate) const fn new(call: Call, exchange: Exchange, lane: Weak<Lane>) -> Self {
        Self { call, exchange, lane }
    }

    /// Makes of an answer what is next, if anything is.
    fn heard(self, answer: Result<Value, BackendError>) -> Option<Self> {
        match self.exchange.heard(answer.and_then(error::reply)) {
            ControlFlow::Continue(exchange) => Some(Self { exchange, ..self }),
            ControlFlow::Break(answer) => {
                self.call.answer(answer);
                None
            }
        }
    }

    pub(super) fn is_release_of_one(&self) -> bool {
        self.call.ask() == Ask::Release && Joint::takes(self.exchange, self.call.claim())
    }

    fn command(&self) -> Cmd {
        self.exchange.command(self.call.claim(), packed)
    }

    /// Goes on over another connection, unless it is given up: what undoes it may have gone before
    /// it then.
    async fn go_on(self) {
        if let Some(lane) = self.lane.upgrade() {
            lane.carry_anew(self).await;
        }
    }

    /// There is no connection for it.
    pub(crate) fn fails(self, error: BackendError) {
        self.call.answer(Err(error));
    }
}

/// Who waits for the answer to a command that has left.
pub(super) enum Waiter {
    Caller(oneshot::Sender<Result<Value, Trouble>>),
    Call(Carried),
    Calls(Joint, Vec<Carried>),
}

impl Waiter {
    /// How many calls, or commands of callers.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Caller(_) | Self::Call(_) => 1,
            Self::Calls(_, calls) => calls.len(),
        }
    }

    pub(super) fn hear(self, answer: Result<Value, RedisError>, more: &More) {
        match self {
            Self::Caller(caller) => {
                let _ = caller.send(answer.map_err(Trouble::Failed));
            }
            Self::Call(carried) => {
                let next = carried.heard(answer.map_err(|error| error::of_redis(&error)));
                if let Some(next) = next {
                    more.send(Job::Call(next));
                }
            }
            Self::Calls(joint, calls) => hear_together(joint, calls, answer, more),
        }
    }
}

fn hear_together(
    joint: Joint,
    calls: Vec<Carried>,
    answer: Result<Value, RedisError>,
    more: &More,
) {
    let answer = match answer {
        Err(error) if error::ends_connection(&error) => {
            let error = error::of_redis(&error);
            return calls.into_iter().for_each(|carried| carried.call.answer(Err(error.clone())));
        }
        Err(error) => Err(error::of_redis(&error)),
        Ok(value) => error::reply(value),
    };
    match joint.heard(calls.len(), answer) {
        ControlFlow::Continue(joint) => more.send(Job::Calls(joint, calls)),
        ControlFlow::Break(Some(answers)) => {
            for (carried, answer) in calls.into_iter().zip(answers) {
                carried.call.answer(answer);
            }
        }
        ControlFlow::Break(None) => {
            more.separately.store(true, Ordering::Relaxed);
            calls.into_iter().for_each(|carried| more.send(Job::Call(carried)));
        }
    }
}

/// For what an answer makes necessary.
#[derive(Clone)]
pub(super) struct More {
    pub(super) jobs: WeakUnboundedSender<Job>,
    /// Whether the node will not have calls together.
    pub(super) separately: Arc<AtomicBool>,
}

impl More {
    fn send(&self, job: Job) {
        if let Some(jobs) = self.jobs.upgrade() {
            let _ = jobs.send(job);
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection has ended, and the command has not left.
    NotSent(Box<Cmd>),
    /// The command may have left.
    Failed(RedisError),
}

impl Trouble {
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::NotSent(_) => true,
            Self::Failed(error) => error::ends_connection(error),
        }
    }

    pub(crate) fn told(self) -> BackendError {
        match self {
            Self::NotSent(_) => error::of_redis(&gone()),
            Self::Failed(error) => error::of_redis(&error),
        }
    }
}

/// That the connection was lost.
pub(super) fn gone() -> RedisError {
    RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe))
}
